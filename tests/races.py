"""Two acts at once on PostgreSQL: the second comes to the rows of the first before it commits.

SQLite lets only one writer in, so there is nothing to see.
"""

import threading
import time
from collections.abc import Callable

from django.db import connection, transaction

LIMIT_S = 60
WAITING = """
    SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pid IN
    (SELECT pid FROM pg_stat_activity WHERE datname = current_database())
"""


def begin(act: Callable[[], object], caught: list[Exception]) -> threading.Thread:
    """Start `act` in a thread with a connection of its own; what it raises is in `caught`."""

    def run() -> None:
        try:
            act()
        except Exception as error:
            caught.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_blocked(threads: list[threading.Thread]) -> None:
    """Until each of them waits for a row of another transaction, or has ended."""
    until = time.monotonic() + LIMIT_S
    while _waiting() < sum(thread.is_alive() for thread in threads):
        assert time.monotonic() < until, f"neither blocked nor ended in {LIMIT_S} s"
        time.sleep(0.01)


def _waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # else it is that of the transaction
        cursor.execute(WAITING)
        return int(cursor.fetchone()[0])


def together(first: Callable[[], object], *others: Callable[[], object]) -> list[Exception]:
    """All of `others` come to the rows that `first` has written, in order, before it commits.

    Returns what they raised.
    """
    caught: list[Exception] = []
    threads: list[threading.Thread] = []
    with transaction.atomic():
        first()
        for act in others:
            threads.append(begin(act, caught))
            wait_blocked(threads)
    for thread in threads:
        join(thread)
    return caught


def join(thread: threading.Thread) -> None:
    thread.join(LIMIT_S)
    assert not thread.is_alive()

"""Commits that need not survive a power cut, and commits that another one got in the way of."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

import structlog
from django.db import OperationalError, connection, transaction

from portal.base.writers import one_writer

log = structlog.get_logger(__name__)
TRIES = 4
DEADLOCK = "40P01"  # SQLSTATE of PostgreSQL, which ends one of the two


@contextmanager
def light_atomic() -> Iterator[None]:
    """A transaction that survives the death of every process, and is not forced onto the disk.

    After a power cut the database is as it was a moment earlier: whole, and consistent in itself.
    For rows whose loss only means that a client sends something again. The next ordinary commit
    takes everything before it onto the disk too.
    """
    if connection.vendor == "sqlite":
        with _sqlite():
            yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit TO OFF")
        yield


@contextmanager
def light_statement() -> Iterator[None]:
    """As `light_atomic`, for one statement: on SQLite that is a transaction by itself."""
    if connection.vendor == "sqlite":
        with _not_forced():
            yield
        return
    with light_atomic():
        yield


@contextmanager
def _sqlite() -> Iterator[None]:
    with _not_forced(), transaction.atomic():
        yield


@contextmanager
def _not_forced() -> Iterator[None]:
    connection.ensure_connection()
    if connection.in_atomic_block:  # the pragma cannot change inside a transaction
        yield
        return
    raw = connection.connection
    with one_writer():
        raw.execute("PRAGMA synchronous=NORMAL")
        try:
            yield
        finally:
            raw.execute("PRAGMA synchronous=FULL")


def again_after_deadlock[**P, R](verb: Callable[P, R]) -> Callable[P, R]:
    """Run a verb's whole transaction once more when PostgreSQL chose it to end a deadlock.

    For verbs that a person waits for: agents and pumps come again by themselves. The verb reads its
    rows anew each time. Inside an outer transaction it is run once, for that one is lost with it.
    """

    @wraps(verb)
    def tried(*args: P.args, **kwargs: P.kwargs) -> R:
        for left in reversed(range(TRIES)):
            try:
                return verb(*args, **kwargs)
            except OperationalError as error:
                deadlock = getattr(error.__cause__, "sqlstate", None) == DEADLOCK
                if not (deadlock and left) or connection.in_atomic_block:
                    raise
                log.info("again_after_deadlock", verb=verb.__name__)
        raise AssertionError("unreachable")

    return tried

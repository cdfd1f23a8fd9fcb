"""Writers to SQLite one after the other, each going on as soon as the one before has done.

SQLite lets one write at a time, and who finds it taken sleeps and looks again, each time for
longer. Many short transactions at once so spend their time asleep. Those that come often wait here
instead, one of each process. It is only a politeness: all others write in between, and whoever
has waited for too long goes on without a turn and waits as SQLite does.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

LIMIT_S = 2.0  # a turn takes milliseconds; beyond that somebody stands still, or writes for long
LOOK_EVERY_S = 0.0005

_threads = threading.Lock()  # of this process; the file's lock is the process's
_open: tuple[int, str, int] | None = None  # process, path, descriptor


@contextmanager
def one_writer() -> Iterator[None]:
    """Inside, usually no other thread or process on this database is in such a block.

    Does nothing on other databases, on one in memory, and within a transaction, which has its turn.
    """
    needless = connection.vendor != "sqlite" or connection.in_atomic_block
    if needless or connection.is_in_memory_db():  # type: ignore[attr-defined]
        yield
        return
    until = time.monotonic() + LIMIT_S
    if not _threads.acquire(timeout=LIMIT_S):
        yield
        return
    try:
        lock = _descriptor(f"{connection.settings_dict['NAME']}-turn")
        mine = _take(lock, until)
        try:
            yield
        finally:
            if mine:
                fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        _threads.release()


def _take(lock: int, until: float) -> bool:
    """The lock of the file; False where it did not come until a time.monotonic() value."""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_EVERY_S)
        else:
            return True


def _descriptor(path: str) -> int:
    """A descriptor of this process's own: one from before a fork would share its lock."""
    global _open
    if _open is None or _open[:2] != (os.getpid(), path):
        _open = os.getpid(), path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return _open[2]

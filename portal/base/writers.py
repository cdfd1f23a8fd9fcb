"""Writers to SQLite one after the other, each woken when the one before has done.

SQLite lets one write at a time, and who finds it taken sleeps and looks again, each time for
longer. Many short transactions at once so spend their time asleep. Those that come often wait here
instead, where the kernel wakes the next one; all others still may write in between.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

_threads = threading.Lock()  # of this process; the file's lock is the process's
_open: tuple[int, str, int] | None = None  # process, path, descriptor


@contextmanager
def one_writer() -> Iterator[None]:
    """Inside, no other thread or process on this database is in such a block.

    Does nothing on other databases, on one in memory, and within a transaction, which has its turn.
    """
    path = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or connection.in_atomic_block or "memory" in path:
        yield
        return
    with _threads:
        lock = _descriptor(f"{path}-turn")
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


def _descriptor(path: str) -> int:
    """A descriptor of this process's own: one from before a fork would share its lock."""
    global _open
    if _open is None or _open[:2] != (os.getpid(), path):
        _open = os.getpid(), path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return _open[2]

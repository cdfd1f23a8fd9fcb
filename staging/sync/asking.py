"""Pages that ask a source: a silent one holds its thread for many seconds, so few may at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from staging.errors import Busy

SEATS = 3  # of a process, whose other threads stay for everybody else
PATIENCE_S = 5.0
_seats = BoundedSemaphore(SEATS)


@contextmanager
def asking() -> Iterator[None]:
    """Raises Busy where enough pages ask sources already."""
    if not _seats.acquire(timeout=PATIENCE_S):
        raise Busy("The portal asks other sources just now. Try again in some seconds.")
    try:
        yield
    finally:
        _seats.release()

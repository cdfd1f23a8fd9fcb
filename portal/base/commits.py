"""Commits that need not survive a power cut."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


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
def _sqlite() -> Iterator[None]:
    connection.ensure_connection()
    if connection.in_atomic_block:  # the pragma cannot change inside a transaction
        with transaction.atomic():
            yield
        return
    raw = connection.connection
    raw.execute("PRAGMA synchronous=NORMAL")
    try:
        with transaction.atomic():
            yield
    finally:
        raw.execute("PRAGMA synchronous=FULL")

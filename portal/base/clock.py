"""One clock: the database's. What happened elsewhere arrives as an age and is placed on it."""

from datetime import UTC, datetime, timedelta

from django.db import connection


def db_now() -> datetime:
    """The database's time, aware UTC, in whole milliseconds. Read it once per transaction.

    On PostgreSQL this is the time of the statement, so waiting for a lock does not make it old.
    """
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
            )
        else:
            cursor.execute("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)")
        (milliseconds,) = cursor.fetchone()
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def at_age(received: datetime, age_ms: int, not_before: datetime) -> datetime:
    """When a step reported `age_ms` ago happened, within [not_before, received].

    Never too early, and too late by as long as the report was on its way: see nodes/dating.py.
    """
    return max(not_before, received - timedelta(milliseconds=max(0, age_ms)))


def milliseconds(length: timedelta) -> int:
    """Whole milliseconds of a length that is never negative."""
    return max(0, length // timedelta(milliseconds=1))


def as_iso(at: datetime | None) -> str | None:
    """A time as records and receipts carry it: ISO 8601 in UTC with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds") if at else None

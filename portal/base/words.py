"""Numbers as people read them. Pure functions: no markup, no database."""

from datetime import UTC, datetime, timedelta

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
MINUTE, HOUR, DAY = 60, 3600, 86400


def in_bytes(number: int) -> str:
    """1500000 -> "1.5 MB": decimal units, at most one digit after the point."""
    if abs(number) < 1000:
        return f"{number} byte" if number == 1 else f"{number} bytes"
    value, step = float(number), 0
    while abs(value) >= 999.95 and step < len(UNITS) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.1f}".removesuffix(".0") + f" {UNITS[step]}"


def in_hms(length: timedelta | int) -> str:
    """A timedelta, or whole milliseconds, as h:mm:ss; hours are not folded into days."""
    if isinstance(length, timedelta):
        length = length // timedelta(milliseconds=1)
    seconds = abs(length) // 1000
    sign = "-" if length < 0 else ""
    return f"{sign}{seconds // HOUR}:{seconds % HOUR // MINUTE:02}:{seconds % MINUTE:02}"


def in_words(length: timedelta) -> str:
    """A length in its largest fitting unit: "40 s", "3 min", "5 h", "9 days"."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 2 * MINUTE:
        return f"{seconds} s"
    if seconds < 2 * HOUR:
        return f"{seconds // MINUTE} min"
    if seconds < 2 * DAY:
        return f"{seconds // HOUR} h"
    return f"{seconds // DAY} days"


def until(length: timedelta) -> str:
    """As `in_words`, but with the minutes where a person would plan by them: "1 h 57 min"."""
    hours, minutes = divmod(max(0, int(length.total_seconds())) // MINUTE, 60)
    if 1 <= hours < 12:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return in_words(length)


def in_hours(milliseconds: int) -> str:
    """Milliseconds as hours with as many digits as keep a short run from reading 0."""
    hours = milliseconds / 3_600_000
    if hours and abs(hours) < 0.01:
        return f"{hours:.4f}"
    return f"{hours:,.2f}"


def in_utc(at: datetime) -> str:
    """2026-11-30 08:41 UTC"""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")

"""Numbers as people read them. Pure functions: no markup, no database."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
MINUTE, HOUR, DAY = 60, 3600, 86400
TENTH, SECOND = 100, 1000  # milliseconds


def in_bytes(number: int) -> str:
    """1500000 -> "1.5 MB": decimal units, at most one digit after the point."""
    if abs(number) < 1000:
        return f"{number} byte" if number == 1 else f"{number} bytes"
    value, step = float(number), 0
    while abs(value) >= 999.95 and step < len(UNITS) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.1f}".removesuffix(".0") + f" {UNITS[step]}"


def in_gib(number: int) -> str:
    """Memory, disk and limits in the unit in which they are declared: 1610612736 -> "1.5 GiB"."""
    gib = number / 2**30
    return f"{gib:,.0f} GiB" if gib >= 1000 else f"{gib:.4g} GiB"


def in_hms(length: timedelta | int) -> str:
    """A timedelta, or whole milliseconds, as h:mm:ss; hours are not folded into days.

    Rounded to whole seconds; what was measured (milliseconds) below a minute to tenths.
    """
    measured = not isinstance(length, timedelta)
    if isinstance(length, timedelta):
        length = length // timedelta(milliseconds=1)
    tenths = rounded(abs(length), TENTH)
    if not measured or not 0 < tenths < 10 * MINUTE:
        return _clock(length, 10 * rounded(abs(length), SECOND))
    return f"{_clock(length, tenths)}.{tenths % 10}"


def _clock(length: int, tenths: int) -> str:
    seconds = tenths // 10
    sign = "-" if length < 0 and tenths else ""
    return f"{sign}{seconds // HOUR}:{seconds % HOUR // MINUTE:02}:{seconds % MINUTE:02}"


def in_hms_exact(milliseconds: int) -> str:
    """h:mm:ss.mmm, for programs and spreadsheets."""
    return f"{_clock(milliseconds, milliseconds // 100)}.{milliseconds % 1000:03}"


def rounded(number: int, unit: int) -> int:
    """How many whole units a number that is not negative is nearest to; a half goes up."""
    return (2 * number + unit) // (2 * unit)


def shares(parts: Sequence[int], unit: int, total: int | None = None) -> list[int]:
    """Each part in whole units, so that together they are the rounded total: what stands in a
    column adds up to what stands below it. The largest remainders are rounded up.

    `total` is that of the parts unless it is given. Parts of whole units stay as they are.
    """
    found = [part // unit for part in parts]
    missing = rounded(sum(parts) if total is None else total, unit) - sum(found)
    uneven = [place for place in range(len(parts)) if parts[place] % unit]
    by_rest = sorted(uneven, key=lambda place: -(parts[place] % unit))
    for place in by_rest[: max(0, missing)]:
        found[place] += 1
    for place in by_rest[::-1][: max(0, -missing)]:
        found[place] = max(0, found[place] - 1)
    return found


def precision(parts: Sequence[int]) -> int:
    """Of a column of milliseconds: tenths where a part is below a minute, else whole seconds."""
    return TENTH if any(0 < part < SECOND * MINUTE for part in parts) else SECOND


def hms_column(parts: Sequence[int], total: int | None = None) -> list[str]:
    """Milliseconds as a column of h:mm:ss of one precision, with its sum as the last text."""
    whole = sum(parts) if total is None else total
    unit = precision(parts)
    units = [*shares(parts, unit, whole), rounded(whole, unit)]
    if unit == SECOND:
        return [_clock(0, 10 * number) for number in units]
    return [f"{_clock(0, number)}.{number % 10}" if number else "0:00:00" for number in units]


def hours_column(parts: Sequence[int], total: int | None = None) -> list[str]:
    """Milliseconds as a column of hours with its sum as the last text; see `hms_column`."""
    whole = sum(parts) if total is None else total
    digits = 4 if any(0 < part < HOUR * 10 for part in parts) else 2
    scale = 10**digits
    # In units that are no whole milliseconds: everything is multiplied first.
    scaled = [part * scale for part in parts]
    unit = HOUR * 1000
    units = [*shares(scaled, unit, whole * scale), rounded(whole * scale, unit)]
    return [f"{number / scale:,.{digits}f}" if number else "0.00" for number in units]


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

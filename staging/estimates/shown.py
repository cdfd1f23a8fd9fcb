"""What pages and programs say of a transfer: one place for the numbers, and for their words."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from portal.base.words import in_bytes, until
from staging.estimates.models import Transfer
from staging.estimates.notes import latest

LONG = timedelta(days=2)
STILL = timedelta(seconds=30)  # without movement it is said so
SECOND = timedelta(seconds=1)
UNKNOWN = "Rate and time left: not known yet, too little has moved to say."


@dataclass(frozen=True)
class Shown:
    """A transfer that goes on. Times are from now on; None while they are not known."""

    files: int
    bytes: int
    files_done: int
    bytes_done: int
    rate: float | None = None
    p50: timedelta | None = None
    p90: timedelta | None = None
    still: timedelta = timedelta(0)
    moving: bool = True

    @classmethod
    def of(cls, row: Transfer, now: datetime) -> "Shown":
        since = max(timedelta(0), now - row.seen_at)
        known = row.p50_s is not None and row.p90_s is not None
        p50, p90 = (
            max(timedelta(0), timedelta(seconds=seconds or 0) - since)
            for seconds in (row.p50_s, row.p90_s)
        )
        return cls(
            files=row.files,
            bytes=row.bytes,
            files_done=row.files_done,
            bytes_done=row.bytes_done,
            rate=row.rate if known else None,
            p50=p50 if known else None,
            p90=p90 if known else None,
            still=max(timedelta(0), now - row.moved_at),
            moving=row.moving,
        )

    @property
    def percent(self) -> int:
        """Of the bytes; of the files, where there are no bytes. 100 only when all is there."""
        if self.files_done >= self.files and self.bytes_done >= self.bytes:
            return 100 if self.files else 0
        part, whole = (self.bytes_done, self.bytes) if self.bytes else (self.files_done, self.files)
        return min(99, part * 100 // whole)

    @property
    def amount(self) -> str:
        """ "12 of 40 files, 412 of 980 MB, 42 %" """
        size = f"{of_bytes(self.bytes_done, self.bytes)}, " if self.bytes else ""
        plural = "" if self.files == 1 else "s"
        return f"{self.files_done:,} of {self.files:,} file{plural}, {size}{self.percent} %"

    @property
    def left(self) -> str:
        """ "about 6 min, 9 times in 10 within 11 min", or what is said in its place."""
        if not self.moving:
            return "paused"
        if self.p50 is None or self.p90 is None:
            return "time left not known yet"
        likely, late = until(max(SECOND, self.p50)), until(max(SECOND, self.p90))
        return (
            f"about {likely}" if likely == late else f"about {likely}, 9 times in 10 within {late}"
        )

    @property
    def sentence(self) -> str:
        """ "12 of 40 files, 412 of 980 MB, 42 %: about 6 min, 9 times in 10 within 11 min" """
        return f"{self.amount}: {self.left}"

    @property
    def pace(self) -> str:
        """Rate and time left in a sentence; "" where nothing is to move."""
        if not self.moving:
            return ""
        if self.p50 is None or self.rate is None:
            return UNKNOWN
        rate = f"{in_bytes(round(self.rate))} a second"
        if self.still > STILL:
            return (
                f"Nothing has come for {until(self.still)}. At the rate seen before: {self.left}."
            )
        if self.p50 > LONG:
            return (
                f"{rate}. At the rate seen so far this takes {until(self.p50)}; "
                "this portal has no faster way."
            )
        return f"{rate}, {self.left}."


def of_bytes(part: int, whole: int) -> str:
    """ "412 of 980 MB": the unit once where both have it."""
    number, _, unit = in_bytes(part).partition(" ")
    full = in_bytes(whole)
    return f"{number} of {full}" if full.endswith(f" {unit}") else f"{number} {unit} of {full}"


def all_shown(subjects: Iterable[str], now: datetime) -> dict[str, Shown]:
    """By subject, those that go on: one query."""
    return {subject: Shown.of(row, now) for subject, row in latest(subjects).items()}


def shown_of(subject: str, now: datetime) -> Shown | None:
    return all_shown([subject], now).get(subject)

"""How right estimates were, of the rows that the portal keeps: what was said when, and the end."""

from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

WAYS = (0.10, 0.25, 0.50, 0.75)
WITHIN = 0.2  # of the time then left: an estimate that has followed
TAIL_S = 5.0  # before the end a fifth of the time left is less than the rows can tell


@dataclass(frozen=True)
class Told:
    """One estimate: when (seconds), at which share of the bytes, what was said, what was true."""

    at: float
    way: float
    p50: float
    p90: float
    left: float

    @property
    def error(self) -> float:
        return abs(self.p50 - self.left) / self.left


@dataclass(frozen=True)
class Run:
    began: datetime
    took: float
    told: list[Told]

    @classmethod
    def of(cls, transfer: Any) -> "Run":
        """A transfer that has ended, with its estimates."""
        end, whole = transfer.ended_at, max(transfer.bytes, 1)
        told = [
            Told(
                at=(row.at - transfer.began_at).total_seconds(),
                way=1 - row.bytes_left / whole,
                p50=row.p50_s,
                p90=row.p90_s,
                left=(end - row.at).total_seconds(),
            )
            for row in transfer.estimates.all()
            if row.at < end
        ]
        return cls(transfer.began_at, (end - transfer.began_at).total_seconds(), told)

    def near(self, way: float) -> Told | None:
        """What was said nearest to a share of the way."""
        return min(self.told, key=lambda told: abs(told.way - way), default=None)

    def followed_after(self, step: datetime) -> float:
        """Seconds from a step of the link until every estimate was within a fifth again."""
        since = (step - self.began).total_seconds()
        bad = [
            t.at - since for t in self.told if t.at > since and t.left > TAIL_S and t.error > WITHIN
        ]
        return max(bad, default=0.0)


def cover(runs: list[Run]) -> float:
    """How often the truth was within P90."""
    hits = [told.left <= told.p90 for run in runs for told in run.told]
    return sum(hits) / len(hits)


def errors(runs: list[Run]) -> dict[str, float]:
    """Median error at each share of the way, as a share of the time then left."""
    found = {}
    for way in WAYS:
        told = [one for run in runs if (one := run.near(way)) is not None]
        found[f"{way:.0%}"] = round(median(one.error for one in told), 3)
    return found

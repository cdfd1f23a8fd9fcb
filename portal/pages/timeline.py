"""A job's time from submit to end as stretches, drawn to scale. Pure: rows in, stretches out.

At each moment the job is in one phase. Where several attempts overlap, a metered phase wins over
an unmetered one, and running wins over the rest, so solid on the bar always means "on the meter".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from jobs.models import Job
from jobs.states import JobState
from nodes.meter import held_until, slices
from nodes.models import Lease
from portal.base.clock import milliseconds

# Highest first: which phase names a moment that several attempts share.
METERED = ("run", "output", "launch", "release")
UNMETERED = ("fetch", "ready", "delivery", "queue", "staging")
RANK = METERED + UNMETERED
WORDS = {
    "staging": "On its way to the store",
    "queue": "Waiting in the queue",
    "fetch": "On its way to the node",
    "ready": "Ready on the node, waiting for a turn",
    "launch": "Launch",
    "run": "Run",
    "output": "Output",
    "release": "Release",
    "delivery": "Output still arriving, compute released",
}
ORDER = ("staging", "queue", "fetch", "ready", "launch", "run", "output", "release", "delivery")
BAR_WIDTH = 1000
SECOND = 1000


@dataclass(frozen=True)
class Stretch:
    """A phase from `start` to `end`; `x` and `width` place it on a bar of BAR_WIDTH units."""

    phase: str
    start: datetime
    end: datetime
    x: float = 0
    width: float = 0

    @property
    def metered(self) -> bool:
        return self.phase in METERED

    @property
    def word(self) -> str:
        return WORDS[self.phase]

    @property
    def ms(self) -> int:
        return milliseconds(self.end - self.start)


@dataclass(frozen=True)
class PhaseRow:
    """A row of the table beside the bar: time by the clock, and held time over all attempts."""

    phase: str
    wall_ms: int
    held_ms: int | None

    @property
    def word(self) -> str:
        return WORDS[self.phase]

    @property
    def metered(self) -> bool:
        return self.held_ms is not None


@dataclass(frozen=True)
class Timeline:
    start: datetime
    end: datetime
    stretches: list[Stretch]
    rows: list[PhaseRow]
    waiting_for_data_ms: int

    @property
    def wall_ms(self) -> int:
        return milliseconds(self.end - self.start)


def spans(lease: Lease, at: datetime) -> list[tuple[str, datetime, datetime]]:
    """The phases of one attempt as (phase, start, end), empty ones left out."""
    stop = lease.ended_at or at
    held_end = held_until(lease, at) if lease.allocated_at else stop
    marks = [
        ("fetch", lease.placed_at),
        ("ready", lease.ready_at),
        ("launch", lease.allocated_at),
        ("run", lease.running_at),
        ("output", lease.returning_at),
        ("release", lease.releasing_at),
    ]
    known = [(phase, begun) for phase, begun in marks if begun is not None]
    found = []
    for (phase, begun), (_, next_begun) in zip(known, [*known[1:], ("", held_end)], strict=True):
        if min(next_begun, held_end) > begun:
            found.append((phase, begun, min(next_begun, held_end)))
    return found


def _ground(job: Job, leases: list[Lease], end: datetime) -> list[tuple[str, datetime, datetime]]:
    """What the job is in while no attempt of it is under way."""
    begun = job.submitted_at or job.created_at
    queued = job.queued_at or end
    last_end = max((lease.ended_at for lease in leases if lease.ended_at), default=None)
    live = any(lease.ended_at is None for lease in leases)
    delivering = (
        last_end is not None
        and not live
        and (job.state == JobState.ENDED or job.state == JobState.ACTIVE)
    )
    tail = last_end if delivering and last_end else end
    return [("staging", begun, queued), ("queue", queued, tail), ("delivery", tail, end)]


def _sweep(found: list[tuple[str, datetime, datetime]]) -> list[tuple[str, datetime, datetime]]:
    """The highest phase of each moment, neighbors of the same phase joined."""
    changes: dict[datetime, dict[str, int]] = {}
    for phase, begun, ended in found:
        if ended > begun:
            opened = changes.setdefault(begun, {})
            opened[phase] = opened.get(phase, 0) + 1
            closed = changes.setdefault(ended, {})
            closed[phase] = closed.get(phase, 0) - 1
    moments = sorted(changes)
    open_now = dict.fromkeys(RANK, 0)
    joined: list[tuple[str, datetime, datetime]] = []
    for moment, following in pairwise(moments):
        for phase, change in changes[moment].items():
            open_now[phase] += change
        top = next((phase for phase in RANK if open_now[phase]), None)
        if top is None:
            continue
        if joined and joined[-1][0] == top and joined[-1][2] == moment:
            joined[-1] = (top, joined[-1][1], following)
        else:
            joined.append((top, moment, following))
    return joined


def _placed(
    joined: list[tuple[str, datetime, datetime]], start: datetime, end: datetime
) -> list[Stretch]:
    total = (end - start).total_seconds() or 1
    return [
        Stretch(
            phase,
            begun,
            ended,
            x=round((begun - start).total_seconds() / total * BAR_WIDTH, 2),
            width=round((ended - begun).total_seconds() / total * BAR_WIDTH, 2),
        )
        for phase, begun, ended in joined
    ]


def timeline(job: Job, leases: Iterable[Lease], at: datetime) -> Timeline:
    """Where the job's time went, from submit to its end or `at`."""
    leases = list(leases)
    start = job.submitted_at or job.created_at
    end = max(start, job.ended_at or at)
    found = _ground(job, leases, end)
    held = dict.fromkeys(METERED, 0)
    waiting = 0
    for lease in leases:
        found += [(p, b, min(e, end)) for p, b, e in spans(lease, at)]
        parts = slices(lease, at)
        for phase in METERED:
            held[phase] += getattr(parts, f"{phase}_ms")
        if lease.allocated_at:
            waiting += milliseconds((lease.ready_at or lease.allocated_at) - lease.allocated_at)
    stretches = _placed(_sweep(found), start, end)
    return Timeline(start, end, stretches, _rows(stretches, held), waiting)


def _rows(stretches: list[Stretch], held: dict[str, int]) -> list[PhaseRow]:
    wall = dict.fromkeys(ORDER, 0)
    for stretch in stretches:
        wall[stretch.phase] += stretch.ms
    rows = [PhaseRow(phase, wall[phase], held.get(phase)) for phase in ORDER]
    return [row for row in rows if row.wall_ms >= SECOND or row.metered]

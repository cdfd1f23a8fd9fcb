"""A job's time from submit to end as stretches, drawn to scale. Pure: rows in, stretches out.

At each moment the job is in one phase. Where several attempts overlap, a metered phase wins over
an unmetered one, and running wins over the rest, so solid on the bar always means "on the meter".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise

from jobs.models import Job
from jobs.states import JobState
from nodes.meter import JobMeter, held_until
from nodes.models import Lease
from portal.base.clock import milliseconds
from portal.base.epoch import from_ms, to_ms
from portal.base.words import TENTH, hms_column, precision, shares

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
PHASES = {
    "fetch": "placed",
    "ready": "ready",
    "launch": "allocated",
    "run": "running",
    "output": "returning",
    "release": "releasing",
}  # each with the step of a lease that begins it
ORDER = ("staging", "queue", "fetch", "ready", "launch", "run", "output", "release", "delivery")
BAR_WIDTH = 1000


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
class Held:
    """Held time of all attempts: the sums, ms by phase of METERED, and ms held before all data was
    on the node, which is never."""

    meter: JobMeter
    phases: dict[str, int]
    waited_ms: int


@dataclass(frozen=True)
class PhaseRow:
    """A row of the table beside the bar: time by the clock, and held time over all attempts.

    `wall` and `held` are the same as texts, which add up to those below them.
    """

    phase: str
    wall_ms: int
    held_ms: int | None
    wall: str = ""
    held: str = ""

    @property
    def word(self) -> str:
        return WORDS[self.phase]

    @property
    def metered(self) -> bool:
        return self.held_ms is not None


@dataclass(frozen=True)
class Timeline:
    """`lengths`: ms in which at least one attempt was in each metered phase, in whole tenths of a
    second. `wall` and `held` are what stands below the rows.
    """

    start: datetime
    end: datetime
    stretches: list[Stretch]
    rows: list[PhaseRow]
    waiting_for_data_ms: int
    lengths: dict[str, int]
    wall: str
    held: str

    @property
    def wall_ms(self) -> int:
        return milliseconds(self.end - self.start)


def spans(lease: Lease, at: datetime) -> list[tuple[str, datetime, datetime]]:
    """The phases of one attempt as (phase, start, end), empty ones left out."""
    stop = lease.ended_at or at
    held_end = held_until(lease, at) if lease.allocated_at else stop
    marks = [(phase, getattr(lease, f"{step}_at")) for phase, step in PHASES.items()]
    known = [(phase, begun) for phase, begun in marks if begun is not None]
    found = []
    for (phase, begun), (_, next_begun) in zip(known, [*known[1:], ("", held_end)], strict=True):
        if min(next_begun, held_end) > begun:
            found.append((phase, begun, min(next_begun, held_end)))
    return found


def _ground(
    job: Job, last_end: datetime | None, live: bool, end: datetime
) -> list[tuple[str, datetime, datetime]]:
    """What the job is in while no attempt of it is under way."""
    begun = job.submitted_at or job.created_at
    queued = job.queued_at or end
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


def timeline(job: Job, leases: Iterable[Lease], held: Held, at: datetime) -> Timeline:
    """Where the job's time went, from submit to its end or `at`."""
    leases = list(leases)
    start = job.submitted_at or job.created_at
    end = max(start, job.ended_at or at)
    last_end = max((lease.ended_at for lease in leases if lease.ended_at), default=None)
    live = any(lease.ended_at is None for lease in leases)
    of_leases = [(p, b, min(e, end)) for lease in leases for p, b, e in spans(lease, at)]
    stretches = _placed(_sweep(_ground(job, last_end, live, end) + of_leases), start, end)
    times: dict[str, list[tuple[int, int]]] = {phase: [] for phase in PHASES}
    for phase, begun, done in of_leases:
        times[phase].append((to_ms(begun), to_ms(done)))
    return _told(start, end, stretches, held, times)


def _lengths(times: dict[str, list[tuple[int, int]]]) -> dict[str, int]:
    """How long each metered phase was, its overlapping times taken once."""
    found = []
    for phase in METERED:
        total, last = 0, 0
        for begun, done in sorted(times[phase]):
            if done > last:
                total += done - max(begun, last)
                last = done
        found.append(total)
    units = shares(found, TENTH)
    return {phase: TENTH * number for phase, number in zip(METERED, units, strict=True)}


def rough_timeline(
    job: Job,
    ended: Iterable[Sequence[int | None]],
    live: Iterable[Lease],
    held: Held,
    at: datetime,
) -> Timeline:
    """As `timeline`, to one unit of the bar: for jobs of so many attempts that it can show no more.

    `ended` has a row for each ended attempt: when it came to each of PHASES, and its end, in ms.
    A phase that touches a unit counts as the whole of it, the highest one wins as ever.
    """
    live = list(live)
    start = job.submitted_at or job.created_at
    end = max(start, job.ended_at or at)
    zero, stop = to_ms(start), to_ms(end)
    width = max(1, -(-(stop - zero) // BAR_WIDTH))
    units = -(-(stop - zero) // width) or 1
    steps = {phase: [0] * (units + 1) for phase in RANK}
    times: dict[str, list[tuple[int, int]]] = {phase: [] for phase in PHASES}
    last = None
    for *marks, over in ended:
        last = max(last or zero, over or zero)
        _mark(times, marks, min(over or stop, stop))
    for lease in live:
        *marks, over = _marks(lease, at)
        _mark(times, marks, min(over or stop, stop))
    for phase, stays in times.items():
        for came, left in stays:
            _add(steps[phase], came - zero, left - zero, width)
    last_end = None if last is None else from_ms(last)
    for phase, begun, done in _ground(job, last_end, bool(live), end):
        _add(steps[phase], to_ms(begun) - zero, to_ms(done) - zero, width)
    stretches = _placed(_drawn(steps, zero, stop, width), start, end)
    return _told(start, end, stretches, held, times)


def _drawn(
    steps: dict[str, list[int]], zero: int, stop: int, width: int
) -> list[tuple[str, datetime, datetime]]:
    """The highest phase of each unit of `width` ms, neighbors of the same phase joined."""
    open_now = [(phase, list(accumulate(steps[phase]))) for phase in RANK]
    joined: list[tuple[str, datetime, datetime]] = []
    for unit in range(len(steps["run"]) - 1):
        top = next((phase for phase, counts in open_now if counts[unit]), None)
        if top is None:
            continue
        begun, done = from_ms(zero + unit * width), from_ms(min(stop, zero + (unit + 1) * width))
        if joined and joined[-1][0] == top and joined[-1][2] == begun:
            begun = joined.pop()[1]
        joined.append((top, begun, done))
    return joined


def _marks(lease: Lease, at: datetime) -> list[int | None]:
    times = [getattr(lease, f"{step}_at") for step in PHASES.values()]
    return [to_ms(time) if time else None for time in [*times, held_until(lease, at)]]


def _mark(times: dict[str, list[tuple[int, int]]], marks: Sequence[int | None], over: int) -> None:
    """The phases of one attempt, each up to the next one that came, none beyond `over`."""
    after = over
    for phase, begun in zip(reversed(PHASES), reversed(marks), strict=True):
        if begun is not None:
            if begun < after:
                times[phase].append((begun, after))
            after = min(begun, over)


def _add(steps: list[int], begun: int, done: int, width: int) -> None:
    if begun < done:
        steps[max(0, begun // width)] += 1
        steps[min(len(steps) - 1, -(-done // width))] -= 1


def _told(
    start: datetime,
    end: datetime,
    stretches: list[Stretch],
    held: Held,
    times: dict[str, list[tuple[int, int]]],
) -> Timeline:
    rows, wall, sum_held = _rows(stretches, held.phases, milliseconds(end - start))
    lengths = _lengths(times)
    return Timeline(start, end, stretches, rows, held.waited_ms, lengths, wall, sum_held)


def _alike(
    wall: dict[str, int], held: dict[str, int], metered: list[str], shown: list[str]
) -> list[int]:
    """The times by the clock, where they are the held ones rounded as those are."""
    unit = precision([held[phase] for phase in metered])
    units = dict(zip(metered, shares([held[phase] for phase in metered], unit), strict=True))
    same = {phase for phase in metered if wall[phase] == held[phase]}
    return [unit * units[phase] if phase in same else wall[phase] for phase in shown]


def _rows(
    stretches: list[Stretch], held: dict[str, int], whole_ms: int
) -> tuple[list[PhaseRow], str, str]:
    """The phases that the job has come to, as the table shows them, and the two sums below."""
    wall = dict.fromkeys(ORDER, 0)
    for stretch in stretches:
        wall[stretch.phase] += stretch.ms
    metered = [phase for phase in ORDER if held.get(phase)]
    shown = [phase for phase in ORDER if wall[phase] >= TENTH or phase in metered]
    *texts, sum_held = hms_column([held[phase] for phase in metered])
    of_held = dict(zip(metered, texts, strict=True))
    *of_wall, sum_wall = hms_column(_alike(wall, held, metered, shown), whole_ms)
    rows = [
        PhaseRow(phase, wall[phase], held.get(phase), text, of_held.get(phase, ""))
        for phase, text in zip(shown, of_wall, strict=True)
    ]
    return rows, sum_wall, sum_held

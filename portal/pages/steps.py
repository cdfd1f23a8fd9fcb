"""The steps of a job's life as the page lists them. Pure: rows in, steps out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.models import Job
from jobs.states import JobState, Outcome, Reason
from nodes.models import Lease
from nodes.states import HOLDING, LeaseState
from portal.base.clock import milliseconds
from portal.pages.timeline import spans

TITLES = {
    "submit": "Submit",
    "staging": "Staging",
    "waiting": "Waiting",
    "rent": "Rent",
    "run": "Run",
    "output": "Output",
    "release": "Release",
}
METERED = ("rent", "run", "output", "release")
OUTPUT_REASONS = {Reason.OUTPUT_MISSING, Reason.OUTPUT_LIMIT, Reason.OUTPUT_REFUSED}
STEP_OF_PHASE = {"launch": "rent", "run": "run", "output": "output", "release": "release"}
STEP_OF_LEASE = {
    LeaseState.GRANTED: "rent",
    LeaseState.ALLOCATED: "rent",
    LeaseState.RUNNING: "run",
    LeaseState.RETURNING: "output",
    LeaseState.RELEASING: "release",
}


type Times = dict[str, tuple[datetime | None, datetime | None]]


@dataclass(frozen=True)
class Step:
    """`mark` is done, current, failed or todo; `ms` is how long it took, or takes so far.

    `note` says how many pieces have come to a step that the job as a whole has not, or what
    became of it instead.
    """

    key: str
    mark: str
    at: datetime | None = None
    ms: int | None = None
    sentence: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        return TITLES[self.key]

    @property
    def metered(self) -> bool:
        return self.key in METERED


def _first(leases: Iterable[Lease], column: str) -> datetime | None:
    return min((v for lease in leases if (v := getattr(lease, column))), default=None)


def _last(leases: Iterable[Lease], *columns: str) -> datetime | None:
    return max((v for lease in leases for c in columns if (v := getattr(lease, c))), default=None)


def _times(job: Job, leases: Sequence[Lease]) -> Times:
    """When each step began and ended: the first piece to begin it, the last to end it."""
    allocated = [lease for lease in leases if lease.allocated_at]
    first_allocated = _first(allocated, "allocated_at")
    first_running = _first(allocated, "running_at")
    returned = [lease for lease in allocated if lease.returning_at]
    waited = first_allocated or (job.ended_at if job.queued_at else None)
    return {
        "submit": (job.submitted_at, job.submitted_at),
        "staging": (job.submitted_at, job.queued_at),
        "waiting": (job.queued_at, waited),
        "rent": (first_allocated, first_running),
        "run": (first_running, _last(returned, "returning_at")),
        "output": (
            _first(returned, "returning_at"),
            _last(returned, "output_verified_at", "releasing_at"),
        ),
        "release": (
            _first(allocated, "releasing_at"),
            _last([lease for lease in allocated if lease.releasing_at], "released_at"),
        ),
    }


def _lengths(leases: Sequence[Lease], at: datetime) -> dict[str, int]:
    """Milliseconds in which at least one piece was in each metered step.

    Pieces run side by side, and a finish step begins when the others have ended: from the first
    beginning to the last end is more than any step took.
    """
    found: dict[str, int] = {}
    last: dict[str, datetime] = {}
    rows = (row for lease in leases for row in spans(lease, at))
    for phase, begun, done in sorted(rows, key=lambda row: row[1]):
        if (step := STEP_OF_PHASE.get(phase)) is None:
            continue
        begun = max(begun, last.get(step, begun))
        last[step] = max(done, begun)
        found[step] = found.get(step, 0) + milliseconds(last[step] - begun)
    return found


def current_step(job: Job, leases: Sequence[Lease], delivering: bool) -> str:
    """The step that a job which has not ended is in."""
    if job.state in (JobState.DRAFT, JobState.STAGING):
        return "submit" if job.state == JobState.DRAFT else "staging"
    at_work = {STEP_OF_LEASE[LeaseState(x.state)] for x in leases if x.state in HOLDING}
    for step in ("run", "output", "rent", "release"):
        if step in at_work:
            return step
    return "output" if delivering else "waiting"


def failing_step(job: Job, leases: Sequence[Lease]) -> str:
    """The step in which a job that did not succeed went wrong."""
    if job.queued_at is None:
        return "staging"
    if not any(lease.allocated_at for lease in leases):
        return "waiting"
    if job.reason in OUTPUT_REASONS:
        return "output"
    return "run" if any(lease.running_at for lease in leases) else "rent"


def steps(
    job: Job,
    leases: Sequence[Lease],
    at: datetime,
    *,
    pieces: int,
    delivering: bool,
    sentence: str,
) -> list[Step]:
    """All seven steps in order. `sentence` goes with the failing or the present one."""
    if job.state == JobState.ENDED:
        failing = "" if job.outcome == Outcome.SUCCEEDED else failing_step(job, leases)
        found = _ended_steps(job, leases, failing, sentence)
        return [_without_output(step, job, leases) for step in found]
    present = current_step(job, leases, delivering)
    return _live_steps(job, leases, at, pieces, present, sentence)


def _ended_steps(job: Job, leases: Sequence[Lease], failing: str, sentence: str) -> list[Step]:
    found = []
    lengths = _lengths(leases, job.ended_at) if job.ended_at else {}
    for key, (begun, done) in _times(job, leases).items():
        ms = milliseconds((done or job.ended_at or begun) - begun) if begun else None
        ms = lengths.get(key, ms)
        if key == failing:
            found.append(Step(key, "failed", begun, ms, sentence))
        elif begun is None or done is None:
            found.append(Step(key, "todo"))
        else:
            found.append(Step(key, "done", begun, ms if key != "submit" else None))
    return found


def _without_output(step: Step, job: Job, leases: Sequence[Lease]) -> Step:
    """A cancelled job whose output was discarded did not do that step."""
    came = any(lease.output_verified_at for lease in leases)
    if step.key == "output" and job.outcome == Outcome.CANCELLED and not came:
        return Step("output", "todo", note="discarded" if step.mark == "done" else "")
    return step


def _live_steps(
    job: Job, leases: Sequence[Lease], at: datetime, pieces: int, present: str, sentence: str
) -> list[Step]:
    found = []
    passed = True
    lengths = _lengths(leases, at)
    for key, (begun, done) in _times(job, leases).items():
        if key == present:
            passed = False
            ms = milliseconds(at - begun) if begun else None
            found.append(Step(key, "current", begun, ms, sentence))
        elif passed:
            ms = milliseconds((done or at) - begun) if begun and key != "submit" else None
            found.append(Step(key, "done", begun, lengths.get(key, ms)))
        else:
            found.append(Step(key, "todo", note=_so_far(key, leases, pieces)))
    return found


def _so_far(key: str, leases: Sequence[Lease], pieces: int) -> str:
    """How many pieces have reached a step that the job as a whole has not."""
    column = {"run": "running_at", "output": "returning_at", "release": "releasing_at"}.get(key)
    if column is None or pieces < 2:
        return ""
    reached = {lease.shard_id for lease in leases if getattr(lease, column)}
    return f"{len(reached):,} of {pieces:,} pieces" if reached else ""

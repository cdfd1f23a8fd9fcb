"""The steps of a job's life as the page lists them. Pure: rows in, steps out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from jobs.models import Job
from jobs.states import JobState, Outcome, Reason
from nodes.states import HOLDING, LeaseState
from portal.base.clock import milliseconds

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


@dataclass(frozen=True)
class Marks:
    """When the attempts that held compute came to a step, by the column of that time.

    `first` and `last` are over all of them (`last` of the end of a step counts those that began
    it), `reached` counts pieces, `states` are those of the attempts that have not ended.
    """

    first: Mapping[str, datetime | None]
    last: Mapping[str, datetime | None]
    reached: Mapping[str, int]
    states: frozenset[LeaseState]


def _times(job: Job, marks: Marks) -> Times:
    """When each step began and ended: the first piece to begin it, the last to end it."""
    first, last = marks.first, marks.last
    waited = first["allocated_at"] or (job.ended_at if job.queued_at else None)
    ends = [at for at in (last["output_verified_at"], last["releasing_at"]) if at]
    return {
        "submit": (job.submitted_at, job.submitted_at),
        "staging": (job.submitted_at, job.queued_at),
        "waiting": (job.queued_at, waited),
        "rent": (first["allocated_at"], first["running_at"]),
        "run": (first["running_at"], last["returning_at"]),
        "output": (first["returning_at"], max(ends, default=None)),
        "release": (first["releasing_at"], last["released_at"]),
    }


def current_step(job: Job, marks: Marks, delivering: bool) -> str:
    """The step that a job which has not ended is in."""
    if job.state in (JobState.DRAFT, JobState.STAGING):
        return "submit" if job.state == JobState.DRAFT else "staging"
    at_work = {STEP_OF_LEASE[state] for state in marks.states if state in HOLDING}
    for step in ("run", "output", "rent", "release"):
        if step in at_work:
            return step
    return "output" if delivering else "waiting"


def failing_step(job: Job, marks: Marks) -> str:
    """The step in which a job that did not succeed went wrong."""
    if job.queued_at is None:
        return "staging"
    if not marks.first["allocated_at"]:
        return "waiting"
    if job.reason in OUTPUT_REASONS:
        return "output"
    return "run" if marks.first["running_at"] else "rent"


def steps(
    job: Job,
    marks: Marks,
    at: datetime,
    *,
    lengths: Mapping[str, int],
    pieces: int,
    delivering: bool,
    sentence: str,
    released: bool = False,
) -> list[Step]:
    """All seven steps in order. `sentence` goes with the failing or the present one.

    `released`: no piece holds compute or waits for some; output may still be on its way.

    `lengths`: ms in which at least one piece was in a metered phase. Pieces run side by side, and
    a finish step begins when the others have ended: from the first beginning to the last end is
    more than any step took.
    """
    took = {step: lengths[phase] for phase, step in STEP_OF_PHASE.items() if lengths.get(phase)}
    if job.state == JobState.ENDED:
        failing = "" if job.outcome == Outcome.SUCCEEDED else failing_step(job, marks)
        found = _ended_steps(job, marks, took, failing, sentence)
        return [_without_output(step, job, marks) for step in found]
    present = current_step(job, marks, delivering)
    found = _live_steps(job, marks, at, took, pieces, present, sentence)
    return [_sealed(step, job, marks, took) for step in found] if released else found


def _ended_steps(
    job: Job, marks: Marks, took: Mapping[str, int], failing: str, sentence: str
) -> list[Step]:
    found = []
    for key, (begun, done) in _times(job, marks).items():
        ms = milliseconds((done or job.ended_at or begun) - begun) if begun else None
        ms = took.get(key, ms)
        if key == failing:
            found.append(Step(key, "failed", begun, ms, sentence))
        elif begun is None or done is None:
            found.append(Step(key, "todo"))
        else:
            found.append(Step(key, "done", begun, ms if key != "submit" else None))
    return found


def _without_output(step: Step, job: Job, marks: Marks) -> Step:
    """A cancelled job whose output was discarded did not do that step."""
    came = marks.last["output_verified_at"] is not None
    if step.key == "output" and job.outcome == Outcome.CANCELLED and not came:
        return Step("output", "todo", note="discarded" if step.mark == "done" else "")
    return step


def _live_steps(
    job: Job,
    marks: Marks,
    at: datetime,
    took: Mapping[str, int],
    pieces: int,
    present: str,
    sentence: str,
) -> list[Step]:
    found = []
    passed = True
    for key, (begun, done) in _times(job, marks).items():
        if key == present:
            passed = False
            ms = milliseconds(at - begun) if begun else None
            found.append(Step(key, "current", begun, ms, sentence))
        elif passed:
            ms = milliseconds((done or at) - begun) if begun and key != "submit" else None
            found.append(Step(key, "done", begun, took.get(key, ms)))
        else:
            found.append(Step(key, "todo", note=_so_far(key, marks, pieces)))
    return found


def _sealed(step: Step, job: Job, marks: Marks, took: Mapping[str, int]) -> Step:
    """Output that waits on its node holds nothing: its metered time and the release are over."""
    begun, done = _times(job, marks)[step.key]
    if step.key == "output" and step.mark == "current":
        return replace(step, ms=took.get("output", 0))
    if step.key == "release" and begun and done:
        return Step("release", "done", begun, took.get("release", milliseconds(done - begun)))
    return step


def _so_far(key: str, marks: Marks, pieces: int) -> str:
    """How many pieces have reached a step that the job as a whole has not."""
    column = {"run": "running_at", "output": "returning_at", "release": "releasing_at"}.get(key)
    if column is None or pieces < 2:
        return ""
    reached = marks.reached[column]
    return f"{reached:,} of {pieces:,} pieces" if reached else ""

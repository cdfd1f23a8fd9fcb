"""The list of jobs: which there are to show, and what a row says of each."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Max, Q

from jobs.awaited import awaited
from jobs.endings import ending
from jobs.held import held_ms
from jobs.models import Job, JobQuerySet, Shard
from jobs.states import JobState, Outcome, ShardState
from jobs.waits import wait_sentences
from portal.base.clock import db_now
from portal.teams.models import Team


@dataclass(frozen=True)
class Filter:
    """One of the lists: its label, its states, and what stands there when it is empty."""

    label: str
    states: frozenset[str]
    empty: str

    def of(self, team: Team) -> JobQuerySet:
        return Job.objects.of_team(team).filter(state__in=self.states)


S = JobState
FILTERS = {
    "all": Filter("All", frozenset(S.values), "Your team has no jobs yet."),
    "active": Filter(
        "Under way", frozenset({S.STAGING, S.QUEUED, S.ACTIVE}), "No job is under way."
    ),
    "ended": Filter("Ended", frozenset({S.ENDED}), "No job has ended yet."),
    "drafts": Filter("Drafts", frozenset({S.DRAFT}), "There are no drafts."),
}

_WAITING = {
    S.DRAFT: "Not submitted.",
    S.STAGING: "Waits for its data to be in the store. Not metered.",
    S.QUEUED: "Waits for compute. Not metered.",
}


@dataclass(frozen=True)
class Pieces:
    """How many there are and have ended; exit code and detail mean something of a single one."""

    total: int = 0
    ended: int = 0
    exit_code: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Row:
    job: Job
    sentence: str
    pieces: str
    held_ms: int | None


def listed(jobs: Iterable[Job]) -> list[Row]:
    """The rows, in a number of queries that does not grow with them."""
    rows = list(jobs)
    held, pieces = held_ms(rows), _pieces(rows)
    waits = wait_sentences([job for job in rows if job.state == S.QUEUED])
    data = awaited([job for job in rows if job.state == S.STAGING], db_now())
    waits |= {pk: f"{sentence} Not metered." for pk, sentence in data.items()}
    found = []
    for job in rows:
        mine = pieces.get(job.pk, Pieces())
        sentence = sentence_of(job, mine, waits.get(job.pk, ""))
        found.append(Row(job, sentence, pieces_of(job, mine), held.get(job.pk)))
    return found


def _pieces(jobs: list[Job]) -> dict[int, Pieces]:
    """By the job's primary key."""
    found = Shard.objects.filter(job__in=jobs).order_by().values_list("job")
    rows = found.annotate(
        total=Count("id"),
        ended=Count("id", filter=Q(state=ShardState.ENDED)),
        code=Max("exit_code"),
        said=Max("detail"),
    )
    return {pk: Pieces(*values) for pk, *values in rows}


def sentence_of(job: Job, pieces: Pieces, wait: str = "") -> str:
    """One sentence on where the job stands, why it waits, or how it ended."""
    if job.state == S.ENDED:
        if job.outcome == Outcome.SUCCEEDED:
            return "Its output is verified in the store."
        if pieces.total == 1:
            return ending(job.reason, exit_code=pieces.exit_code, detail=pieces.detail)
        return ending(job.reason)
    if job.cancel_asked_at:
        return "Cancel was asked for; waits for the node's word."
    if job.state == S.ACTIVE:
        who = "It" if job.shard_count == 1 else "At least one piece"
        return f"{who} holds compute or returns its output."
    return wait or _WAITING[S(job.state)]


def pieces_of(job: Job, pieces: Pieces) -> str:
    if job.state == S.DRAFT:
        return ""
    if not pieces.total:
        return f"{job.shard_count:,}"
    total = f"{pieces.total:,}"
    return total if job.state == S.ENDED else f"{pieces.ended:,} of {total} ended"

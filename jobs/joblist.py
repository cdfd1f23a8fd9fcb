"""The list of jobs: which there are to show, and what a row says of each."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q

from jobs.held import held_ms
from jobs.models import Job, JobQuerySet, Shard
from jobs.states import JobState, Outcome, Reason, ShardState
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
class Row:
    job: Job
    sentence: str
    pieces: str
    held_ms: int | None


def listed(jobs: Iterable[Job]) -> list[Row]:
    rows = list(jobs)
    held, counts = held_ms(rows), _piece_counts(rows)
    return [
        Row(job, sentence_of(job), pieces_of(job, *counts.get(job.pk, (0, 0))), held.get(job.pk))
        for job in rows
    ]


def _piece_counts(jobs: list[Job]) -> dict[int, tuple[int, int]]:
    """Pieces, and those of them that have ended, by the job's primary key."""
    ended = Count("id", filter=Q(state=ShardState.ENDED))
    found = Shard.objects.filter(job__in=jobs).order_by().values("job")
    return {
        row["job"]: (row["pieces"], row["ended"])
        for row in found.annotate(pieces=Count("id"), ended=ended)
    }


def sentence_of(job: Job) -> str:
    """One sentence on where the job stands or how it ended."""
    if job.state == S.ENDED:
        if job.outcome == Outcome.SUCCEEDED:
            return "Its output is verified in the store."
        return Reason(job.reason).label if job.reason else ""
    if job.cancel_asked_at:
        return "Cancel was asked for; waits for the node's word."
    if job.state == S.ACTIVE:
        who = "It" if job.shard_count == 1 else "At least one piece"
        return f"{who} holds compute or returns its output."
    return _WAITING[S(job.state)]


def pieces_of(job: Job, total: int, ended: int) -> str:
    if job.state == S.DRAFT:
        return ""
    if not total:
        return f"{job.shard_count:,}"
    return f"{total:,}" if job.state == S.ENDED else f"{ended:,} of {total:,} ended"

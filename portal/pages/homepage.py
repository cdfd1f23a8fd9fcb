"""The home page: what is running, waiting, staging, finished lately, and one next action."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, QuerySet

from jobs.awaited import awaited
from jobs.models import Job
from jobs.states import JobState, Outcome
from nodes.meter import held_until
from nodes.models import Lease
from nodes.states import METERED
from nodes.waits import explained
from portal.base.clock import milliseconds
from portal.teams.models import Team
from staging.estimates.shown import Shown, all_shown
from staging.estimates.subjects import of_dataset
from staging.listing import Totals, totals_of
from staging.models import Dataset
from staging.states import DatasetState

FEW = 6
ON_THE_WAY = (DatasetState.DECLARED, DatasetState.TRANSFERRING, DatasetState.VERIFYING)


@dataclass(frozen=True)
class NextAction:
    """What to do next: a sentence, and a button that leads to the page named `url`."""

    sentence: str
    label: str
    url: str


def _counted(jobs: QuerySet[Job]) -> QuerySet[Job]:
    return jobs.annotate(
        pieces=Count("shards"),
        pieces_done=Count("shards", filter=Q(shards__state="ended")),
        pieces_bad=Count(
            "shards", filter=Q(shards__state="ended") & ~Q(shards__outcome=Outcome.SUCCEEDED)
        ),
    )


def page_context(team: Team, at: datetime) -> dict:
    """A fixed number of queries, whatever the team has."""
    mine = Job.objects.of_team(team)
    running = list(_counted(mine.filter(state=JobState.ACTIVE))[:FEW])
    in_line = mine.filter(state__in=[JobState.QUEUED, JobState.STAGING])
    waiting = list(explained(_counted(in_line))[:FEW])
    _add_awaited(waiting, at)
    _add_held(running, at)
    datasets = Dataset.objects.of_team(team)
    tally = {
        row["state"]: row["n"] for row in mine.order_by().values("state").annotate(n=Count("pk"))
    }
    on_the_way = datasets.filter(state__in=ON_THE_WAY)
    has_data = datasets.inputs().exclude(state=DatasetState.PURGED).exists()
    return {
        "at": at,
        "running": running,
        "waiting": waiting,
        "running_total": tally.get(JobState.ACTIVE, 0),
        "waiting_total": tally.get(JobState.QUEUED, 0) + tally.get(JobState.STAGING, 0),
        "drafts": list(mine.filter(state=JobState.DRAFT)[:FEW]),
        "moving": _moving(list(on_the_way.exclude(kind="output")[:FEW]), at),
        "finished": list(mine.ended().order_by("-ended_at", "-id").select_related("output")[:FEW]),
        "has_jobs": bool(tally),
        "has_data": has_data,
        "next": next_action(tally, has_data),
    }


def _moving(datasets: list[Dataset], at: datetime) -> list[tuple[Dataset, Totals, Shown | None]]:
    """Each with its counts, and how it gets on where that is known."""
    going = all_shown([of_dataset(dataset.code) for dataset in datasets], at)
    return [(row, totals_of(row), going.get(of_dataset(row.code))) for row in datasets]


def next_action(tally: dict[str, int], has_data: bool) -> NextAction:
    if not has_data and not tally:
        return NextAction(
            "A job reads data that is already here. Staging is never metered.",
            "Stage data",
            "dataset_new",
        )
    if tally.get(JobState.DRAFT) and len(tally) == 1:
        return NextAction("A draft is waiting to be submitted.", "See the drafts", "jobs")
    return NextAction(
        "Describe the work, the data it reads, the hours it needs and what comes back.",
        "Describe a job",
        "job_new",
    )


def _add_awaited(jobs: list[Job], at: datetime) -> None:
    """Put `awaited` on each job that waits for its data: which, how far, and when."""
    found = awaited([job for job in jobs if job.state == JobState.STAGING], at)
    for job in jobs:
        job.awaited = found.get(job.pk, "")  # type: ignore[attr-defined]


def _add_held(jobs: list[Job], at: datetime) -> None:
    """Put `held_ms` and `gpus_now` on each running job."""
    columns = ("shard__job_id", "state", "gpu_count", "allocated_at", "released_at")
    leases = Lease.objects.filter(shard__job__in=jobs).exclude(allocated_at=None)
    leases = leases.select_related("shard").only(*columns, "last_report_at")
    for job in jobs:
        job.held_ms = job.gpus_now = 0  # type: ignore[attr-defined]
    by_id = {job.pk: job for job in jobs}
    for lease in leases:
        job = by_id[lease.shard.job_id]
        assert lease.allocated_at is not None  # noqa: S101  excluded above
        job.held_ms += milliseconds(held_until(lease, at) - lease.allocated_at)  # type: ignore[attr-defined]
        if lease.state in METERED:
            job.gpus_now += lease.gpu_count  # type: ignore[attr-defined]

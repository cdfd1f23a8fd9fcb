"""Why jobs wait: the scheduler's newest sentence on a waiting piece, and its prediction."""

from django.db.models import OuterRef, QuerySet, Subquery

from jobs.models import Job
from jobs.states import ShardState
from nodes.models import SchedulerReason


def explained(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """The jobs with `wait`, the sentence, and `predicted`, the start; both None where unknown."""
    newest = SchedulerReason.objects.filter(
        shard__job=OuterRef("pk"), shard__state=ShardState.QUEUED
    ).order_by("-at", "-id")
    return jobs.annotate(
        wait=Subquery(newest.values("sentence")[:1]),
        predicted=Subquery(newest.values("predicted_start")[:1]),
    )


def wait_sentences(jobs: list[Job]) -> dict[int, str]:
    """The sentences by the job's primary key, in one query."""
    found = explained(Job.objects.filter(pk__in=[job.pk for job in jobs])).order_by()
    return {job.pk: job.wait for job in found.only("pk") if job.wait}  # type: ignore[attr-defined]

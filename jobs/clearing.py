"""Taking the output and deleting the rest: what an ended job still keeps, and its receipt."""

from dataclasses import dataclass

from django.db import transaction

from jobs.logs import log_size, remove_logs
from jobs.models import Job, JobEvent
from jobs.states import JobState
from portal.base.clock import as_iso, db_now
from portal.base.errors import Conflict, NotFound
from staging import services as staging
from staging.models import Dataset
from staging.states import DatasetReason, DatasetState

VERB = "clear"
GONE = frozenset({DatasetState.EXPIRING, DatasetState.PURGED})


@dataclass(frozen=True)
class Leftovers:
    """What clearing a job deletes, and what it leaves because another job needs it."""

    deleted: list[Dataset]
    needed: list[Dataset]
    logs: list[str]
    log_bytes: int

    @property
    def nothing(self) -> bool:
        return not self.deleted and not self.logs


def leftovers(job: Job) -> Leftovers:
    """The inputs, code and logs of an ended job that are still there. The output is not among
    them."""
    rows = [i.dataset for i in job.inputs.select_related("dataset")]
    if job.code_dataset is not None:
        rows.append(job.code_dataset)
    there = [row for row in dict.fromkeys(rows) if row.state not in GONE]
    sizes = {
        code: size
        for code in job.shards.values_list("leases__code", flat=True)
        if code and (size := log_size(code))
    }
    return Leftovers(
        deleted=[row for row in there if not row.holds],
        needed=[row for row in there if row.holds],
        logs=list(sizes),
        log_bytes=sum(sizes.values()),
    )


def clear(*, job: Job, actor: str) -> None:
    """Delete the inputs, code and logs of an ended job; the output stays. Raises Conflict."""
    with transaction.atomic():
        job.refresh_from_db()
        if job.state != JobState.ENDED:
            raise Conflict("This job has not ended; what it needs stays until then.")
        at, rest = db_now(), leftovers(job)
        for dataset in sorted(rest.deleted, key=lambda row: row.pk):
            staging.delete_dataset(
                dataset=dataset, actor=actor, reason=DatasetReason.DELETED_BY_PERSON, at=at
            )
        detail = {
            "datasets": [dataset.code for dataset in rest.deleted],
            "needed": [dataset.code for dataset in rest.needed],
            "logs": len(rest.logs),
            "log_bytes": rest.log_bytes,
        }
        job.note(VERB, at=at, actor=actor, detail=detail)
        transaction.on_commit(lambda: remove_logs(rest.logs))


def receipt(job: Job) -> dict:
    """What was deleted of this job, by whom, and when the bytes were gone. Raises NotFound."""
    acts = list(JobEvent.objects.filter(subject=job, verb=VERB))
    if not acts:
        raise NotFound("Nothing of this job has been cleared.")
    return {"job": job.code, "name": job.name, "acts": [_act(job, act) for act in acts]}


def _act(job: Job, act: JobEvent) -> dict:
    named = Dataset.objects.filter(team=job.team, code__in=act.detail["datasets"])
    return {
        "at": as_iso(act.at),
        "by": act.actor,
        "logs": act.detail["logs"],
        "log_bytes": act.detail["log_bytes"],
        "kept_for_other_jobs": act.detail["needed"],
        "datasets": [
            {
                "dataset": row.code,
                "name": row.name,
                "files": row.file_count,
                "bytes": row.byte_count,
                "manifest_digest": row.manifest_digest,
                "state": row.state,
                "bytes_gone_at": as_iso(row.purged_at),
            }
            for row in named.order_by("id")
        ],
    }

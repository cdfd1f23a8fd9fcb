"""What nodes adds to jobs and staging, which know nothing of it: capacity, records, rights."""

from datetime import datetime

from jobs import capacity as job_capacity
from jobs import held as job_held
from jobs import waits as job_waits
from jobs.models import Job, Shard
from jobs.signals import cancel_asked, job_ended, shard_ended, shard_queued
from nodes import capacity, doubt, hauls, held, leases, records, tasks, waits
from nodes.models import Lease
from nodes.states import BEFORE_GRANT, TERMINAL, LeaseReason, LeaseState
from portal.base.wake import wake
from staging.estimates import notes
from staging.uploads import register_holder


def connect() -> None:
    job_capacity.register(capacity.problem)
    job_held.register(held.held_by_job)
    job_waits.register(waits.wait_sentences)
    notes.register(hauls.look)
    register_holder("lease", lease_may_upload)
    job_ended.connect(_job_ended, dispatch_uid="nodes.job_ended")
    shard_ended.connect(_shard_ended, dispatch_uid="nodes.shard_ended")
    shard_queued.connect(_shard_queued, dispatch_uid="nodes.shard_queued")
    cancel_asked.connect(_cancel_asked, dispatch_uid="nodes.cancel_asked")


def lease_may_upload(code: str) -> bool:
    """A lease returns output until it is verified; a void, lost or fenced one never.

    One in doubt may: its bytes lie apart, and are dropped when another attempt begins.
    """
    lease = Lease.objects.filter(code=code).first()
    if lease is None or lease.output_verified_at is not None:
        return False
    if lease.state == LeaseState.RELEASED and not lease.in_doubt:
        return Lease.objects.delivering().filter(pk=lease.pk).exists()
    return lease.in_doubt or lease.state not in TERMINAL


def _job_ended(sender: type[Job], job: Job, at: datetime, **kwargs: object) -> None:
    records.write_record(job=job, at=at)


def _shard_ended(sender: type[Shard], shard: Shard, at: datetime, **kwargs: object) -> None:
    doubt.shard_ended(shard=shard, at=at)


def _shard_queued(sender: type[Job], job: Job, **kwargs: object) -> None:
    wake(tasks.schedule)


def _cancel_asked(sender: type[Job], job: Job, at: datetime, **kwargs: object) -> None:
    """Leases without compute end with the shards that were waiting.

    Each is read for update: one that becomes ready just now is read as it is then.
    """
    waiting = Lease.objects.select_for_update(of=("self",)).select_related("shard__job", "node")
    mine = waiting.filter(shard__job=job, shard__state="ended", state__in=BEFORE_GRANT)
    for lease in mine.order_by("node_id", "pk"):
        leases.void(lease=lease, reason=LeaseReason.CANCELLED, at=at)

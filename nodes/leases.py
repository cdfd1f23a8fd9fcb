"""The verbs of a lease before and around its hold: place, clear, grant, void, lose."""

from collections.abc import Sequence
from datetime import datetime

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Max

from jobs import services as jobs
from jobs.models import Shard
from jobs.states import ShardKind, ShardState
from nodes import doubt, fleet
from nodes.ledger import write_ledger
from nodes.models import Gpu, Incident, Lease, LeaseGpu, Node, using
from nodes.release import give_back
from nodes.results import drop_output, end_by_work, has_result
from nodes.states import BEFORE_GRANT, HOLDING, LeaseReason, LeaseState
from portal.base.codes import new_code
from portal.base.errors import Conflict, Stale
from portal.base.moves import move

log = structlog.get_logger(__name__)
RESTORED = (
    "This portal was restored from a backup that was made while it ran: it may have ended and been "
    "delivered afterwards. What it returned is not in the backup, so its piece is tried again."
)


def place(*, shard: Shard, node: Node, disk_bytes: int, at: datetime) -> Lease:
    """A new attempt that may fetch: disk is reserved, no GPU. Raises Stale or Conflict."""
    with transaction.atomic():
        # Written first: an attempt of it that comes back to life is seen here, or sees this one.
        waits = Shard.objects.filter(pk=shard.pk, state=ShardState.QUEUED)
        if not waits.update(queued_at=F("queued_at")):
            raise Stale("The piece no longer waits.")
        able = Node.objects.taking_work().filter(
            pk=node.pk,
            version=node.version,
            reserved_disk_bytes__lte=node.disk_bytes - disk_bytes,
        )
        reserved = able.update(
            reserved_disk_bytes=F("reserved_disk_bytes") + disk_bytes, version=F("version") + 1
        )
        if not reserved:
            raise Stale("The node has changed since the pass was planned.")
        lease = new_lease(
            shard=shard,
            node=node,
            epoch=fleet.installation().epoch,
            # Not their count: one that was adopted keeps the number that it had.
            number=(shard.leases.aggregate(Max("number"))["number__max"] or 0) + 1,
            disk_bytes=disk_bytes,
            at=at,
        )
        lease.note("place", at=at, actor="scheduler", frm="", detail={"node": node.name})
        return lease


def new_lease(
    *,
    shard: Shard,
    node: Node,
    epoch: int,
    number: int,
    disk_bytes: int,
    at: datetime,
    code: str = "",
) -> Lease:
    """The row of an attempt that is placed. Raises Conflict where the shard has a live one."""
    job = shard.job
    try:
        with transaction.atomic():
            return Lease.objects.create(
                code=code or new_code(),
                shard=shard,
                node=node,
                epoch=epoch,
                number=number,
                gpu_count=job.finish_gpus if shard.kind == ShardKind.FINISH else job.gpus,
                cpus=job.cpus,
                memory_bytes=job.memory_bytes,
                disk_bytes=disk_bytes,
                time_limit=job.time_limit,
                output_window=settings.OUTPUT_WINDOW,
                placed_at=at,
            )
    except IntegrityError as error:
        raise Conflict("This piece has a live lease already.") from error


def clear(*, lease: Lease, gpus: Sequence[str] | None) -> None:
    """Name the idle GPUs that the answer to its ready report may grant; None withdraws them."""
    Lease.objects.filter(pk=lease.pk, state__in=BEFORE_GRANT).update(
        cleared_gpus=None if gpus is None else list(gpus)
    )


def grant(*, lease: Lease, at: datetime) -> bool:
    """ready -> granted with exactly the cleared GPUs. False where they are no longer to be had."""
    if lease.cleared_gpus is None or lease.state != LeaseState.READY:
        return False
    try:
        with transaction.atomic():
            shard = Shard.objects.select_related("job").get(pk=lease.shard_id)
            _may_start(shard)
            _take_capacity(lease)
            _take_gpus(lease, at)
            move(
                lease,
                LeaseState.GRANTED,
                "grant",
                at=at,
                actor="scheduler",
                changes={"granted_at": at},
            )
            move(
                shard,
                ShardState.ACTIVE,
                "activate",
                at=at,
                actor="scheduler",
                changes={"attempts": shard.attempts + 1},
            )
            doubt.drop_outputs(shard=shard)
            jobs.settle_job(job=shard.job, at=at)
    except (Stale, IntegrityError) as error:
        log.info("grant_refused", lease=lease.code, why=str(error))
        lease.refresh_from_db()
        clear(lease=lease, gpus=None)
        return False
    return True


def _may_start(shard: Shard) -> None:
    """Raise Stale unless it still waits and its job may hold one lease more."""
    job = shard.job
    jobs.claim(job=job)
    waits = Shard.objects.filter(pk=shard.pk, state=ShardState.QUEUED)
    if not waits.update(queued_at=F("queued_at")) or job.cancel_asked_at is not None:
        raise Stale("The piece no longer waits.")
    holding = Lease.objects.filter(shard__job=job, state__in=HOLDING).count()
    if job.parallel is not None and holding >= job.parallel:
        raise Stale("The job holds as much at once as it may.")


def _take_capacity(lease: Lease) -> None:
    able = Node.objects.taking_work().filter(
        pk=lease.node_id,
        cpus__gte=F("reserved_cpus") + lease.cpus,
        memory_bytes__gte=F("reserved_memory_bytes") + lease.memory_bytes,
    )
    taken = able.update(
        reserved_cpus=F("reserved_cpus") + lease.cpus,
        reserved_memory_bytes=F("reserved_memory_bytes") + lease.memory_bytes,
        version=F("version") + 1,
    )
    if not taken:
        raise Stale("The node has too few CPUs or too little memory free, or takes nothing new.")


def _take_gpus(lease: Lease, at: datetime) -> None:
    named = lease.cleared_gpus or []
    gpus = list(
        Gpu.objects.filter(
            node=lease.node_id, uuid__in=named, usable=True, present=True, quarantined=False
        )
    )
    if len(gpus) != lease.gpu_count:
        raise Stale("A GPU that was named is no longer usable.")
    incidents = list(Incident.objects.blocking().filter(node=lease.node_id))
    if any(using(incidents, gpu.uuid) for gpu in gpus):
        raise Stale("A GPU that was named is in use by an attempt that is an incident.")
    for gpu in gpus:
        LeaseGpu.objects.create(lease=lease, gpu=gpu, since=at)


def void(*, lease: Lease, reason: str, at: datetime, detail: str = "") -> None:
    """Withdraw a lease that never held allocated compute. It costs nothing."""
    with transaction.atomic():
        move(
            lease,
            LeaseState.VOID,
            "void",
            at=at,
            actor="system",
            reason=reason,
            changes={"reason": reason, "detail": detail[:500], "ended_at": at},
        )
        give_back(lease)


def declare_forgotten(*, lease: Lease, at: datetime) -> None:
    """The node was given compute for this lease and says that it has no such lease.

    A restored portal reads its own old rows here: the attempt may have ended and been delivered
    after the backup, and both have forgotten it since.
    """
    older = lease.epoch < fleet.installation().epoch
    lose(lease=lease, at=at, reason=LeaseReason.NOT_THERE, detail=RESTORED if older else "")


def lose(*, lease: Lease, at: datetime, reason: str = LeaseReason.SILENT, detail: str = "") -> None:
    """The shard is tried elsewhere. GPUs stay taken until the node proves them free.

    After a silence the lease is in doubt: its node may come back further on than the next attempt.
    A lease whose work had ended and whose output is verified is its shard's result instead.
    """
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)
        lease.refresh_from_db()
        done = has_result(lease)
        in_doubt = reason == LeaseReason.SILENT and not done and lease.node.revoked_at is None
        move(
            lease,
            LeaseState.LOST,
            "lose",
            at=at,
            actor="system",
            reason=reason,
            changes={
                "reason": lease.reason if done else reason,
                "detail": lease.detail if done else detail,
                "ended_at": at,
                "in_doubt": in_doubt,
            },
        )
        give_back(lease)
        if done:
            write_ledger(lease=lease, at=at)
            end_by_work(lease=lease, problem=lease.evidence, at=at)
            return
        if not in_doubt:
            drop_output(lease)
            write_ledger(lease=lease, at=at)
        jobs.requeue_shard(shard=lease.shard, reason=reason, at=at, fault=True)


def fence(*, lease: Lease, at: datetime) -> None:
    """Another attempt of its shard is kept. Its GPUs stay taken until its node lists it no more."""
    with transaction.atomic():
        if lease.state in BEFORE_GRANT or lease.state == LeaseState.GRANTED:
            void(lease=lease, reason=LeaseReason.FENCED, at=at)
            drop_output(lease)  # its node may have begun it without this portal's knowing
            return
        move(
            lease,
            LeaseState.LOST,
            "fence",
            at=at,
            actor="system",
            reason=LeaseReason.FENCED,
            changes={"reason": LeaseReason.FENCED, "ended_at": at},
        )
        give_back(lease)
        drop_output(lease)
        write_ledger(lease=lease, at=at)

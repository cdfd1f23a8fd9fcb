"""One scheduling pass: read the rows into views, ask `plan`, apply its answer by compare-and-swap.

Correctness never rests on passes not overlapping: whatever another pass or a report has changed
meanwhile makes one application fail, and the next pass plans it again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import structlog
from django.db import DatabaseError, transaction
from django.db.models import Prefetch, Q

from jobs.models import Job, Shard
from jobs.states import Outcome, ShardKind, ShardState
from nodes import leases
from nodes.capacity import disk_needed
from nodes.models import (
    Gpu,
    Incident,
    Installation,
    Lease,
    LeaseGpu,
    Node,
    SchedulerReason,
    using,
)
from nodes.plan import GpuView, LeaseView, NodeView, Plan, Reason, ShardView, plan
from nodes.states import BEFORE_GRANT, HOLDING, LIVE, LeaseReason, NodeState
from portal.base.clock import db_now
from portal.base.errors import DomainError

log = structlog.get_logger(__name__)

MOST_SHARDS = 5000  # that one pass looks at, in queue order
CHANGED_BY = timedelta(minutes=5)  # a prediction that moved less is not written again

# Causes whose numbers are those of whole nodes: they change when an operator changes something.
LASTING = {"no_node", "no_fit"}


def run_pass() -> Plan:
    """Plan once and apply. Returns the plan, for tests and logs."""
    now = db_now()
    shards = waiting_shards()
    by_id = {shard.id: shard for shard in shards}
    incidents = Prefetch("incidents", Incident.objects.blocking())
    nodes = list(Node.objects.exclude(state=NodeState.RETIRED).prefetch_related("gpus", incidents))
    answer = plan(now, shard_views(shards), node_views(nodes))
    _apply(answer, by_id, {node.code: node for node in nodes})
    _write_reasons(answer.reasons, by_id, now)
    Installation.objects.update_or_create(id=1, defaults={"last_pass_at": now})
    return answer


def waiting_shards() -> list[Shard]:
    """Queued shards that may run: a finish step only after all others succeeded.

    One whose attempt an operator has to decide on gets no compute, and keeps none from others.
    """
    unfinished = Shard.objects.filter(kind=ShardKind.MAIN).exclude(outcome=Outcome.SUCCEEDED)
    return list(
        Shard.objects.filter(state=ShardState.QUEUED, job__cancel_asked_at=None)
        .exclude(Q(kind=ShardKind.FINISH) & Q(job__in=unfinished.values("job")))
        .exclude(pk__in=Lease.objects.behind().values("shard"))
        .select_related("job__code_dataset", "job__output")
        .order_by("job__queued_at", "job_id", "kind", "index")[:MOST_SHARDS]
    )


def shard_views(shards: Iterable[Shard]) -> list[ShardView]:
    holding = Counter(
        Lease.objects.filter(state__in=HOLDING).values_list("shard__job__code", flat=True)
    )
    return [_shard_view(shard, holding[shard.job.code]) for shard in shards]


def _shard_view(shard: Shard, holding: int) -> ShardView:
    job = shard.job
    finish = shard.kind == ShardKind.FINISH
    return ShardView(
        id=shard.id,
        job=job.code,
        order=(job.queued_at, job.id, finish, shard.index),
        gpus=job.finish_gpus if finish else job.gpus,
        gpu_memory_bytes=job.gpu_memory_bytes,
        cpus=job.cpus,
        memory_bytes=job.memory_bytes,
        disk_bytes=disk_of(shard),
        hours=job.time_limit,
        parallel=job.parallel,
        holding=holding,
        avoid_gpus=frozenset(shard.avoid_gpus),
        reads=finish or shard.input_bytes > 0 or job.code_dataset is not None,
    )


def disk_of(shard: Shard) -> int:
    """Bytes of disk that one lease of the shard is promised: inputs, code, scratch, output."""
    job: Job = shard.job
    inputs = shard.input_bytes
    if shard.kind == ShardKind.FINISH:
        inputs = sum(job.shards.exclude(pk=shard.pk).values_list("output_bytes", flat=True))
    return disk_needed(job, inputs)


def node_views(nodes: Iterable[Node]) -> list[NodeView]:
    holders = dict(LeaseGpu.objects.filter(until=None).values_list("gpu__uuid", "lease__code"))
    by_node: dict[int, list[LeaseView]] = defaultdict(list)
    for lease in Lease.objects.filter(state__in=LIVE):
        by_node[lease.node_id].append(_lease_view(lease))
    return [_node_view(node, holders, by_node[node.pk]) for node in nodes]


def _lease_view(lease: Lease) -> LeaseView:
    state = lease.state if lease.state in BEFORE_GRANT else "holding"
    start = lease.allocated_at or lease.granted_at
    ends = start + lease.time_limit + lease.output_window if start else None
    return LeaseView(lease.code, lease.shard_id, state, ends, lease.cpus, lease.memory_bytes)


def _node_view(node: Node, holders: dict[str, str], live: list[LeaseView]) -> NodeView:
    incidents = list(node.incidents.all())  # those that block, as they were fetched
    gpus = tuple(
        GpuView(
            gpu.uuid,
            gpu.memory_bytes,
            usable=_usable(gpu) and not using(incidents, gpu.uuid),
            holder=holders.get(gpu.uuid, ""),
        )
        for gpu in node.gpus.all()
    )
    return NodeView(
        code=node.code,
        gpus=gpus,
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        disk_bytes=node.disk_bytes,
        free_cpus=node.cpus - node.reserved_cpus,
        free_memory_bytes=node.memory_bytes - node.reserved_memory_bytes,
        free_disk_bytes=node.disk_bytes - node.reserved_disk_bytes,
        leases=tuple(live),
        online=node.takes_work,
        away="without a sandbox" if node.state == NodeState.ONLINE else node.state,
    )


def _usable(gpu: Gpu) -> bool:
    return gpu.usable and gpu.present and not gpu.quarantined


def _apply(answer: Plan, shards: dict[int, Shard], nodes: dict[str, Node]) -> None:
    for code in answer.voids:
        _try(_void, code)
    cleared = {c.lease: c.gpus for c in answer.clearances}
    for lease in Lease.objects.filter(state__in=BEFORE_GRANT):
        named = cleared.get(lease.code)
        if lease.cleared_gpus != (None if named is None else list(named)):
            leases.clear(lease=lease, gpus=named)
    for placement in answer.placements:
        _try(_place, shards[placement.shard], nodes[placement.node], placement.gpus)


def _try(act, *args: object) -> None:
    """One application; a refusal means that the row has moved on, and is planned again."""
    try:
        act(*args)
    except DomainError as error:
        log.info("pass_outdated", act=act.__name__, why=str(error))
    except DatabaseError:
        log.exception("pass_failed", act=act.__name__)


def _void(code: str) -> None:
    lease = Lease.objects.select_related("shard__job").get(code=code)
    leases.void(lease=lease, reason=LeaseReason.MADE_WAY, at=db_now())


def _place(shard: Shard, node: Node, gpus: Sequence[str] | None) -> None:
    with transaction.atomic():
        node.refresh_from_db()
        lease = leases.place(shard=shard, node=node, disk_bytes=disk_of(shard), at=db_now())
        leases.clear(lease=lease, gpus=gpus)


def _write_reasons(reasons: Iterable[Reason], shards: dict[int, Shard], now: datetime) -> None:
    """Keep the reason of the first waiting shard of each job and kind, where it has changed."""
    seen = set()
    for reason in reasons:
        shard = shards[reason.shard]
        key = (shard.job_id, shard.kind)
        if key in seen:
            continue
        seen.add(key)
        last = SchedulerReason.objects.filter(
            shard__job=shard.job_id, shard__kind=shard.kind
        ).first()
        if last is None or _changed(last, reason):
            SchedulerReason.objects.create(
                shard=shard,
                at=now,
                cause=reason.cause,
                sentence=reason.sentence[:300],
                predicted_start=reason.predicted_start,
            )


def _changed(last: SchedulerReason, reason: Reason) -> bool:
    if last.cause != reason.cause:
        return True
    if reason.cause in LASTING and last.sentence != reason.sentence:
        return True
    one, other = last.predicted_start, reason.predicted_start
    if one is None or other is None:
        return one is not other
    return abs(one - other) >= CHANGED_BY

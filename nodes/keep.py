"""A node that was silent speaks again: of two attempts the one that is further on is kept.

Finished comes before running, running before waiting. Of two that run the one that began earlier
is kept; of two that have finished, the one that the portal has already.
"""

from datetime import datetime
from enum import IntEnum

from django.db.models import F, Q

from jobs import services as jobs
from jobs.models import Shard
from jobs.states import ShardState
from nodes import doubt
from nodes.leases import fence
from nodes.meter import FAULTS
from nodes.models import Lease, Node
from nodes.report import PHASES, Report, reason_of
from nodes.states import LIVE, LeaseReason, LeaseState
from portal.base.moves import move


class Rank(IntEnum):
    """How far on an attempt is."""

    NOTHING = 0  # no attempt, or one that a fault of its node has ended
    WAITING = 1
    RUNNING = 2
    FINISHED = 3


def decide(*, lease: Lease, report: Report, at: datetime) -> None:
    """The node of a lease in doubt says how far it is: keep it, or fence it.

    The caller has written the job's row. A lease that is kept is again in the state that it had,
    and what is reported is then applied as ever.
    """
    shard = lease.shard
    others = claim_shard(shard, besides=lease.code)
    other = others[0] if others else None
    wanted = shard.state != ShardState.ENDED and shard.job.cancel_asked_at is None
    mine = rank_of_report(report, verified=lease.output_verified_at is not None)
    if not wanted or not further_on(mine, (lease.epoch, lease.number), other):
        reason = LeaseReason.FENCED if other else ""
        doubt.settle(lease=lease, at=at, reason=reason, actor=lease.actor)
        return
    lock_nodes([lease.node_id, *(row.node_id for row in others)])
    for row in others:
        fence(lease=row, at=at)
    _restore(lease, shard, at)


def claim_shard(shard: Shard, *, besides: str) -> list[Lease]:
    """Write the shard, lock its attempts, read it again: the attempt that goes on, if there is
    one besides the lease of this code.

    A placement that comes now waits, and then finds what became of the shard.
    """
    Shard.objects.filter(pk=shard.pk).update(faults=F("faults"))
    list(Lease.objects.select_for_update().filter(shard=shard).order_by("pk"))
    alive = Q(state__in=LIVE) | Q(pk__in=Lease.objects.delivering())
    others = list(Lease.objects.filter(alive, shard=shard).exclude(code=besides))
    shard.refresh_from_db()
    return others


def lock_nodes(nodes: list[int]) -> None:
    """By primary key, so that it is always in one order."""
    list(Node.objects.select_for_update().filter(pk__in=nodes).order_by("pk"))


def further_on(mine: Rank, began: tuple[int, ...], other: Lease | None) -> bool:
    """Whether an attempt is to be kept rather than the other; `began` is its epoch and number."""
    theirs = rank_of_row(other) if other else Rank.NOTHING
    if mine == theirs == Rank.RUNNING and other is not None:
        return began < (other.epoch, other.number)
    return mine >= Rank.RUNNING and mine > theirs


def rank_of_report(report: Report, *, verified: bool) -> Rank:
    """How far on an attempt is by its node's word; `verified`: its output is in the store."""
    position = PHASES.index(report.phase)
    if report.fault or report.exit_reason == "cancelled" or report.output == "discarded":
        return Rank.NOTHING
    if position < PHASES.index("allocated"):
        return Rank.NOTHING
    if position < PHASES.index("returning"):
        return Rank.RUNNING
    # What has arrived is dropped when another attempt begins, and then it is nowhere any more.
    missing = report.output == "delivered" and not verified
    return Rank.NOTHING if missing else Rank.FINISHED


def rank_of_row(lease: Lease) -> Rank:
    """How far on an attempt is whose node is not silent."""
    if lease.reason in FAULTS:
        return Rank.NOTHING
    if lease.output_verified_at is not None or lease.state in (
        LeaseState.RETURNING,
        LeaseState.RELEASING,
        LeaseState.RELEASED,
    ):
        return Rank.FINISHED
    running = lease.state in (LeaseState.ALLOCATED, LeaseState.RUNNING)
    return Rank.RUNNING if running else Rank.WAITING


STEPS = [
    (LeaseState.RELEASING, "releasing_at"),
    (LeaseState.RETURNING, "returning_at"),
    (LeaseState.RUNNING, "running_at"),
    (LeaseState.ALLOCATED, "allocated_at"),
]


def _restore(lease: Lease, shard: Shard, at: datetime) -> None:
    """Back to the step that it had, with what it has on its node: it is there, so unchecked."""
    reason = reason_of(lease.work_reason)
    if lease.state == LeaseState.RELEASED:
        Lease.objects.filter(pk=lease.pk).update(in_doubt=False, reason=reason)
        lease.in_doubt, lease.reason = False, reason
        lease.note("keep", at=at, actor=lease.actor)
        jobs.keep_shard(shard=shard, to=ShardState.DELIVERING, at=at)
        return
    state = next((s for s, column in STEPS if getattr(lease, column)), LeaseState.GRANTED)
    changes = {"in_doubt": False, "ended_at": None, "reason": reason}
    move(lease, state, "keep", at=at, actor=lease.actor, changes=changes)
    Node.objects.filter(pk=lease.node_id).update(
        reserved_disk_bytes=F("reserved_disk_bytes") + lease.disk_bytes,
        reserved_cpus=F("reserved_cpus") + lease.cpus,
        reserved_memory_bytes=F("reserved_memory_bytes") + lease.memory_bytes,
        version=F("version") + 1,
    )
    jobs.keep_shard(shard=shard, to=ShardState.ACTIVE, at=at)

"""Leases whose node fell silent, and what becomes of them without its word.

A lease that is lost by silence, or released with its output still on a node that falls silent, is
*in doubt*: its piece is tried elsewhere, and nothing of it is final. `nodes/keep.py` decides when
its node speaks again. Here its fate is sealed by everything else; that writes its ledger row.

Whatever may change a shard writes the job's row first (`jobs.claim`), then shard, leases, nodes.
"""

from datetime import datetime

import structlog
from django.db import transaction

from jobs import services as jobs
from jobs.models import Shard
from jobs.states import ShardState
from nodes.ledger import write_ledger
from nodes.models import Lease, Node
from nodes.results import drop_output
from nodes.states import LeaseReason
from portal.base.clock import db_now
from portal.base.errors import DomainError, Stale

log = structlog.get_logger(__name__)


def settle(*, lease: Lease, at: datetime, reason: str = "", actor: str = "system") -> None:
    """A lease in doubt is not kept. Raises Stale when its fate is known already."""
    with transaction.atomic():
        reason = reason or lease.reason
        doubtful = Lease.objects.filter(pk=lease.pk, in_doubt=True)
        if not doubtful.update(in_doubt=False, reason=reason):
            raise Stale("The fate of this attempt is known already.")
        lease.in_doubt, lease.reason = False, reason
        lease.note("settle", at=at, actor=actor, reason=reason)
        drop_output(lease)
        write_ledger(lease=lease, at=at)


def gone(*, lease: Lease, at: datetime) -> None:
    """Its node is back, or will never be, and does not have the attempt any more."""
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)
        settle(lease=lease, at=at, actor=lease.actor)


def give_up_output(*, lease: Lease, reason: str, at: datetime) -> None:
    """The output that a released lease kept on its node is lost, or its node is silent.

    The piece is tried elsewhere; after a silence the output is still welcome. Raises Stale.
    """
    in_doubt = reason == LeaseReason.SILENT
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)
        shard = Shard.objects.select_related("job").get(pk=lease.shard_id)
        rows = Lease.objects.filter(pk__in=Lease.objects.delivering().filter(pk=lease.pk))
        if shard.state != ShardState.DELIVERING or not rows.exists():
            raise Stale("This output is no longer awaited.")
        Lease.objects.filter(pk=lease.pk).update(in_doubt=in_doubt, reason=reason)
        lease.refresh_from_db()
        lease.note("lose_output", at=at, actor="system", reason=reason)
        if not in_doubt:
            drop_output(lease)
            write_ledger(lease=lease, at=at)
        jobs.requeue_shard(shard=shard, reason=reason, at=at, fault=True)


def node_left(*, node: Node) -> None:
    """Its agent has lost the right to speak: nothing that is still there will come back."""
    for lease in Lease.objects.filter(node=node, in_doubt=True).select_related("shard__job"):
        _try(lambda lease=lease: gone(lease=lease, at=db_now()))
    for lease in Lease.objects.awaited().filter(node=node).select_related("shard__job"):
        _try(
            lambda lease=lease: give_up_output(
                lease=lease, reason=LeaseReason.OUTPUT_LOST, at=db_now()
            )
        )


def _try(act) -> None:
    try:
        act()
    except DomainError as error:
        log.info("settled_elsewhere", why=str(error))


def shard_ended(*, shard: Shard, at: datetime) -> None:
    """The shard has ended: what it still had in doubt, or on its way back, counts no more."""
    kept = Shard.objects.values_list("kept_lease", flat=True).get(pk=shard.pk)
    for lease in Lease.objects.filter(shard=shard, in_doubt=True):
        settle(lease=lease, at=at, reason=LeaseReason.FENCED if kept else "")
    for lease in Lease.objects.delivering().filter(shard=shard):
        drop_output(lease)
        write_ledger(lease=lease, at=at)


def drop_outputs(*, shard: Shard) -> None:
    """Another attempt is about to write where one in doubt has written: its files make way."""
    for lease in Lease.objects.filter(shard=shard, in_doubt=True):
        drop_output(lease)
        Lease.objects.filter(pk=lease.pk).update(output_verified_at=None)

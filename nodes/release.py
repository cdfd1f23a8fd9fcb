"""The end of a lease: released on evidence, and what it had is given back."""

from dataclasses import replace
from datetime import datetime

from django.db import transaction
from django.db.models import F

from jobs import services as jobs
from nodes import fleet, meter, results
from nodes.models import Gpu, Lease, LeaseGpu, Node
from nodes.report import Report
from nodes.states import LeaseState, NodeState
from portal.base.moves import move


def release(
    *, lease: Lease, report: Report, released_at: datetime, at: datetime, reason: str = ""
) -> None:
    """releasing -> released on the node's evidence; the shard and the ledger row follow.

    `reason` stands in the event: NO_EVIDENCE where the portal stops the meter without it.
    """
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)
        # The output may have been accepted since the lease was read.
        lease.refresh_from_db(fields=["output_verified_at"])
        report = with_arrival(lease, report)
        move(
            lease,
            LeaseState.RELEASED,
            "released",
            at=at,
            actor="system" if reason else lease.actor,
            reason=reason,
            detail=report.evidence,
            changes={
                "released_at": released_at,
                "ended_at": at,
                "evidence": report.evidence,
                "output_state": report.output,
                "log_bytes": report.log_bytes,
            },
        )
        give_back(lease)
        quarantined = _judge_evidence(lease, report.evidence, at)
        results.settle_shard(lease=lease, report=report, at=at, quarantined=quarantined)


def with_arrival(lease: Lease, report: Report) -> Report:
    """A cancel may have come to the node after the last byte had arrived here, and the node, which
    did not know that, says that it discarded the output: it is delivered all the same."""
    faulty = lease.reason in meter.FAULTS
    if report.output != "discarded" or lease.output_verified_at is None or faulty:
        return report
    return replace(report, output="delivered", evidence=report.evidence | {"output": "delivered"})


def _judge_evidence(lease: Lease, evidence: dict, at: datetime) -> bool:
    """Free what was proved free; quarantine only what failed. True where the node was."""
    left = [what for what in ("processes", "scratch") if evidence.get(what) == "left"]
    free_gpus(lease, at, evidence)
    if not left:
        return False
    node = Node.objects.get(pk=lease.node_id)
    reason = f"Lease {lease.code}: {' and '.join(left)} could not be removed."
    if node.state != NodeState.RETIRED:
        fleet.quarantine(node=node, actor="system", reason=reason, at=at)
    return True


def free_gpus(lease: Lease, at: datetime, evidence: dict) -> None:
    """Close the holds of GPUs that were found clear; a busy one is quarantined and stays held.

    Unless no process of the lease is left, so does one of which nothing is known, until the node
    lists the lease no more.
    """
    found = evidence.get("gpus") or {}
    for row in lease.gpus.filter(until=None).select_related("gpu"):
        state = found.get(row.gpu.uuid)
        if evidence.get("processes") != "none" and state in (None, "not checked"):
            continue
        if state == "busy":
            Gpu.objects.filter(pk=row.gpu_id).update(
                quarantined=True, reason=f"A process of lease {lease.code} is still on it."
            )
        else:
            LeaseGpu.objects.filter(pk=row.pk, until=None).update(until=max(at, row.since))


def give_back(lease: Lease) -> None:
    """Return disk, and CPUs and memory where they were taken, to the node."""
    granted = lease.granted_at is not None
    Node.objects.filter(pk=lease.node_id).update(
        reserved_disk_bytes=F("reserved_disk_bytes") - lease.disk_bytes,
        reserved_cpus=F("reserved_cpus") - (lease.cpus if granted else 0),
        reserved_memory_bytes=F("reserved_memory_bytes") - (lease.memory_bytes if granted else 0),
        version=F("version") + 1,
    )

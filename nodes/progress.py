"""An agent's report of a lease, and the moves that it makes.

Reports are level-triggered: `apply_report` brings a lease to where its node says it is, however
many messages were lost or repeated. A lease in a terminal state is a sink.
"""

from datetime import datetime

import structlog
from django.db.models import F

from jobs import services as jobs
from jobs.models import MAX_ATTEMPTS, Shard
from jobs.states import Outcome, Reason, ShardState
from nodes import doubt, keep
from nodes.dating import said_at, step_at
from nodes.leases import grant, void
from nodes.ledger import write_ledger
from nodes.models import Lease
from nodes.release import free_gpus, release, with_arrival
from nodes.report import FAULTS, PHASES, Report, reason_of
from nodes.results import end_by_work, problem_of
from nodes.states import BEFORE_GRANT, METERED, TERMINAL, LeaseReason, LeaseState
from portal.base.moves import move

log = structlog.get_logger(__name__)

REFUSED = ("refused", "discarded")
NOWHERE = ("delivered", "none")  # where the portal does not have it: it never comes


def apply_report(*, lease: Lease, report: Report, at: datetime) -> None:
    """Bring the lease to where its node says it is. Each step is dated within what is possible."""
    if _may_end(lease, report):
        # Whatever may change the shard writes the job's row first: two nodes that speak of one
        # shard come one after the other.
        jobs.claim(job=lease.shard.job)
        lease.refresh_from_db()
    if lease.in_doubt:
        keep.decide(lease=lease, report=report, at=at)
    if lease.state in TERMINAL:
        _late(lease, report, at)
        return
    _note_progress(lease, report, at)
    if lease.state in BEFORE_GRANT:
        _before_grant(lease, report, at)
    if lease.state == LeaseState.GRANTED:
        _acknowledge(lease, report, at)
    if lease.state in METERED:
        _follow(lease, report, at)


def _may_end(lease: Lease, report: Report) -> bool:
    if lease.in_doubt or report.fault:
        return True
    if lease.state in TERMINAL:
        return report.output in (*REFUSED, *NOWHERE)
    granting = report.phase == "ready" and lease.cleared_gpus is not None
    return granting or report.phase == "released"


def _note_progress(lease: Lease, report: Report, at: datetime) -> None:
    changes: dict[str, object] = {
        "last_report_at": said_at(lease=lease, report=report, at=at),
        "fetched_files": report.fetched_files,
        "fetched_bytes": report.fetched_bytes,
        "moved_bytes": report.moved_bytes,
        "output_state": report.output,
        "output_waits": report.output_waits,
    }
    if report.output_problem:
        changes["evidence"] = lease.evidence | problem_of(report)
    Lease.objects.filter(pk=lease.pk).update(**changes)
    for name, value in changes.items():
        setattr(lease, name, value)


def _before_grant(lease: Lease, report: Report, at: datetime) -> None:
    if report.fault:
        reason = FAULTS[report.fault]
        void(lease=lease, reason=reason, at=at, detail=report.fault_detail)
        _count_fetch_fault(lease, at)
        return
    if lease.state == LeaseState.PLACED and report.phase == "ready":
        ready_at = step_at(
            lease=lease, report=report, step="ready", at=at, not_before=lease.placed_at
        )
        actor = lease.actor
        move(lease, LeaseState.READY, "ready", at=at, actor=actor, changes={"ready_at": ready_at})
    elif lease.state == LeaseState.READY and report.phase == "fetching":
        # The node has lost what it had fetched, and begins again.
        actor = lease.actor
        move(lease, LeaseState.PLACED, "unready", at=at, actor=actor, changes={"ready_at": None})
    if lease.state == LeaseState.READY and report.phase == "ready":
        grant(lease=lease, at=at)


def _count_fetch_fault(lease: Lease, at: datetime) -> None:
    """A node that cannot fetch is a fault of the node: three of them end the shard."""
    waiting = Shard.objects.filter(pk=lease.shard_id, state=ShardState.QUEUED)
    if not waiting.update(faults=F("faults") + 1):
        return
    shard = Shard.objects.select_related("job").get(pk=lease.shard_id)
    if shard.faults >= MAX_ATTEMPTS:
        jobs.end_shard(
            shard=shard,
            outcome=Outcome.FAILED,
            reason=Reason.NODE_FAULT,
            at=at,
            detail=f"Last: {lease.get_reason_display()} {lease.detail}",
        )


def _acknowledge(lease: Lease, report: Report, at: datetime) -> None:
    """granted -> allocated: the start of the meter. A grant that never began costs nothing."""
    position = PHASES.index(report.phase)
    if position >= PHASES.index("allocated") and report.reached("allocated"):
        # Its receipt may be late. The meter starts later then, and what follows is placed by it.
        start = step_at(
            lease=lease,
            report=report,
            step="allocated",
            at=at,
            not_before=lease.granted_at or at,
        )
        move(
            lease,
            LeaseState.ALLOCATED,
            "allocate",
            at=at,
            actor=lease.actor,
            changes={"allocated_at": start},
        )
    elif report.phase == "released" or report.fault:
        reason = FAULTS.get(report.fault, LeaseReason.NOT_ACKNOWLEDGED)
        shard = lease.shard
        void(lease=lease, reason=reason, at=at, detail=report.fault_detail)
        free_gpus(lease, at, report.evidence)
        jobs.requeue_shard(shard=shard, reason=reason, at=at, fault=bool(report.fault))


STEPS = [
    ("running", LeaseState.RUNNING, "run", "running_at"),
    ("returning", LeaseState.RETURNING, "return", "returning_at"),
    ("releasing", LeaseState.RELEASING, "release", "releasing_at"),
]


def _follow(lease: Lease, report: Report, at: datetime) -> None:
    """Walk the metered steps that the report has reached, then the release."""
    position = PHASES.index(report.phase)
    for step, state, verb, column in STEPS:
        passed = position >= PHASES.index(step)
        if not passed or not report.reached(step) or getattr(lease, column) is not None:
            continue
        when = step_at(lease=lease, report=report, step=step, at=at, not_before=_latest_step(lease))
        changes: dict[str, object] = {column: when}
        if step != "running":
            changes |= _how_it_ended(lease, report)
        move(lease, state, verb, at=at, actor=lease.actor, changes=changes)
    if report.phase in ("releasing", "released") and lease.state != LeaseState.RELEASING:
        # Its age was lost by a reboot: it is not later than the release, nor than the report.
        begun = step_at(
            lease=lease, report=report, step="released", at=at, not_before=_latest_step(lease)
        )
        move(
            lease,
            LeaseState.RELEASING,
            "release",
            at=at,
            actor=lease.actor,
            changes={"releasing_at": begun} | _how_it_ended(lease, report),
        )
    if report.phase == "released" and lease.state == LeaseState.RELEASING:
        released = step_at(
            lease=lease, report=report, step="released", at=at, not_before=_latest_step(lease)
        )
        release(lease=lease, report=report, released_at=released, at=at)


def _latest_step(lease: Lease) -> datetime:
    steps = (lease.allocated_at, lease.running_at, lease.returning_at, lease.releasing_at)
    return max(s for s in steps if s is not None)


def _how_it_ended(lease: Lease, report: Report) -> dict[str, object]:
    if lease.reason:
        return {}
    if report.fault:
        return {"reason": FAULTS[report.fault], "detail": report.fault_detail[:500]}
    return {
        "reason": reason_of(report.exit_reason) or LeaseReason.EXITED,
        "exit_code": report.exit_code,
        "work_reason": report.exit_reason,
    }


def _late(lease: Lease, report: Report, at: datetime) -> None:
    """A message about a lease that has ended. Only a sealed output's fate is still news."""
    log.info("late_report", lease=lease.code, state=lease.state, phase=report.phase)
    if lease.state != LeaseState.RELEASED:
        return
    report = with_arrival(lease, report)
    Lease.objects.filter(pk=lease.pk).update(
        last_report_at=at, output_state=report.output, output_waits=report.output_waits
    )
    if not Lease.objects.delivering().filter(pk=lease.pk).exists():
        return
    if report.output in NOWHERE and report.phase == "released":
        # A restored portal has forgotten that it came, and the node has it no more.
        doubt.give_up_output(lease=lease, reason=LeaseReason.OUTPUT_LOST, at=at)
    elif report.output in REFUSED:
        write_ledger(lease=lease, at=at)
        problem = problem_of(report) or {"output_problem": "output_refused"}
        end_by_work(lease=lease, problem=problem, at=at)

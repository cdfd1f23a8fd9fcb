"""What becomes of a shard when its lease has been released: a result, a retry, or an end."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F

from jobs import services as jobs
from jobs.models import Shard
from jobs.states import Outcome, Reason, ShardState
from nodes import meter
from nodes.errors import LeaseInDoubt, StaleLease
from nodes.ledger import write_ledger
from nodes.models import Lease
from nodes.report import Report
from nodes.states import LIVE, LeaseReason
from portal.base.moves import move
from portal.base.words import in_hms
from staging import services as staging

A_MOMENT = timedelta(seconds=1)  # killed at its limit, its end is told this exactly
WORK_REASONS = {
    "killed": Reason.KILLED,
    "memory_limit": Reason.MEMORY_LIMIT,
    "disk_limit": Reason.DISK_LIMIT,
    "process_limit": Reason.PROCESS_LIMIT,
    "output_limit": Reason.OUTPUT_LIMIT,
    "could_not_start": Reason.COULD_NOT_START,
}
ON_ITS_WAY = ("pending", "delivering", "sealed")
OUTPUT_PROBLEMS = {
    "output_missing": Reason.OUTPUT_MISSING,
    "output_refused": Reason.OUTPUT_REFUSED,
    "output_limit": Reason.OUTPUT_LIMIT,
}


def settle_shard(*, lease: Lease, report: Report, at: datetime, quarantined: bool) -> None:
    """After the release: requeue after a fault, end, or wait for the output to be delivered."""
    shard = Shard.objects.select_related("job").get(pk=lease.shard_id)
    if _is_awaited(lease, shard, report):
        move(shard, ShardState.DELIVERING, "deliver", at=at, actor=lease.actor)
        Lease.objects.filter(pk=lease.pk).update(evidence=lease.evidence | problem_of(report))
        return
    write_ledger(lease=lease, at=at)
    if shard.state != ShardState.ACTIVE:
        return
    if lease.reason in meter.FAULTS:
        drop_output(lease)
        bad_gpus = [row.gpu.uuid for row in lease.gpus.select_related("gpu")]
        jobs.requeue_shard(
            shard=shard,
            reason=lease.reason,
            at=at,
            fault=True,
            quarantined=quarantined,
            avoid_gpus=bad_gpus if lease.reason == LeaseReason.GPU_FAULT else None,
        )
        return
    # A cancel that comes after the work's own end discards the output that was on its way.
    unwanted = report.output in ("discarded", *ON_ITS_WAY) and lease.output_verified_at is None
    unwanted &= shard.job.cancel_asked_at is not None
    if lease.reason == LeaseReason.CANCELLED or unwanted:
        drop_output(lease)
        jobs.end_shard(shard=shard, outcome=Outcome.CANCELLED, reason=Reason.CANCELLED, at=at)
        return
    end_by_work(lease=lease, problem=problem_of(report), at=at)


def _is_awaited(lease: Lease, shard: Shard, report: Report) -> bool:
    """Whether the compute is gone and the output is still on its way; its fate is not known yet."""
    fine = lease.reason not in (*meter.FAULTS, LeaseReason.CANCELLED)
    undelivered = report.output in ON_ITS_WAY and lease.output_verified_at is None
    wanted = shard.state == ShardState.ACTIVE and shard.job.cancel_asked_at is None
    return fine and undelivered and wanted


def has_result(lease: Lease) -> bool:
    """Whether its work ended by itself and its node has told the whole of a verified output."""
    told = lease.output_state == "delivered" and lease.work_reason not in ("", "cancelled")
    return told and lease.output_verified_at is not None and lease.reason not in meter.FAULTS


def problem_of(report: Report) -> dict[str, str]:
    if not report.output_problem:
        return {}
    return {"output_problem": report.output_problem, "output_detail": report.output_detail[:400]}


def drop_output(lease: Lease) -> None:
    """What an attempt that does not count has sent is removed again."""
    shard = lease.shard
    if shard.job.output is None:
        return
    staging.discard_files(dataset=shard.job.output, prefix=shard.folder, source=lease.code)


def end_by_work(*, lease: Lease, problem: dict[str, str], at: datetime) -> None:
    """End the shard as its work ended, or try again where the job asks for that."""
    shard = Shard.objects.select_related("job").get(pk=lease.shard_id)
    outcome, reason = outcome_of(lease, problem)
    own_failure = outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    if own_failure and shard.work_failures < shard.job.work_retries:
        Shard.objects.filter(pk=shard.pk).update(work_failures=F("work_failures") + 1)
        drop_output(lease)
        jobs.requeue_shard(shard=shard, reason=reason, at=at, fault=False)
        return
    Shard.objects.filter(pk=shard.pk).update(kept_lease=lease.code)
    told = reason == Reason.TOLD_TO_STOP
    detail = told_to_stop(lease.time_limit) if told else problem.get("output_detail", "")
    jobs.end_shard(
        shard=shard,
        outcome=outcome,
        reason=reason,
        at=at,
        actor=lease.actor,
        detail=detail,
        exit_code=lease.exit_code,
    )


def outcome_of(lease: Lease, problem: dict[str, str]) -> tuple[str, str]:
    """How the work of a lease without a fault ended; succeeded only with a verified output."""
    if lease.work_reason == "time_limit":
        return Outcome.TIMED_OUT, Reason.TOLD_TO_STOP if _ended_early(lease) else Reason.TIME_LIMIT
    if lease.work_reason in WORK_REASONS:
        return Outcome.FAILED, WORK_REASONS[lease.work_reason]
    if lease.exit_code != 0:
        return Outcome.FAILED, Reason.EXIT_CODE
    code = problem.get("output_problem", "")
    if code:
        return Outcome.FAILED, OUTPUT_PROBLEMS[code]
    if lease.output_verified_at is None:
        return Outcome.FAILED, Reason.OUTPUT_MISSING
    return Outcome.SUCCEEDED, Reason.NONE


def _ended_early(lease: Lease) -> bool:
    """Whether the work heeded the signal that comes before its hours are up."""
    if lease.running_at is None or lease.returning_at is None:
        return False
    return lease.returning_at - lease.running_at < lease.time_limit - A_MOMENT


def told_to_stop(limit: timedelta) -> str:
    """The sentence on work that ended at the signal; the agent sends it at half time at least."""
    whole = timedelta(seconds=int(limit.total_seconds()))
    margin = min(settings.TERM_MARGIN, timedelta(seconds=whole // timedelta(seconds=2)))
    return (
        f"The work was told to stop {in_hms(margin)} before its {in_hms(whole)} ran out, and ended."
    )


def accept_output(*, lease: Lease, files: int, byte_count: int, at: datetime) -> None:
    """The declared output is verified in the store. Accepted once; a repeat changes nothing.

    Raises LeaseInDoubt, or StaleLease where another attempt has the piece.
    """
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)
        # A release that has begun is waited for here.
        Lease.objects.filter(pk=lease.pk).update(output_state=F("output_state"))
        lease.refresh_from_db()
        delivering = may_return(lease)
        if lease.output_verified_at is not None:
            return
        lease.output_verified_at = at
        if delivering:
            lease.output_state = "delivered"
        lease.save(update_fields=["output_verified_at", "output_state"])
        Shard.objects.filter(pk=lease.shard_id).update(output_files=files, output_bytes=byte_count)
        lease.note(
            "output_verified",
            at=at,
            actor=lease.actor,
            detail={"files": files, "bytes": byte_count},
        )
        if delivering:
            write_ledger(lease=lease, at=at)
            end_by_work(lease=lease, problem=lease.evidence, at=at)


def may_return(lease: Lease) -> bool:
    """Check that the lease, read after its row was written, still returns output.

    True where its compute is released and its shard waits for that output. Raises LeaseInDoubt or
    StaleLease.
    """
    if lease.in_doubt:
        raise LeaseInDoubt("The node was silent for too long; its next poll decides.")
    if lease.output_verified_at is None and lease.state not in LIVE:
        if not Lease.objects.delivering().filter(pk=lease.pk).exists():
            raise StaleLease("Another attempt has this piece.")
        return True
    return False

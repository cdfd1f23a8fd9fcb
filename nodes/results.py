"""What becomes of a shard when its lease has been released: a result, a retry, or an end."""

from datetime import datetime

from django.db import transaction
from django.db.models import F

from jobs import services as jobs
from jobs.models import Shard
from jobs.states import Outcome, Reason, ShardState
from nodes import meter
from nodes.models import Lease
from nodes.report import Report
from nodes.states import LeaseReason, LeaseState
from portal.base.errors import Stale
from portal.base.moves import move
from staging import services as staging

WORK_REASONS = {
    "killed": Reason.KILLED,
    "time_limit": Reason.TIME_LIMIT,
    "memory_limit": Reason.MEMORY_LIMIT,
    "disk_limit": Reason.DISK_LIMIT,
    "process_limit": Reason.PROCESS_LIMIT,
    "output_limit": Reason.OUTPUT_LIMIT,
    "could_not_start": Reason.COULD_NOT_START,
}
OUTPUT_PROBLEMS = {
    "output_missing": Reason.OUTPUT_MISSING,
    "output_refused": Reason.OUTPUT_REFUSED,
    "output_limit": Reason.OUTPUT_LIMIT,
}


def settle_shard(*, lease: Lease, report: Report, at: datetime, quarantined: bool) -> None:
    """After the release: requeue after a fault, end, or wait for the output to be delivered."""
    shard = Shard.objects.select_related("job").get(pk=lease.shard_id)
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
    discarded = shard.job.cancel_asked_at is not None and report.output == "discarded"
    if lease.reason == LeaseReason.CANCELLED or discarded:
        drop_output(lease)
        jobs.end_shard(shard=shard, outcome=Outcome.CANCELLED, reason=Reason.CANCELLED, at=at)
        return
    if lease.output_verified_at is None and report.output in ("pending", "delivering", "sealed"):
        move(shard, ShardState.DELIVERING, "deliver", at=at, actor=lease.actor)
        Lease.objects.filter(pk=lease.pk).update(evidence=lease.evidence | problem_of(report))
        return
    end_by_work(lease=lease, problem=problem_of(report), at=at)


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
    detail = problem.get("output_detail", "")
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
        return Outcome.TIMED_OUT, Reason.TIME_LIMIT
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


def accept_output(*, lease: Lease, files: int, byte_count: int, at: datetime) -> None:
    """The declared output is verified in the store. Accepted once; a repeat changes nothing."""
    with transaction.atomic():
        rows = Lease.objects.filter(pk=lease.pk, output_verified_at=None)
        first = rows.exclude(state__in=(LeaseState.VOID, LeaseState.LOST)).update(
            output_verified_at=at, output_state="delivered"
        )
        lease.refresh_from_db()
        if not first:
            if lease.output_verified_at is None:
                raise Stale("Another attempt has this piece.")
            return
        Shard.objects.filter(pk=lease.shard_id).update(output_files=files, output_bytes=byte_count)
        lease.note(
            "output_verified",
            at=at,
            actor=lease.actor,
            detail={"files": files, "bytes": byte_count},
        )
        shard = Shard.objects.get(pk=lease.shard_id)
        if lease.state == LeaseState.RELEASED and shard.state == ShardState.DELIVERING:
            end_by_work(lease=lease, problem=lease.evidence, at=at)

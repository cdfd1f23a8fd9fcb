"""The verbs of a job's life. Views, tasks and the node side all come through here.

draft -> staging -> queued -> active -> ended; once queued, a job's state is derived from its
shards. Compute is the business of `nodes`; this module never looks at a lease.
"""

from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import F, Sum

from jobs.capacity import capacity_problem
from jobs.models import MAX_ATTEMPTS, After, Job, Shard
from jobs.shards import Cut, create_shards, cut_job, declared_bytes
from jobs.signals import cancel_asked, job_ended, shard_ended, shard_queued
from jobs.states import JobState, Outcome, Reason, ShardKind, ShardState
from portal.base.clock import db_now
from portal.base.commits import again_after_deadlock
from portal.base.errors import Conflict, DomainError
from portal.base.moves import move
from portal.teams.models import Team
from staging import services as staging
from staging.models import Dataset
from staging.states import DatasetKind, DatasetReason, DatasetState

log = structlog.get_logger(__name__)


class LimitBroken(DomainError):
    """The request is more than a limit allows; the sentence names the limit."""

    code = "limit"


def submit(*, job: Job, actor: str) -> Job:
    """Leave the draft: hold its inputs, make its output dataset, queue it when all is staged.

    Raises LimitBroken when the team's limits or every node rule it out, Conflict when an input is
    on its way out or the job is no longer a draft.
    """
    with transaction.atomic():
        at = db_now()
        cut = cut_job(job=job, at=at) if _all_staged(job) else None
        check_limits(job, cut.largest if cut else declared_bytes(job))
        move(
            job,
            JobState.STAGING,
            "submit",
            at=at,
            actor=actor,
            changes={
                "submitted_at": at,
                "draft": {},
                "output": _output_dataset(job, actor, at),
            },
        )
        for dataset in _data_needed(job):
            code = dataset.pk == job.code_dataset_id
            label = f"code of {job.name}" if code else f"{job.name} ({job.code}) reads it"
            staging.hold(dataset=dataset, holder=job.code, label=label, at=at)
        if cut:
            _queue(job, cut, at)
        else:
            advance(job=job, at=at)
    return job


def check_limits(job: Job, input_bytes: int) -> None:
    """Raise LimitBroken, naming the limit and both numbers. `input_bytes`: of the largest shard."""
    team: Team = job.team
    most_gpus = job.gpus * min(job.shard_count, job.parallel or job.shard_count)
    if team.max_gpus_per_job is not None and most_gpus > team.max_gpus_per_job:
        raise LimitBroken(
            f"This job would hold {most_gpus} GPUs at once; "
            f"the limit of {team.name} is {team.max_gpus_per_job}."
        )
    hours = job.time_limit.total_seconds() / 3600
    if team.max_hours is not None and hours > team.max_hours:
        raise LimitBroken(
            f"This job asks for {hours:g} hours; the limit of {team.name} is {team.max_hours}."
        )
    problem = capacity_problem(job, input_bytes)
    if problem:
        raise LimitBroken(problem)


def _output_dataset(job: Job, actor: str, at: datetime) -> Dataset:
    output = staging.create_dataset(
        team=job.team,
        name=f"Output of {job.name}"[:120],
        actor=actor,
        kind=DatasetKind.OUTPUT,
        keep_days=job.output_keep_days,
        at=at,
    )
    staging.hold(dataset=output, holder=job.code, label=f"output of {job.name}", at=at)
    return output


def _data_needed(job: Job) -> list[Dataset]:
    """The inputs and the code, each once, by key: who writes several datasets does so in this
    order, or two that share some wait for each other for ever."""
    rows = {row.dataset_id: row.dataset for row in job.inputs.select_related("dataset")}
    if job.code_dataset:
        rows[job.code_dataset.pk] = job.code_dataset
    return [rows[key] for key in sorted(rows)]


def _all_staged(job: Job) -> bool:
    return all(dataset.state == DatasetState.STAGED for dataset in _data_needed(job))


def advance(*, job: Job, at: datetime) -> Job:
    """staging -> queued, once every input is staged; does nothing before.

    Where the data that has come fits on no node that could run the job without it, the job ends:
    it would wait for ever. Its inputs stay, whatever was declared, so that it can be cut anew.
    """
    if job.state != JobState.STAGING or not _all_staged(job):
        return job
    with transaction.atomic():
        cut = cut_job(job=job, at=at)
        problem = capacity_problem(job, cut.largest)
        if problem and not capacity_problem(job, 0):
            _end_job(job, at, Outcome.FAILED, Reason.NO_NODE_FITS, "system", problem)
        else:
            _queue(job, cut, at)
    return job


def _queue(job: Job, cut: Cut, at: datetime) -> None:
    move(job, JobState.QUEUED, "queue", at=at, actor="system", changes={"queued_at": at})
    create_shards(cut)
    shard_queued.send(Job, job=job)


@again_after_deadlock
def cancel(*, job: Job, actor: str) -> Job:
    """Ask for the end. What holds no compute ends at once, the rest on its node's word.

    It writes the job before the nodes of its leases, as does all else that may change a shard.
    """
    with transaction.atomic():
        at = db_now()
        job.refresh_from_db()
        check_cancel(job)
        asked = Job.objects.filter(pk=job.pk, cancel_asked_at=None).update(
            cancel_asked_at=at, cancel_asked_by=actor
        )
        job.refresh_from_db()
        if not asked:
            return job
        job.note("cancel_asked", at=at, actor=actor)
        if job.state == JobState.STAGING:
            _end_job(job, at, Outcome.CANCELLED, Reason.CANCELLED, actor)
            return job
        unheld = (ShardState.QUEUED, ShardState.DELIVERING)
        for shard in job.shards.filter(state__in=unheld):
            end_shard(
                shard=shard, outcome=Outcome.CANCELLED, reason=Reason.CANCELLED, at=at, actor=actor
            )
        cancel_asked.send(Job, job=job, at=at)
        job.refresh_from_db()
    return job


def check_cancel(job: Job) -> None:
    """Raise Conflict where there is nothing to cancel."""
    if job.state == JobState.DRAFT:
        raise Conflict("A draft is not running. Delete it instead.")
    if job.state == JobState.ENDED:
        raise Conflict("This job has ended already.")


def end_shard(
    *,
    shard: Shard,
    outcome: str,
    reason: str,
    at: datetime,
    actor: str = "system",
    detail: str = "",
    exit_code: int | None = None,
) -> None:
    """End a shard once; whatever depends on it and the job's own state follow."""
    with transaction.atomic():
        move(
            shard,
            ShardState.ENDED,
            "end",
            at=at,
            actor=actor,
            reason=reason,
            detail={"outcome": outcome, "detail": detail[:500]},
            changes={
                "outcome": outcome,
                "reason": reason,
                "detail": detail[:500],
                "exit_code": exit_code,
                "ended_at": at,
            },
        )
        shard_ended.send(Shard, shard=shard, at=at)
        if shard.kind == ShardKind.MAIN and outcome == Outcome.SUCCEEDED:
            _end_finish_step_without_room(shard.job, at)
        elif shard.kind == ShardKind.MAIN:
            _end_finish_step(shard.job, outcome, at)
        settle_job(job=shard.job, at=at)


def _end_finish_step(job: Job, outcome: str, at: datetime) -> None:
    """The finish step runs on the outputs of all others: without one of them it cannot."""
    for finish in job.shards.filter(kind=ShardKind.FINISH, state=ShardState.QUEUED):
        cancelled = outcome == Outcome.CANCELLED
        end_shard(
            shard=finish,
            outcome=Outcome.CANCELLED if cancelled else Outcome.FAILED,
            reason=Reason.CANCELLED if cancelled else Reason.PREDECESSOR_FAILED,
            at=at,
        )


def _end_finish_step_without_room(job: Job, at: datetime) -> None:
    """What the others returned is its data, known only now: on too small a disk it would wait for
    ever. Their output stays."""
    finish = job.shards.filter(kind=ShardKind.FINISH, state=ShardState.QUEUED).first()
    others = job.shards.filter(kind=ShardKind.MAIN)
    if finish is None or others.exclude(outcome=Outcome.SUCCEEDED).exists():
        return
    size = others.aggregate(size=Sum("output_bytes"))["size"] or 0
    problem = capacity_problem(job, size)
    if problem and not capacity_problem(job, 0):
        end_shard(
            shard=finish, outcome=Outcome.FAILED, reason=Reason.NO_NODE_FITS, at=at, detail=problem
        )


def requeue_shard(
    *,
    shard: Shard,
    reason: str,
    at: datetime,
    fault: bool,
    quarantined: bool = False,
    avoid_gpus: list[str] | None = None,
) -> None:
    """Try again elsewhere after a fault of the node, or end it when the attempts are used up."""
    with transaction.atomic():
        # A request to cancel either is seen here, or waits and then finds the shard queued.
        claim(job=shard.job)
        Shard.objects.filter(pk=shard.pk).update(
            faults=F("faults") + int(fault), quarantines=F("quarantines") + int(quarantined)
        )
        shard.refresh_from_db()
        if shard.job.cancel_asked_at is not None:
            end_shard(shard=shard, outcome=Outcome.CANCELLED, reason=Reason.CANCELLED, at=at)
        elif shard.quarantines >= 2:
            end_shard(shard=shard, outcome=Outcome.FAILED, reason=Reason.BREAKS_NODES, at=at)
        elif shard.faults >= MAX_ATTEMPTS:
            lost = reason == "silent"
            end_shard(
                shard=shard,
                outcome=Outcome.LOST if lost else Outcome.FAILED,
                reason=Reason.NODE_FAULT,
                at=at,
                detail=f"The last attempt ended because of: {reason}.",
            )
        else:
            move(
                shard,
                ShardState.QUEUED,
                "requeue",
                at=at,
                actor="system",
                reason=reason,
                changes={"avoid_gpus": sorted({*shard.avoid_gpus, *(avoid_gpus or [])})},
            )
            settle_job(job=shard.job, at=at)
            shard_queued.send(Job, job=shard.job)


def keep_shard(*, shard: Shard, to: str, at: datetime) -> None:
    """An attempt that had been given up goes on: what its loss changed is taken back."""
    with transaction.atomic():
        if shard.state != to:
            move(shard, to, "keep", at=at, actor="system")
        Shard.objects.filter(pk=shard.pk, faults__gt=0).update(faults=F("faults") - 1)
        shard.refresh_from_db()
        settle_job(job=shard.job, at=at)


def adopt_shard(*, shard: Shard, at: datetime, actor: str) -> None:
    """An attempt that this portal did not know is the shard's own from now on."""
    with transaction.atomic():
        if shard.state != ShardState.ACTIVE:
            move(shard, ShardState.ACTIVE, "adopt", at=at, actor=actor)
        settle_job(job=shard.job, at=at)


def claim(*, job: Job) -> None:
    """Write the row whose shards are about to be counted, and read it again.

    Two transactions that each end one of the last two shards would otherwise both see the other
    as unfinished on PostgreSQL, and nobody would end the job.
    """
    Job.objects.filter(pk=job.pk).update(version=F("version") + 1)
    job.refresh_from_db()


def settle_job(*, job: Job, at: datetime) -> None:
    """Derive the job's state from its shards; end it when the last one has ended."""
    claim(job=job)
    if job.state not in (JobState.QUEUED, JobState.ACTIVE):
        return
    states = set(job.shards.values_list("state", flat=True).distinct().order_by())
    if states == {ShardState.ENDED}:
        outcome, reason = _job_outcome(job)
        _end_job(job, at, outcome, reason, "system")
        return
    busy = bool(states & {ShardState.ACTIVE, ShardState.DELIVERING})
    if busy and job.state == JobState.QUEUED:
        changes = {} if job.active_at else {"active_at": at}
        move(job, JobState.ACTIVE, "activate", at=at, actor="system", changes=changes)
    elif not busy and job.state == JobState.ACTIVE:
        move(job, JobState.QUEUED, "wait", at=at, actor="system")


def _job_outcome(job: Job) -> tuple[str, str]:
    """The gravest outcome of the shards, with the reason of the first that ended so."""
    order = [Outcome.CANCELLED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST, Outcome.SUCCEEDED]
    present = set(job.shards.values_list("outcome", flat=True).distinct().order_by())
    worst = next(outcome for outcome in order if outcome in present)
    reasons = job.shards.filter(outcome=worst).order_by("ended_at", "id")
    own = reasons.exclude(reason=Reason.PREDECESSOR_FAILED).first() or reasons.first()
    return worst, own.reason if own else ""


def _end_job(
    job: Job, at: datetime, outcome: str, reason: str, actor: str, sentence: str = ""
) -> None:
    """`sentence`: what the reason does not say by itself; kept with the event."""
    move(
        job,
        JobState.ENDED,
        "end",
        at=at,
        actor=actor,
        reason=reason,
        detail={"outcome": outcome} | ({"sentence": sentence} if sentence else {}),
        changes={"outcome": outcome, "reason": reason, "ended_at": at},
    )
    for dataset in _data_needed(job):
        staging.unhold(dataset=dataset, holder=job.code)
    _settle_output(job, outcome, at)
    job_ended.send(Job, job=job, at=at)
    if reason != Reason.NO_NODE_FITS:
        _delete_what_was_declared(job, at)


def _settle_output(job: Job, outcome: str, at: datetime) -> None:
    """Seal what came back; an output that nothing ever came to is deleted."""
    output = job.output
    if output is None:
        return
    # Its row is nobody else's until the job has ended, so it may come after the inputs'.
    staging.unhold(dataset=output, holder=job.code)
    if output.state in (DatasetState.FAILED, DatasetState.EXPIRING, DatasetState.PURGED):
        return  # what had come was lost before: its row says why
    if output.files.exists() or outcome == Outcome.SUCCEEDED:
        Dataset.objects.filter(pk=output.pk).update(partial=outcome != Outcome.SUCCEEDED)
        output.partial = outcome != Outcome.SUCCEEDED
        staging.seal_dataset(dataset=output, actor="system", at=at)
    else:
        staging.delete_dataset(
            dataset=output, actor="system", reason=DatasetReason.ABANDONED, at=at
        )


def _delete_what_was_declared(job: Job, at: datetime) -> None:
    """Inputs and code whose deletion after release is part of the declaration.

    A dataset that another live job needs stays: its hold outlives this wish.
    """
    chosen = set(job.inputs.filter(after=After.DELETE).values_list("dataset_id", flat=True))
    if job.code_dataset and not job.keep_code:
        chosen.add(job.code_dataset.pk)
    for dataset in _data_needed(job):
        if dataset.pk not in chosen:
            continue
        try:
            staging.delete_dataset(
                dataset=dataset, actor=f"job {job.code}", reason=DatasetReason.AFTER_JOB, at=at
            )
        except Conflict as needed:
            log.info("kept_after_job", dataset=dataset.code, why=str(needed))


def delete_draft(*, job: Job, actor: str) -> None:
    """Remove a draft for good; nothing has come of it. Its code goes with it."""
    with transaction.atomic():
        # Deleting reads the row first; written before, it can't be submitted in between.
        draft = Job.objects.filter(pk=job.pk, state=JobState.DRAFT)
        if not draft.update(version=F("version") + 1):
            raise Conflict("Only a draft can be deleted.")
        job.refresh_from_db()
        code = job.code_dataset
        draft.delete()
        drop_code(code=code, actor=actor)


def drop_code(*, code: Dataset | None, actor: str) -> None:
    """Delete code that no job refers to any more."""
    if code is None or Job.objects.filter(code_dataset=code).exists():
        return
    code.refresh_from_db()
    if code.state not in (DatasetState.EXPIRING, DatasetState.PURGED):
        staging.delete_dataset(dataset=code, actor=actor, reason=DatasetReason.DELETED_BY_PERSON)


COPIED = [
    "work_kind language script command finish_command code_dataset runtime gpus gpu_memory_bytes",
    "cpus memory_bytes scratch_bytes time_limit shard_count parallel work_retries finish_gpus",
    "output_keep_days output_limit_bytes keep_log keep_code",
]


def copy_as_draft(*, job: Job, actor: str) -> Job:
    """A draft with the same four declarations. Secret values are not copied."""
    with transaction.atomic():
        values = {name: getattr(job, name) for line in COPIED for name in line.split()}
        copy = Job.objects.create(
            team=job.team,
            name=job.name,
            created_by=actor,
            created_at=db_now(),
            rerun_of=job,
            **values,
        )
        for row in job.inputs.all():
            copy.inputs.create(
                dataset=row.dataset,
                mount=row.mount,
                patterns=row.patterns,
                split=row.split,
                after=row.after,
            )
        for path in job.output_paths.all():
            copy.output_paths.create(pattern=path.pattern, optional=path.optional)
        for variable in job.variables.filter(secret=False):
            copy.variables.create(name=variable.name, stored=variable.stored)
        copy.note("copied", at=copy.created_at, actor=actor, detail={"from": job.code})
    return copy

"""From the form to rows: a draft as it was typed, and a declared job ready to submit."""

from datetime import datetime

from django.db import transaction

from jobs import services
from jobs.code import CodeFile
from jobs.forms.typed import Typed
from jobs.forms.whole import JobForm
from jobs.models import After, Job, JobInput, OutputPath, Variable, WorkKind
from jobs.states import JobState
from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from portal.base.unseen import is_blank, unseen_in
from portal.teams.models import Team
from staging import services as staging
from staging.models import Dataset
from staging.states import DatasetKind, DatasetReason

NAMELESS = "Draft without a name"


def save_draft(
    *,
    team: Team,
    actor: str,
    form: JobForm,
    typed: Typed,
    job: Job | None,
    form_key: str = "",
) -> Job:
    """Keep what was typed, right or wrong, with the code and the secrets that came with it.

    `form` has been validated (its errors do not matter here). Raises Conflict when the job is no
    draft any more, and what staging raises when there is no room for the code.
    """
    code = None
    if form.work.code_files:
        code = store_code(team=team, actor=actor, files=form.work.code_files, name=_name(typed))
    with transaction.atomic():
        at = db_now()
        job = _open_draft(team, actor, at, job, form_key)
        replaced = job.code_dataset if code else None
        secrets = keep_secrets(job=job, form=form)
        job.name, job.draft = _name(typed), _with_kept(typed, secrets)
        job.code_dataset = code or job.code_dataset
        job.save(update_fields=["name", "draft", "code_dataset"])
        job.note("saved", at=at, actor=actor)
        services.drop_code(code=replaced, actor=actor)
    return job


def _name(typed: Typed) -> str:
    raw = (typed.get("name") or [""])[-1]
    plain = "".join(c for c in raw if not unseen_in(c)).strip()[:120]
    return NAMELESS if is_blank(plain) else plain


def _open_draft(team: Team, actor: str, at: datetime, job: Job | None, form_key: str) -> Job:
    """The draft's row, held for this transaction; a new one when there is none.

    The same page sent twice at once finds the row that its other sending made.
    """
    if job is None:
        values = {"name": NAMELESS, "created_by": actor, "created_at": at}
        if not form_key:
            return Job.objects.create(team=team, **values)
        job, made = Job.objects.get_or_create(team=team, form_key=form_key, defaults=values)
        if made:
            return job
    if not Job.objects.filter(pk=job.pk, state=JobState.DRAFT).update(name=job.name):
        raise Conflict("This job is no longer a draft. Copy it as a new job to change it.")
    job.refresh_from_db()
    return job


def _with_kept(typed: Typed, secrets: set[str]) -> Typed:
    """Mark the rows whose secret is stored, so that the next page says "kept, not shown"."""
    kept = dict(typed)
    for name in typed:
        start, _, field = name.rpartition("-")
        if start.startswith("vars-") and field == "secret":
            variable = (typed.get(f"{start}-name") or [""])[-1].strip()
            kept[f"{start}-kept"] = [variable if variable in secrets else ""]
    return kept


def keep_secrets(*, job: Job, form: JobForm) -> set[str]:
    """Replace the job's stored secrets by the form's; a box left empty keeps what was stored."""
    stored = dict(job.variables.filter(secret=True).values_list("name", "stored"))
    rows: list[Variable] = []
    for row in form.variables.said:
        values = row.cleaned_data
        if not values.get("secret") or not values.get("name"):
            continue
        variable = Variable(job=job, name=values["name"], secret=True)
        if values.get("value"):
            variable.set_value(values["value"])
        elif row.kept_name in stored:
            variable.stored = stored[row.kept_name]
        else:
            continue
        rows.append(variable)
    job.variables.all().delete()
    Variable.objects.bulk_create(rows)
    return {row.name for row in rows}


def store_code(*, team: Team, actor: str, files: list[CodeFile], name: str) -> Dataset:
    """The code as a sealed dataset of kind code. Nothing of it is left when it does not fit."""
    dataset = staging.create_dataset(
        team=team, name=f"Code of {name}"[:120], actor=actor, kind=DatasetKind.CODE
    )
    try:
        for file in files:
            staging.store_bytes(
                dataset=dataset,
                path=file.path,
                content=file.open(),
                size=file.size,
                executable=file.executable,
                actor=actor,
            )
        return staging.seal_dataset(dataset=dataset, actor=actor)
    except DomainError:
        dataset.refresh_from_db()
        staging.delete_dataset(dataset=dataset, actor=actor, reason=DatasetReason.ABANDONED)
        raise


def submit_form(*, job: Job, form: JobForm, actor: str) -> Job:
    """Declare the valid form on its draft and submit it: everything or nothing."""
    with transaction.atomic():
        declare(job=job, form=form, actor=actor)
        return services.submit(job=job, actor=actor)


def declare(*, job: Job, form: JobForm, actor: str) -> Job:
    """Write the four declarations of a valid form onto a draft, replacing what it had."""
    with transaction.atomic():
        changed = Job.objects.filter(pk=job.pk, state=JobState.DRAFT).update(**columns(form))
        if not changed:
            raise Conflict("This job is no longer a draft. Copy it as a new job to change it.")
        job.refresh_from_db()
        _declare_variables(job, form)
        _declare_inputs(job, form)
        job.output_paths.all().delete()
        OutputPath.objects.bulk_create(
            OutputPath(job=job, pattern=v["pattern"], optional=v["optional"])
            for v in (row.cleaned_data for row in form.paths.said)
        )
        if job.work_kind != WorkKind.CODE and job.code_dataset:
            unused, job.code_dataset = job.code_dataset, None
            job.save(update_fields=["code_dataset"])
            services.drop_code(code=unused, actor=actor)
    return job


def columns(form: JobForm) -> dict[str, object]:
    """The job's columns from a valid form; bytes in bytes, lengths as timedeltas."""
    work, request, output = (part.cleaned_data for part in form.single)
    kind = work["work_kind"]
    return {
        "name": work["name"],
        "work_kind": kind,
        "language": work["language"],
        "script": work["script"] if kind == WorkKind.SCRIPT else "",
        "command": {WorkKind.COMMAND: work["command"], WorkKind.CODE: work["start"]}.get(kind, ""),
        "finish_command": work["finish_command"],
        "runtime": work["runtime"],
        "gpus": request["gpus"],
        "gpu_memory_bytes": request["gpu_memory"] or 0,
        "cpus": request["cpus"],
        "memory_bytes": request["memory"],
        "scratch_bytes": request["scratch"],
        "time_limit": request["hours"],
        "shard_count": request["shards"],
        "parallel": request["parallel"],
        "needed_by": request["needed_by"],
        "work_retries": request["retries"] or 0,
        "finish_gpus": request["finish_gpus"] or 0,
        "output_keep_days": output["keep_days"],
        "output_limit_bytes": output["limit"],
        "keep_log": output["keep_log"],
        "keep_code": output["keep_code"],
    }


def _declare_variables(job: Job, form: JobForm) -> None:
    keep_secrets(job=job, form=form)
    Variable.objects.bulk_create(
        Variable(job=job, name=values["name"], stored=values["value"])
        for values in (row.cleaned_data for row in form.variables.said)
        if not values["secret"]
    )


def _declare_inputs(job: Job, form: JobForm) -> None:
    job.inputs.all().delete()
    JobInput.objects.bulk_create(
        JobInput(
            job=job,
            dataset=values["dataset"],
            mount=values["mount"],
            patterns=values["patterns"],
            split=bool(values["split"]),
            after=values["after"] or After.KEEP,
            file_count=values["files"],
            byte_count=values["bytes"],
        )
        for values in (row.cleaned_data for row in form.inputs.said)
    )

"""A job's rows as the form would have been typed: how a copied job is shown for editing."""

from jobs.forms.fields import gib_text, hours_text
from jobs.forms.typed import Typed
from jobs.models import Job, WorkKind


def typed_of_job(job: Job) -> Typed:
    """Secrets are named by nobody here: only the rows that may be shown are restored."""
    typed = {name: [str(value)] for name, value in _single(job).items()}
    typed |= {name: ["on"] for name in ("keep_log", "keep_code") if getattr(job, name)}
    for n, row in enumerate(job.inputs.select_related("dataset")):
        typed |= _row(
            f"inputs-{n}",
            dataset=row.dataset.code,
            mount=row.mount,
            patterns="\n".join(row.patterns),
            split="files" if row.split else "",
            after=row.after,
        )
    for n, path in enumerate(job.output_paths.all()):
        typed |= _row(
            f"paths-{n}", pattern=path.pattern, **({"optional": "on"} if path.optional else {})
        )
    for n, variable in enumerate(job.variables.all()):
        shown = (
            {"secret": "on", "kept": variable.name}
            if variable.secret
            else {"value": variable.stored}
        )
        typed |= _row(f"vars-{n}", name=variable.name, **shown)
    return typed


def _row(prefix: str, **values: str) -> Typed:
    return {f"{prefix}-row": ["1"]} | {f"{prefix}-{name}": [text] for name, text in values.items()}


def _single(job: Job) -> dict[str, object]:
    code = job.work_kind == WorkKind.CODE
    return {
        "name": job.name,
        "work_kind": job.work_kind,
        "language": job.language,
        "script": job.script,
        "command": "" if code else job.command,
        "start": job.command if code else "",
        "finish_command": job.finish_command,
        "runtime": job.runtime,
        "gpus": job.gpus,
        "hours": hours_text(job.time_limit),
        "shards": job.shard_count,
        "needed_by": job.needed_by.strftime("%Y-%m-%dT%H:%M") if job.needed_by else "",
        "gpu_memory": gib_text(job.gpu_memory_bytes),
        "cpus": job.cpus,
        "memory": gib_text(job.memory_bytes),
        "scratch": gib_text(job.scratch_bytes),
        "parallel": job.parallel or "",
        "retries": job.work_retries,
        "finish_gpus": job.finish_gpus,
        "keep_days": job.output_keep_days or "",
        "limit": gib_text(job.output_limit_bytes),
    }

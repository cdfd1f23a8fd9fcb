"""What the job form's buttons do. One page, one POST address; `action` names the button."""

import re

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from jobs.declare import save_draft, submit_form
from jobs.forms.data import InputForm
from jobs.forms.restored import typed_of_job
from jobs.forms.typed import Typed, as_query, typed_of, with_row, without_row
from jobs.forms.whole import JobForm
from jobs.models import Job
from jobs.states import JobState
from jobs.summary import arithmetic, ask_of_form, sentence
from portal.base.codes import ALPHABET, new_code
from portal.base.errors import DomainError
from portal.teams.access import actor_of
from portal.teams.models import Team
from staging.models import Dataset
from staging.states import DatasetState

FORM_KEY = re.compile(f"[{ALPHABET}]{{20}}")
ROW_ACTION = re.compile(r"(add|remove)-(vars|inputs|paths)(?:-(\d{1,4}))?")
GONE = (DatasetState.EXPIRING, DatasetState.PURGED, DatasetState.FAILED)


def job_form(team: Team, job: Job | None, **given: object) -> JobForm:
    """The form in the light of what the draft has in store already."""
    if job is None:
        return JobForm(team=team, **given)  # type: ignore[arg-type]
    secrets = tuple(job.variables.filter(secret=True).values_list("name", flat=True))
    return JobForm(team=team, secrets=secrets, code=kept_code(job), **given)  # type: ignore[arg-type]


def kept_code(job: Job) -> Dataset | None:
    code = job.code_dataset
    return None if code is None or code.state in GONE else code


def draft_form(team: Team, job: Job | None) -> JobForm:
    if job is None:
        return job_form(team, None)
    return job_form(team, job, typed=job.draft or typed_of_job(job))


def page(
    request: HttpRequest, form: JobForm, job: Job | None, *, status: int = 200, moved: str = ""
) -> HttpResponse:
    """The whole page. `moved` is the id of the part where the reader was."""
    context = {"form": form, "job": job, "moved": moved, **preview_context(form)}
    context["form_key"] = form_key_of(request) or new_code(20)
    return render(request, "jobs/form.html", context, status=status)


def form_key_of(request: HttpRequest) -> str:
    """What tells this page's sendings from another page's; empty where it is not one of ours."""
    key = request.POST.get("form_key", "")
    return key if FORM_KEY.fullmatch(key) else ""


def preview_context(form: JobForm) -> dict[str, object]:
    ask = ask_of_form(form)
    parts = [part for row in form.inputs if (part := row.part)]
    return {
        "parts": parts,
        "split": any(row["split"].value() == "files" for row in form.inputs if row.part),
        "sentence": sentence(ask),
        "arithmetic": arithmetic(ask),
        "total_files": sum(part.files for part in parts),
        "total_bytes": sum(part.bytes for part in parts),
    }


def answer(request: HttpRequest, team: Team, job: Job | None) -> HttpResponse:
    """Do what the pressed button says; nothing that was typed or sent is lost on the way."""
    action, key = request.POST.get("action", ""), form_key_of(request)
    if not action:  # the weakest act: the page is shown again
        messages.warning(request, "No button came with the form, so nothing was submitted.")
    if job is None and key:
        job = Job.objects.filter(team=team, form_key=key).first()
    if job is not None and job.state != JobState.DRAFT:
        return _sent_before(request, job)
    form = job_form(team, job, data=request.POST, files=request.FILES)
    valid = form.is_valid()
    typed = typed_of(request.POST)
    if must_keep(form, action, valid):
        try:
            job = save_draft(
                team=team, actor=actor_of(request), form=form, typed=typed, job=job, form_key=key
            )
        except DomainError as error:
            form.refuse("id_code_zip" if form.work.code_files else "work", str(error))
            return page(request, form, job, status=error.status)
        # From here on the stored code and secrets stand for what was sent.
        files = None if form.work.code_files else request.FILES
        typed = job.draft
        form = job_form(team, job, data=as_query(typed), files=files)
        valid = form.is_valid()
    if action == "save" and job is not None:
        messages.success(request, "The draft is saved. Nothing has been submitted.")
        return redirect("job_edit", code=job.code)
    if action == "submit":
        return _submit(request, team, job, form, valid)
    typed, moved = _rows_changed(typed, action)
    return page(request, job_form(team, job, typed=typed), job, moved=moved)


def must_keep(form: JobForm, action: str, valid: bool) -> bool:
    """Whether a draft is to be saved: asked for, about to be submitted, or to lose nothing."""
    asked = action == "save" or (action == "submit" and valid)
    return asked or bool(form.work.code_files) or form.has_secrets


def _submit(
    request: HttpRequest, team: Team, job: Job | None, form: JobForm, valid: bool
) -> HttpResponse:
    if not valid or job is None:
        return page(request, form, job, status=422)
    try:
        submit_form(job=job, form=form, actor=actor_of(request))
    except DomainError as error:
        job.refresh_from_db()
        if job.state != JobState.DRAFT:  # the same page was sent twice; the other one was first
            return _sent_before(request, job)
        form.refuse("request", str(error))
        return page(request, form, job, status=error.status)
    return redirect("job", code=job.code)


def _sent_before(request: HttpRequest, job: Job) -> HttpResponse:
    sentence = "This page was submitted before, as this job. Copy it as a new job to change it."
    messages.info(request, sentence)
    return redirect("job", code=job.code)


def _rows_changed(typed: Typed, action: str) -> tuple[Typed, str]:
    """Add or remove a row; any other action only shows the page again."""
    match = ROW_ACTION.fullmatch(action)
    if match is None:
        return typed, "preview" if action == "preview" else ""
    verb, prefix, number = match.groups()
    if verb == "add":
        return with_row(typed, prefix), prefix
    if number is None:
        return typed, prefix
    return without_row(typed, prefix, int(number)), prefix


def row_of(form: JobForm, prefix: str) -> InputForm | None:
    """The input row that a fragment is asked for."""
    return next((row for row in form.inputs if row.prefix == prefix), None)

"""Pages of jobs: list, form, copy, cancel, delete, logs. They read and call services only."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from jobs import clearing, formpage, services
from jobs.confirm import confirm_cancel, confirm_clear, confirm_delete
from jobs.joblist import FILTERS, listed
from jobs.logpage import attempts, chosen_attempt, log_context, shard_of
from jobs.logs import log_size, stream_log
from jobs.models import Job
from jobs.multipart import takes_folders
from jobs.states import JobState
from portal.base.errors import Conflict, NotFound
from portal.teams.access import actor_of, of_my_teams, require_team

JOBS_A_PAGE = 25
form_methods = require_http_methods(["GET", "HEAD", "POST"])


def _job(request: HttpRequest, code: str) -> Job:
    if not code.isalnum():  # no code is; and PostgreSQL refuses a NUL
        raise NotFound("There is nothing here, or it belongs to another team.")
    return of_my_teams(request, Job.objects.select_related("team", "code_dataset"), code)


def _draft(request: HttpRequest, code: str) -> Job:
    job = _job(request, code)
    if job.state != JobState.DRAFT:
        raise Conflict("This job has been submitted. Copy it as a new job to change it.")
    return job


@login_required
@require_GET
def jobs(request: HttpRequest) -> HttpResponse:
    team = require_team(request)
    chosen = request.GET.get("show", "all")
    chosen = chosen if chosen in FILTERS else "all"
    page = Paginator(FILTERS[chosen].of(team), JOBS_A_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "rows": listed(page.object_list),
        "show": chosen,
        "filter": FILTERS[chosen],
        "filters": FILTERS,
    }
    return render(request, "jobs/list.html", context)


@login_required
@takes_folders
@form_methods
def job_new(request: HttpRequest) -> HttpResponse:
    team = require_team(request)
    if request.method == "POST":
        return formpage.answer(request, team, None)
    return formpage.page(request, formpage.draft_form(team, None), None)


@login_required
@takes_folders
@form_methods
def job_edit(request: HttpRequest, code: str) -> HttpResponse:
    job = _draft(request, code)
    if request.method == "POST":
        return formpage.answer(request, job.team, job)
    return formpage.page(request, formpage.draft_form(job.team, job), job)


@login_required
@require_POST
def job_preview(request: HttpRequest) -> HttpResponse:
    """The part of the form that restates it: tree, sentence, arithmetic. Writes nothing."""
    team = require_team(request)
    code = request.POST.get("job", "")
    job = _job(request, code) if code else None
    form = formpage.job_form(job.team if job else team, job, data=request.POST)
    template = "jobs/parts/preview.html"
    if row := formpage.row_of(form, request.GET.get("row", "")):
        return render(request, "jobs/parts/ticks.html", {"row": row})
    return render(request, template, {"form": form, **formpage.preview_context(form)})


@login_required
@require_POST
def job_copy(request: HttpRequest, code: str) -> HttpResponse:
    copy = services.copy_as_draft(job=_job(request, code), actor=actor_of(request))
    messages.success(request, "This is a copy as a draft. Nothing has been submitted.")
    return redirect("job_edit", code=copy.code)


@login_required
@form_methods
def job_cancel(request: HttpRequest, code: str) -> HttpResponse:
    job = _job(request, code)
    if request.method == "POST":
        services.cancel(job=job, actor=actor_of(request))
        return redirect("job", code=job.code)
    services.check_cancel(job)
    return render(request, "parts/confirm.html", confirm_cancel(job))


@login_required
@form_methods
def job_delete(request: HttpRequest, code: str) -> HttpResponse:
    job = _draft(request, code)
    if request.method == "POST":
        services.delete_draft(job=job, actor=actor_of(request))
        messages.success(request, f"The draft “{job.name}” is deleted.")
        return redirect("jobs")
    return render(request, "parts/confirm.html", confirm_delete(job))


@login_required
@form_methods
def job_clear(request: HttpRequest, code: str) -> HttpResponse:
    """Take the output, delete the rest, get the receipt."""
    job = _job(request, code)
    if request.method == "POST":
        clearing.clear(job=job, actor=actor_of(request))
        messages.success(request, "Deleted. The receipt is under “What is left of this job”.")
        return redirect("job", code=job.code)
    if job.state != JobState.ENDED:
        raise Conflict("This job has not ended; what it needs stays until then.")
    return render(request, "jobs/clear.html", confirm_clear(job, clearing.leftovers(job)))


@login_required
@require_GET
def job_receipt(request: HttpRequest, code: str) -> JsonResponse:
    answer = JsonResponse(clearing.receipt(_job(request, code)), json_dumps_params={"indent": 2})
    answer["Content-Disposition"] = f'attachment; filename="{code}-receipt.json"'
    return answer


@login_required
@require_GET
def job_log(request: HttpRequest, code: str, shard: str) -> HttpResponse:
    context = log_context(request, _job(request, code), shard)
    template = "jobs/parts/log.html" if request.headers.get("HX-Request") else "jobs/log.html"
    return render(request, template, context)


@login_required
@require_GET
def job_log_raw(request: HttpRequest, code: str, shard: str) -> StreamingHttpResponse:
    job = _job(request, code)
    piece = shard_of(job, shard)
    lease = chosen_attempt(piece, attempts(piece), request.GET.get("attempt"))
    if lease is None or not log_size(lease.code):
        raise NotFound("This piece has written no log.")
    response = StreamingHttpResponse(
        stream_log(lease.code), content_type="application/octet-stream"
    )
    response["Content-Disposition"] = (
        f'attachment; filename="{job.code}-{shard}-{lease.number}.log"'
    )
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response

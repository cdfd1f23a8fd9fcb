"""The pages that join several nouns: home, job, records, node board. They only read."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.views.decorators.http import require_safe

from jobs.models import Job
from jobs.states import JobState
from portal.base.clock import db_now
from portal.base.errors import NotFound
from portal.pages import board, homepage, jobpage, records
from portal.teams.access import of_my_teams, require_team


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    team = request.team  # type: ignore[attr-defined]
    context = homepage.page_context(team, db_now()) if team else {}
    return render(request, "pages/home.html", context)


def _job_context(request: HttpRequest, job: Job) -> dict:
    only, page = request.GET.get("only", ""), request.GET.get("page")
    context = jobpage.page_context(job, db_now(), only=only, page=page)
    milestone = jobpage.milestone_of(job, context["steps"])
    return context | {"page_title": jobpage.title_of(job), "milestone": milestone}


@require_safe
@login_required
def job(request: HttpRequest, code: str) -> HttpResponse:
    found = of_my_teams(request, jobpage.with_parts(Job.objects.all()), code)
    if found.state == JobState.DRAFT:
        return redirect("job_edit", code=code)
    context = _job_context(request, found) | jobpage.declaration(found)
    return render(request, "pages/job.html", context)


@require_safe
@login_required
def job_live(request: HttpRequest, code: str) -> HttpResponse:
    """The live part alone. When the job has ended it comes without a poll, and polling stops."""
    found = of_my_teams(request, jobpage.with_parts(Job.objects.exclude(state="draft")), code)
    return render(request, "pages/job.html#live", _job_context(request, found) | {"alone": True})


@require_safe
@login_required
def records_page(request: HttpRequest) -> HttpResponse:
    team = require_team(request)
    context = records.page_context(team, request.GET.get("month", ""), request.GET.get("page"))
    return render(request, "pages/records.html", context)


@require_safe
@login_required
def records_csv(request: HttpRequest) -> HttpResponseBase:
    return records.csv_response(require_team(request), request.GET.get("month", ""))


@require_safe
@login_required
def record(request: HttpRequest, code: str) -> HttpResponse:
    found = of_my_teams(request, records.with_record(), code)
    return render(request, "pages/record.html", records.record_context(found))


@require_safe
@login_required
def record_json(request: HttpRequest, code: str) -> JsonResponse:
    found = of_my_teams(request, records.with_record(), code)
    response = JsonResponse(records.signed(found), json_dumps_params={"indent": 2})
    response["Content-Disposition"] = f'attachment; filename="record-{found.code}.json"'
    return response


@require_safe
@login_required
def nodes(request: HttpRequest) -> HttpResponse:
    """Operators only; to everyone else the board does not exist."""
    if not request.user.is_staff:
        raise NotFound("There is nothing here, or it belongs to another team.")
    return render(request, "pages/nodes.html", board.page_context(db_now()))


@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """Browsers ask for this name on pages that name no icon: downloads, the admin."""
    return redirect(static("icon.svg"))

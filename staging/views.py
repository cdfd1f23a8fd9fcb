"""The pages of staging."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Exists, OuterRef, Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from portal.base.clock import db_now
from portal.base.errors import DomainError
from portal.base.failures import wants_json
from portal.base.words import in_bytes, in_words
from portal.teams.access import actor_of, require_team
from portal.teams.mail import sends_mail
from staging import listing, services
from staging.access import my_dataset, my_input
from staging.datasets import ON_ITS_WAY_OUT
from staging.estimates.shown import all_shown, shown_of
from staging.estimates.subjects import of_dataset
from staging.forms import KeepForm, NewDatasetForm
from staging.history import history, who
from staging.keys import upload_key
from staging.models import Dataset, File
from staging.spool import spools
from staging.states import DatasetKind, DatasetReason, DatasetState
from staging.sync import panel

PER_PAGE = 50
LATEST_EVENTS = 50


@login_required
@require_GET
def staging(request: HttpRequest) -> HttpResponse:
    """The team's datasets, those that are gone at the end of the filters."""
    team = require_team(request)
    shown = request.GET.get("kind", "")
    # An output is a dataset from the submit on, and worth a row once something has come back.
    has_file = Exists(File.objects.filter(dataset=OuterRef("pk")))
    rows = Dataset.objects.of_team(team).filter(~Q(kind=DatasetKind.OUTPUT) | has_file)
    if shown == "deleted":
        rows = rows.filter(state=DatasetState.PURGED)
    else:
        rows = rows.exclude(state=DatasetState.PURGED)
        if shown in DatasetKind.values:
            rows = rows.filter(kind=shown)
    page = Paginator(rows.order_by("-created_at", "-id"), PER_PAGE).get_page(
        request.GET.get("page")
    )
    going = all_shown([of_dataset(dataset.code) for dataset in page.object_list], db_now())
    rows_with = [
        (dataset, listing.totals_of(dataset), going.get(of_dataset(dataset.code)))
        for dataset in page.object_list
    ]
    return render(request, "staging/list.html", {"page": page, "rows": rows_with, "shown": shown})


@login_required
@require_http_methods(["GET", "POST"])
def dataset_new(request: HttpRequest) -> HttpResponse:
    """Name a dataset; its page takes the files."""
    team = require_team(request)
    policy = listing.policy_sentence(team)
    form = NewDatasetForm(request.POST or None, policy=policy)
    if request.method == "POST" and form.is_valid():
        row = services.create_dataset(
            team=team,
            actor=actor_of(request),
            **form.cleaned_data,
        )
        return redirect("dataset", row.code)
    status = 400 if form.is_bound else 200
    return render(request, "staging/new.html", {"form": form}, status=status)


def _facts(dataset: Dataset) -> dict[str, Any]:
    """What every page of a dataset says beside its files."""
    return {
        "dataset": dataset,
        "reason": DatasetReason(dataset.reason).label if dataset.reason else "",
        "held_by": list(dataset.hold_rows.order_by("created_at")),
        "told": sends_mail(),
        "retention": listing.retention_sentence(dataset),
        "events": history(dataset, LATEST_EVENTS),
        "gone": dataset.state in ON_ITS_WAY_OUT,
        "broken": dataset.state in (DatasetState.FAILED, DatasetState.STALE),
        "deleted_by": who(dataset.purged_by),
    }


def _files(request: HttpRequest, dataset: Dataset) -> dict[str, Any]:
    """One page of one folder."""
    folder = listing.find_folder(dataset, request.GET.get("folder", "").strip("/"))
    page = listing.rows_of(dataset, folder, request.GET.get("page"))
    if dataset.fed_by:
        panel.name_states(dataset, page.object_list)
    return {"folder": folder, "crumbs": listing.crumbs_of(folder), "page": page}


def _moving(request: HttpRequest, dataset: Dataset) -> dict[str, Any]:
    """The counts, and whether they move."""
    if dataset.fed_by:
        found = panel.panel_of(dataset)
        return found | {"totals": found["marks"], "open": False}
    going = shown_of(of_dataset(dataset.code), db_now())
    return {
        "totals": listing.totals_of(dataset),
        "pace": going.pace if going is not None and going.p50 is not None else "",
        "active": dataset.state in listing.ACTIVE,
        "open": listing.is_open(dataset),
    }


def _template(dataset: Dataset) -> str:
    return "staging/sync/dataset.html" if dataset.fed_by else "staging/dataset.html"


def _page(request: HttpRequest, row: Dataset, form: KeepForm, status: int = 200) -> HttpResponse:
    context = _facts(row) | _moving(request, row) | _files(request, row) | {"keep_form": form}
    return render(request, _template(row), context, status=status)


@login_required
@require_GET
def dataset(request: HttpRequest, code: str) -> HttpResponse:
    """One dataset: its state, files, retention, holders and history."""
    return _page(request, my_dataset(request, code), KeepForm())


@login_required
@require_GET
def dataset_live(request: HttpRequest, code: str) -> HttpResponse:
    """The part that moves, as its own address. The files of a sync, which may be a million, come
    with it only when its state is another than the page has seen."""
    row = my_dataset(request, code)
    context = _facts(row) | _moving(request, row) | {"live": True}
    if not row.fed_by or request.GET.get("was") != context["shown"]:
        context |= _files(request, row) | {"files_too": True}
    return render(request, f"{_template(row)}#live", context)


@login_required
@require_POST
@spools
def dataset_upload(request: HttpRequest, code: str) -> HttpResponse:
    """Files by a plain form, for browsers without scripts."""
    row = my_input(request, code)
    chosen = request.FILES.getlist("files")
    if not chosen:
        messages.warning(request, "No file was chosen. Choose at least one.")
    for file in chosen:
        try:
            services.store_bytes(
                dataset=row,
                path=_path_of(request, file.name or ""),
                content=file,
                size=file.size or 0,
                actor=actor_of(request),
            )
        except DomainError as error:
            messages.warning(request, str(error))
            break
    else:
        if chosen:
            messages.success(request, f"{len(chosen)} uploaded. Add more, or finish the dataset.")
    return redirect("dataset", row.code)


def _path_of(request: HttpRequest, name: str) -> str:
    folder = request.POST.get("folder", "").strip().strip("/")
    return f"{folder}/{name}" if folder else name


@login_required
@require_POST
def dataset_key(request: HttpRequest, code: str) -> HttpResponse:
    """Show an upload key once, with the command that uses it."""
    row = my_input(request, code)
    context = {
        "dataset": row,
        "key": upload_key(row, actor_of(request)),
        "address": f"{settings.PUBLIC_URL}{reverse('tus_create')}",
        "lifetime": in_words(settings.UPLOAD_LIFETIME),
    }
    response = render(request, "staging/key.html", context)
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_POST
def dataset_remove(request: HttpRequest, code: str) -> HttpResponse:
    """Take one file out of a dataset that is still open."""
    row = my_input(request, code)
    path = request.POST.get("path", "")
    services.remove_file(dataset=row, path=path, actor=actor_of(request))
    if wants_json(request):
        return JsonResponse({"removed": path})
    return redirect("dataset", row.code)


@login_required
@require_POST
def dataset_keep(request: HttpRequest, code: str) -> HttpResponse:
    """A person sets the date of deletion."""
    row = my_dataset(request, code)
    form = KeepForm(request.POST)
    if form.is_valid():
        services.set_expiry(
            dataset=row,
            days=form.cleaned_data["keep_days"],
            actor=actor_of(request),
        )
        messages.success(request, "The date was set.")
        return redirect("dataset", row.code)
    return _page(request, row, form, status=400)


@login_required
@require_http_methods(["GET", "POST"])
def dataset_delete(request: HttpRequest, code: str) -> HttpResponse:
    """Say what deletion means, then do it."""
    row = my_dataset(request, code)
    if request.method == "POST":
        services.delete_dataset(
            dataset=row,
            actor=actor_of(request),
            reason=DatasetReason.DELETED_BY_PERSON,
        )
        return redirect("dataset", row.code)
    totals = listing.totals_of(row)
    held_by = list(row.hold_rows.order_by("created_at"))
    context = {
        "dataset": row,
        "held_by": held_by,
        "title": f"Delete “{row.name}”?",
        "consequence": (
            f"{totals.files:,} file{'s' if totals.files != 1 else ''} with "
            f"{in_bytes(totals.size)} leave{'' if totals.files != 1 else 's'} the store for good. "
            "Bytes that another dataset of your team also holds stay there. The list of files "
            "stays, with who deleted it and when."
        ),
        "action": reverse("dataset_delete", args=[row.code]),
        "button": "" if held_by else "Delete the data",
        "back": reverse("dataset", args=[row.code]),
        "back_label": "Keep it",
    }
    return render(request, "staging/delete.html", context)

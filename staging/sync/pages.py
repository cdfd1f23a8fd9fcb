"""The pages of sync: connections, a new dataset from a source, and the verbs of a sync."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.base.errors import DomainError, Forbidden, NotFound
from portal.teams.access import actor_of, memberships, of_my_teams, require_admin, require_team
from portal.teams.models import Membership, Team
from staging import listing, services
from staging.access import my_dataset
from staging.errors import Busy
from staging.models import Connection, Dataset, Source
from staging.sync import connections, previews, sources
from staging.sync.asking import asking
from staging.sync.connections import ENDED
from staging.sync.forms import ChangeConnectionForm, NewConnectionForm, SyncForm
from staging.sync.sources import Choice, Preview
from staging.sync.states import Access, SourceKind

GET_POST = require_http_methods(["GET", "HEAD", "POST"])
IN_USE = "A sync uses this connection. Cancel it or let it finish first."
FORGOTTEN = (
    "Its secret is forgotten at once. Datasets that it filled stay as they are, but cannot be "
    "listed again through it."
)
secrets_inside = sensitive_post_parameters("key_id", "secret")


def is_admin(request: HttpRequest, team: Team) -> bool:
    return memberships(request.user).filter(team=team, role=Membership.Role.ADMIN).exists()


def my_connection(request: HttpRequest, code: str) -> Connection:
    """A connection of a team of the person. Raises NotFound."""
    rows = Connection.objects.filter(deleted_at=None).select_related("team")
    return of_my_teams(request, rows, code)


def own_connection(request: HttpRequest, code: str) -> Connection:
    """One that the person may change. Raises NotFound for strangers, Forbidden for members."""
    row = my_connection(request, code)
    if row.access == Access.ROLE:
        raise Forbidden("It is on the operator's own role; only an operator changes or removes it.")
    if not is_admin(request, row.team):
        raise Forbidden("Only an admin of the team may do this.")
    return row


# -- connections


@login_required
@require_safe
def connection_list(request: HttpRequest) -> HttpResponse:
    team = require_team(request)
    rows = Connection.objects.of_team(team)
    return render(
        request,
        "staging/sync/connections.html",
        {"rows": rows, "is_admin": is_admin(request, team)},
    )


@login_required
@never_cache
@secrets_inside
@GET_POST
def connection_new(request: HttpRequest) -> HttpResponse:
    team = require_admin(request)
    initial = {"path_style": True, "md5_etags": True}
    form = NewConnectionForm(request.POST if request.method == "POST" else None, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            row = connections.create_connection(
                team=team, actor=actor_of(request), **form.cleaned_data
            )
        except DomainError as error:
            form.add_error("name" if error.status == 409 else None, str(error))
        else:
            messages.success(request, "The connection was added. Test it before it is used.")
            return redirect("connection", row.code)
    return _connection_form(request, form, title="Add a connection")


def _connection_form(request: HttpRequest, form: Any, **context: Any) -> HttpResponse:
    status = 400 if form.errors else 200
    more = [form[name] for name in ("path_style", "md5_etags")]
    context |= {"form": form, "more": more, "open": any(field.errors for field in more)}
    return render(request, "staging/sync/connection_form.html", context, status=status)


@login_required
@never_cache
@require_safe
def connection(request: HttpRequest, code: str) -> HttpResponse:
    """Where a connection leads, whether it works, what uses it. No secret."""
    row = my_connection(request, code)
    at_work = Source.objects.filter(connection=row).exclude(state__in=ENDED)
    context = {
        "connection": row,
        "lent": row.access == Access.ROLE,
        "may_change": row.access != Access.ROLE and is_admin(request, row.team),
        "used_by": at_work.select_related("dataset").order_by("-created_at")[:20],
    }
    return render(request, "staging/sync/connection.html", context)


@login_required
@never_cache
@secrets_inside
@GET_POST
def connection_change(request: HttpRequest, code: str) -> HttpResponse:
    """Name, region and key; endpoint and bucket never change."""
    row = own_connection(request, code)
    initial = {name: getattr(row, name) for name in ("name", "region", "path_style", "md5_etags")}
    form = ChangeConnectionForm(request.POST if request.method == "POST" else None, initial=initial)
    if row.access != Access.KEYS:
        del form.fields["key_id"], form.fields["secret"]
    if request.method == "POST" and form.is_valid():
        try:
            connections.change_connection(
                connection=row, actor=actor_of(request), **form.cleaned_data
            )
        except DomainError as error:
            form.add_error("name" if error.status == 409 else None, str(error))
        else:
            messages.success(request, "The connection was changed. Test it again.")
            return redirect("connection", row.code)
    return _connection_form(request, form, title=f"Change {row.name}", connection=row)


@login_required
@require_POST
def connection_test(request: HttpRequest, code: str) -> HttpResponse:
    """Any member may test; what came of it stands on the connection's page."""
    row = my_connection(request, code)
    try:
        with asking():
            connections.test_connection(connection=row, actor=actor_of(request))
    except Busy as error:
        messages.warning(request, str(error))
    return redirect(f"{reverse('connection', args=[row.code])}#test")


@login_required
@GET_POST
def connection_remove(request: HttpRequest, code: str) -> HttpResponse:
    row = own_connection(request, code)
    if request.method == "POST":
        try:
            connections.delete_connection(connection=row, actor=actor_of(request))
        except DomainError as error:
            messages.warning(request, str(error))
            return redirect("connection", row.code)
        messages.success(request, f"The connection {row.name} was removed.")
        return redirect("connections")
    return render(request, "parts/confirm.html", _removal(row))


def _removal(row: Connection) -> dict[str, Any]:
    """What removing means; no button where a sync would be cut off."""
    used = Source.objects.filter(connection=row).exclude(state__in=ENDED).exists()
    return {
        "title": f"Remove {row.name}?",
        "consequence": IN_USE if used else FORGOTTEN,
        "action": reverse("connection_remove", args=[row.code]),
        "button": "" if used else "Remove the connection",
        "back": reverse("connection", args=[row.code]),
        "back_label": "Keep it",
    }


# -- a new dataset


@login_required
@require_safe
def sync_choose(request: HttpRequest) -> HttpResponse:
    """Where the data is: a connection, a server folder, or a list of addresses."""
    team = require_team(request)
    context = {
        "connections": Connection.objects.of_team(team),
        "folders": team.server_folders.all(),
        "is_admin": is_admin(request, team),
    }
    return render(request, "staging/sync/choose.html", context)


@login_required
@GET_POST
def sync_s3(request: HttpRequest, code: str) -> HttpResponse:
    row = my_connection(request, code)
    return _new(request, row.team, Choice(SourceKind.S3, connection=row))


@login_required
@GET_POST
def sync_folder(request: HttpRequest, code: str) -> HttpResponse:
    team = require_team(request)
    row = None if "\0" in code else team.server_folders.filter(code=code).first()
    if row is None:
        raise NotFound("There is no such server folder for this team.")
    return _new(request, team, Choice(SourceKind.FOLDER, folder=row))


@login_required
@GET_POST
def sync_addresses(request: HttpRequest) -> HttpResponse:
    return _new(request, require_team(request), Choice(SourceKind.URLS))


def _new(request: HttpRequest, team: Team, place: Choice) -> HttpResponse:
    """Choose, count, begin. Nothing begins that was not counted as it is chosen now."""
    policy = listing.policy_sentence(team)
    if request.method != "POST":
        form = SyncForm(kind=place.kind, policy=policy, initial=_again(request, team, place))
        return _new_page(request, place, form)
    form = SyncForm(request.POST, kind=place.kind, policy=policy)
    if not form.is_valid():
        return _new_page(request, place, form)
    choice = _choice_of(place, form.cleaned_data)
    seen = previews.opened(team, choice, form.cleaned_data["seen"])
    try:
        if request.POST.get("do") == "begin" and seen is not None and seen.files:
            return redirect("dataset", _begin(request, team, choice, form.cleaned_data).code)
        found = previews.look(team, choice, seen if request.POST.get("do") == "more" else None)
    except DomainError as error:
        form.add_error(None, str(error))
        return _new_page(request, place, form)
    recounted = request.POST.get("do") == "begin"
    return _new_page(request, place, form, team, choice, found, recounted=recounted)


def _again(request: HttpRequest, team: Team, place: Choice) -> dict[str, Any]:
    """What an earlier sync of the same place chose, to begin from."""
    code = request.GET.get("again", "")
    rows = Source.objects.filter(dataset__team=team, kind=place.kind).select_related("dataset")
    row = rows.filter(dataset__code=code).first() if code else None
    if row is None:
        return {}
    return {
        "name": row.dataset.name,
        "prefix": row.prefix,
        "addresses": row.addresses,
        "include": "\n".join(row.include),
        "exclude": "\n".join(row.exclude),
    }


def _choice_of(place: Choice, given: dict[str, Any]) -> Choice:
    return Choice(
        place.kind,
        connection=place.connection,
        folder=place.folder,
        prefix=given.get("prefix", ""),
        include=given["include"],
        exclude=given["exclude"],
        addresses=given.get("addresses", ""),
    )


def _begin(request: HttpRequest, team: Team, choice: Choice, given: dict[str, Any]) -> Dataset:
    """The dataset and its source, both or none."""
    actor = actor_of(request)
    with transaction.atomic():
        dataset = services.create_dataset(
            team=team, name=given["name"], keep_days=given["keep_days"], actor=actor
        )
        sources.create_source(dataset=dataset, choice=choice, actor=actor)
    return dataset


def _new_page(
    request: HttpRequest,
    place: Choice,
    form: SyncForm,
    team: Team | None = None,
    choice: Choice | None = None,
    found: previews.Look | None = None,
    **context: Any,
) -> HttpResponse:
    if found is not None and found.preview is not None and team and choice:
        context |= _preview_context(found.preview)
        context["seen"] = previews.sealed(team, choice, found.preview)
    context |= {"form": form, "place": place, "trouble": found.sentence if found else ""}
    return render(request, "staging/sync/new.html", context, status=400 if form.errors else 200)


def _preview_context(found: Preview) -> dict[str, Any]:
    largest = sorted(found.largest, key=lambda row: (-row[0], row[1]))
    share = sum(size for size, _ in largest) * 100 // found.size if found.size else 0
    return {"preview": found, "largest": largest, "share": share}


# -- the verbs of a sync


def my_source(request: HttpRequest, code: str) -> Source:
    """The source of a dataset of the person's teams. Raises NotFound."""
    row = Source.objects.filter(dataset=my_dataset(request, code)).select_related("dataset").first()
    if row is None:
        raise NotFound("No sync fills this dataset.")
    return row


ACTS: dict[str, Callable[..., Source]] = {
    "pause": sources.pause,
    "resume": sources.resume,
    "retry": sources.retry,
    "list_again": sources.list_again,
    "cancel": sources.cancel,
}
DONE = {
    "pause": "Paused. What is in the air lands and is kept.",
    "resume": "It goes on where it stopped.",
    "retry": "What could not be had is tried again.",
    "list_again": "The source is listed again; only what changed will move.",
    "cancel": "The sync was cancelled.",
}


@login_required
@require_POST
def sync_act(request: HttpRequest, code: str, verb: str) -> HttpResponse:
    """Pause, resume, try again, list again, cancel; a refusal is said on the dataset's page."""
    source = my_source(request, code)
    if verb not in ACTS:
        raise NotFound("There is no such act.")
    try:
        ACTS[verb](source=source, actor=actor_of(request))
    except DomainError as error:
        messages.warning(request, str(error))
    else:
        messages.success(request, DONE[verb])
    return redirect("dataset", source.dataset.code)


@login_required
@require_safe
def sync_cancel(request: HttpRequest, code: str) -> HttpResponse:
    """Say what cancelling means."""
    source = my_source(request, code)
    context = {
        "title": f"Cancel the sync of {source.dataset.name}?",
        "consequence": "What has arrived so far stays in the store until the dataset is deleted, "
        "and no job can use it. What had half arrived is removed. A sync that was cancelled does "
        "not go on; pausing keeps it.",
        "action": reverse("sync_act", args=[source.dataset.code, "cancel"]),
        "button": "Cancel the sync",
        "back": reverse("dataset", args=[source.dataset.code]),
        "back_label": "Let it go on",
    }
    return render(request, "parts/confirm.html", context)

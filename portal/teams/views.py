"""The pages of a team, and the two ways in that need no password: invitation, sign-in link."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.base.clock import db_now
from portal.base.errors import DomainError, NotFound
from portal.teams import accounts, mail, services
from portal.teams.access import (
    SESSION_KEY,
    actor_of,
    invitation_of_team,
    member_of_team,
    memberships,
    require_admin,
    require_team,
)
from portal.teams.forms import InviteForm, NewAccountForm, RoleForm, SwitchForm
from portal.teams.models import Membership, User
from portal.teams.signin import sign_in

EVENTS_SHOWN = 30


@login_required
@require_safe
def team(request: HttpRequest) -> HttpResponse:
    ours = require_team(request)
    context = {
        "members": ours.memberships.select_related("user").order_by("user__email"),
        "invitations": ours.invitations.open(db_now()).order_by("email"),
        "retention_days": ours.policy_days,
        "events": ours.events.order_by("-at", "-id")[:EVENTS_SHOWN],
        "is_admin": request.membership.role == Membership.Role.ADMIN,  # type: ignore[attr-defined]
    }
    return render(request, "teams/team.html", context)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invite(request: HttpRequest) -> HttpResponse:
    """The link stands on the answer to the POST and nowhere else, so it is shown once."""
    ours = require_admin(request)
    form = InviteForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            invited = services.invite(team=ours, actor=actor_of(request), **form.cleaned_data)
        except DomainError as error:
            form.add_error("email", str(error))
        else:
            context = {"invited": invited, "mailed": mail.sends_mail()}
            return render(request, "teams/invited.html", context)
    return render(request, "teams/invite.html", {"form": form})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    row = invitation_of_team(require_admin(request), pk)
    if request.method == "POST":
        services.withdraw_invitation(invitation=row, actor=actor_of(request))
        messages.info(request, f"The invitation of {row.email} was withdrawn.")
        return redirect("team")
    context = {
        "title": f"Withdraw the invitation of {row.email}",
        "consequence": "Its link stops working at once.",
        "button": "Withdraw the invitation",
        "action": request.path,
        "back": reverse("team"),
    }
    return render(request, "parts/confirm.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def role(request: HttpRequest, pk: int) -> HttpResponse:
    member = member_of_team(require_admin(request), pk)
    if request.method == "POST":
        form = RoleForm(request.POST)
        if not form.is_valid():
            raise DomainError("A role is either member or admin.")
        services.change_role(
            membership=member, role=form.cleaned_data["role"], actor=actor_of(request)
        )
        messages.info(request, f"{member.user.email} is now: {member.get_role_display()}.")
        return redirect("team")
    return render(request, "teams/role.html", {"member": member, "back": reverse("team")})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, pk: int) -> HttpResponse:
    """An admin removes a member; anybody may leave."""
    member = member_of_team(require_team(request), pk)
    leaving = member.user_id == request.user.pk
    if not leaving:
        require_admin(request)
    if request.method == "POST":
        services.remove_member(membership=member, actor=actor_of(request))
        messages.info(request, f"{member.user.email} is no longer a member of {member.team}.")
        return redirect("home" if leaving else "team")
    context = {"member": member, "leaving": leaving, "back": reverse("team")}
    return render(request, "teams/remove.html", context)


@login_required
@require_POST
def switch(request: HttpRequest) -> HttpResponse:
    form = SwitchForm(request.POST)
    if not form.is_valid():
        raise DomainError("The team to work in was not named.")
    chosen = memberships(request.user).filter(team__code=form.cleaned_data["team"]).first()
    if chosen is None:
        raise NotFound("There is no such team, or you are not a member of it.")
    request.session[SESSION_KEY] = chosen.team.code
    return redirect(form.cleaned_data["next"])


@never_cache
@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    row = services.find_invitation(token)
    if request.user.is_authenticated:
        return _join(request, row)
    known = User.objects.filter(email=row.email).first()
    typed = request.POST if request.method == "POST" else None
    form = NewAccountForm(typed, email=row.email)
    if known is None and request.method == "POST" and form.is_valid():
        password = form.cleaned_data["password1"]
        member = services.accept_with_new_account(invitation=row, password=password)
        return _welcome(request, member)
    context = {"invitation": row, "form": form, "known": known}
    return render(request, "teams/invitation.html", context)


def _join(request: HttpRequest, row) -> HttpResponse:
    if request.method == "POST":
        return _welcome(request, services.accept_invitation(invitation=row, user=request.user))  # type: ignore[arg-type]
    context = {"invitation": row, "wrong_account": request.user.email != row.email}  # type: ignore[union-attr]
    return render(request, "teams/invitation.html", context)


def _welcome(request: HttpRequest, member: Membership) -> HttpResponse:
    if not request.user.is_authenticated:
        sign_in(request, member.user, method="invitation")
    request.session[SESSION_KEY] = member.team.code
    messages.info(request, f"You are now a member of {member.team}.")
    return redirect("home")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def signin_link(request: HttpRequest, token: str) -> HttpResponse:
    """GET shows a button, so that a preview of the link does not use it up."""
    link = accounts.find_link(token)
    if request.method == "POST":
        sign_in(request, accounts.use_link(link=link), method="sign_in_link")
        return redirect(accounts.local_path(link.next_path))
    return render(request, "teams/signin_link.html", {"link": link})

"""What people and operators do to teams: one verb each. Every act leaves a TeamEvent."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.urls import reverse

from portal.base.clock import db_now
from portal.base.crypto import hash_token, new_token
from portal.base.errors import Conflict, DomainError, Forbidden, NotFound
from portal.base.unseen import is_blank, unseen_in
from portal.teams import mail
from portal.teams.accounts import drop_links
from portal.teams.models import Invitation, Membership, Team, User

Role = Membership.Role
LIMITS = ("quota_bytes", "max_gpus_per_job", "max_hours", "retention_days")
LONGEST_NAME = 80
MOST_INVITATIONS_PER_HOUR = 60


class LastAdmin(Conflict):
    """The team would be left without anybody who can invite or remove."""

    code = "last_admin"


class TooMany(DomainError):
    """More of one act than is sensible within an hour."""

    code = "too_many"
    status = 429


@dataclass(frozen=True)
class Invited:
    """A fresh invitation; `address` is the only place where its token is ever readable."""

    invitation: Invitation
    address: str


def create_team(
    *, name: str, actor: str, first_admin: str, **limits: int | None
) -> tuple[Team, Invited]:
    """A team whose first admin is invited by mail. `limits` are columns named in LIMITS."""
    _check_name(name)
    with transaction.atomic():
        at = db_now()
        try:
            with transaction.atomic():
                team = Team.objects.create(name=name, **limits)
        except IntegrityError as error:
            raise Conflict(f"There is a team named {name} already.") from error
        team.note("created", at=at, actor=actor)
        return team, invite(team=team, email=first_admin, role=Role.ADMIN, actor=actor)


def change_team(*, team: Team, actor: str, name: str, **limits: int | None) -> None:
    """Rename it, and set every limit named; None means that none is set."""
    _check_name(name)
    with transaction.atomic():
        at = db_now()
        before = _locked(team)
        changed = {key: new for key, new in limits.items() if getattr(before, key) != new}
        if before.name != name:
            team.note("renamed", at=at, actor=actor, old=before.name)
        if changed:
            said = ", ".join(f"{key} {'none' if v is None else v}" for key, v in changed.items())
            team.note("limits_changed", at=at, actor=actor, limits=said)
        Team.objects.filter(pk=team.pk).update(name=name, **changed)


def invite(*, team: Team, email: str, role: str, actor: str) -> Invited:
    """Invite an address. An earlier invitation of the same address stops working."""
    email = email.strip().lower()
    with transaction.atomic():
        at = db_now()
        _locked(team)
        if team.memberships.filter(user__email=email).exists():
            raise Conflict(f"{email} is a member of this team already.")
        if team.invitations.filter(created_at__gt=at - timedelta(hours=1)).count() >= (
            MOST_INVITATIONS_PER_HOUR
        ):
            raise TooMany("This team has sent many invitations within the hour. Go on later.")
        team.invitations.pending().filter(email=email).update(withdrawn_at=at)
        token = new_token()
        invitation = team.invitations.create(
            email=email,
            role=role,
            invited_by=actor[:254],
            token_hash=hash_token(token),
            expires_at=at + settings.INVITATION_LIFETIME,
        )
        team.note("invited", at=at, actor=actor, address=email, role=role)
    address = settings.PUBLIC_URL + reverse("invitation", args=[token])
    mail.send_after_commit(
        "teams/email/invitation", email, {"invitation": invitation, "address": address}
    )
    return Invited(invitation, address)


def withdraw_invitation(*, invitation: Invitation, actor: str) -> None:
    with transaction.atomic():
        at = db_now()
        done = Invitation.objects.pending().filter(pk=invitation.pk).update(withdrawn_at=at)
        if not done:
            raise Conflict("This invitation was used or withdrawn before.")
        invitation.team.note("invitation_withdrawn", at=at, actor=actor, address=invitation.email)


def find_invitation(token: str) -> Invitation:
    """The open invitation with this token; a dead one says what became of it."""
    row = Invitation.objects.filter(token_hash=hash_token(token)).select_related("team").first()
    if row is None:
        raise NotFound("There is no such invitation. The link may be incomplete.")
    if row.accepted_at:
        raise Conflict("This invitation was used before. Sign in to get to the team.")
    if row.withdrawn_at:
        raise Conflict("This invitation was withdrawn. Ask an admin of the team for a new one.")
    if row.expires_at <= db_now():
        raise Conflict("This invitation has expired. Ask an admin of the team for a new one.")
    return row


def accept_invitation(*, invitation: Invitation, user: User) -> Membership:
    """Join with an account that exists. It must be of the invited address."""
    if user.email != invitation.email:
        raise Forbidden(
            f"This invitation is for {invitation.email}, and you are signed in as {user.email}."
        )
    with transaction.atomic():
        at = db_now()
        return _join(invitation, user, at)


def accept_with_new_account(*, invitation: Invitation, password: str) -> Membership:
    """Join with a new account. The password was checked by the form's validators."""
    try:
        with transaction.atomic():
            at = db_now()
            user = User.objects.create_user(invitation.email, password)
            return _join(invitation, user, at)
    except IntegrityError as error:
        raise Conflict("There is an account with this address by now. Sign in with it.") from error


def _join(invitation: Invitation, user: User, at: datetime) -> Membership:
    used = Invitation.objects.open(at).filter(pk=invitation.pk).update(accepted_at=at)
    if not used:
        raise Conflict("This invitation was used, withdrawn or has expired.")
    membership, joined = Membership.objects.get_or_create(
        team=invitation.team, user=user, defaults={"role": invitation.role}
    )
    if joined:
        invitation.team.note("joined", at=at, actor=user.email, role=invitation.role)
    return membership


def change_role(*, membership: Membership, role: str, actor: str) -> None:
    """Make a member an admin or the reverse. What a former admin had sent out is withdrawn."""
    with transaction.atomic():
        at = db_now()
        _locked(membership.team)
        old = membership.role
        if role == old:
            return
        if role != Role.ADMIN:
            _keep_an_admin(membership)
        swapped = Membership.objects.filter(pk=membership.pk, role=old).update(role=role)
        if not swapped:
            raise Conflict("This membership was changed by somebody else meanwhile.")
        if role != Role.ADMIN:
            _withdraw_sent_by(membership, actor)
        membership.role = role
        membership.team.note(
            "role_changed", at=at, actor=actor, address=membership.user.email, old=old, role=role
        )


def remove_member(*, membership: Membership, actor: str) -> None:
    """End a membership and what hangs on it: sign-in links and invitations that it sent.

    Uploads ask `access.is_member` at every request, so their addresses end with the row.
    """
    with transaction.atomic():
        at = db_now()
        _locked(membership.team)
        _keep_an_admin(membership)
        email = membership.user.email
        deleted, _ = Membership.objects.filter(pk=membership.pk).delete()
        if not deleted:
            raise Conflict("This membership had ended before.")
        verb = "left" if actor == email else "removed"
        membership.team.note(verb, at=at, actor=actor, address=email)
        _withdraw_sent_by(membership, actor)
        drop_links(user=membership.user)


def _check_name(name: str) -> None:
    """A team's name stands in mail and on pages."""
    if found := unseen_in(name):
        raise DomainError(
            f"A team's name has 1 to {LONGEST_NAME} printable characters; it holds {found}."
        )
    if is_blank(name) or len(name) > LONGEST_NAME:
        raise DomainError(f"A team's name has 1 to {LONGEST_NAME} printable characters.")


def _locked(team: Team) -> Team:
    """Acts on one team's members happen one after the other.

    PostgreSQL locks the row; on SQLite the IMMEDIATE transaction does the same.
    """
    return Team.objects.select_for_update().get(pk=team.pk)


def _keep_an_admin(membership: Membership) -> None:
    """The row decides, not the instance: it may have become an admin since it was read."""
    admins = membership.team.memberships.filter(role=Role.ADMIN)
    others = admins.filter(user__is_active=True).exclude(pk=membership.pk)
    if admins.filter(pk=membership.pk).exists() and not others.exists():
        raise LastAdmin(
            "The last admin of a team cannot be removed. Make another member an admin first."
        )


def _withdraw_sent_by(membership: Membership, actor: str) -> None:
    """An invitation that a former admin sent could let that person in again."""
    sent = membership.team.invitations.pending().filter(invited_by=membership.user.email)
    for invitation in sent:
        withdraw_invitation(invitation=invitation, actor=actor)

"""Who may see what: one helper per noun. A stranger gets 404, a member without the right 403."""

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from portal.base.errors import Forbidden, NotFound
from portal.base.rows import fetch, find, table
from portal.teams.models import Invitation, Membership, Team, User

SESSION_KEY = "team"
NOT_HERE = "There is nothing here, or it belongs to another team."


class NoTeam(Forbidden):
    """A person of no team at a page of a team: told what a team is, and how to come into one."""

    page = "teams/none.html"


def memberships(user) -> QuerySet[Membership]:
    return Membership.objects.filter(user_id=user.pk).select_related("team").order_by("team__name")


def current_membership(request: HttpRequest) -> Membership | None:
    """The membership that the person works in: the one chosen in the session, else the first."""
    if not request.user.is_authenticated:
        return None
    rows = list(memberships(request.user))
    chosen = request.session.get(SESSION_KEY)
    return next((m for m in rows if m.team.code == chosen), rows[0] if rows else None)


def actor_of(request: HttpRequest) -> str:
    """The address of the signed-in person, as event rows name an actor."""
    if not request.user.is_authenticated:
        raise Forbidden("Sign in first.")
    return request.user.email


def require_team(request: HttpRequest) -> Team:
    """The current team; a person of no team is told so."""
    if request.team is None:  # type: ignore[attr-defined]
        raise NoTeam("You are not a member of any team. An admin of a team can invite you.")
    return request.team  # type: ignore[attr-defined]


def require_admin(request: HttpRequest) -> Team:
    team = require_team(request)
    if request.membership.role != Membership.Role.ADMIN:  # type: ignore[attr-defined]
        raise Forbidden("Only an admin of the team may do this.")
    return team


def of_my_teams[M: Model](request: HttpRequest, queryset: QuerySet[M], code: str) -> M:
    """The row with this public code if it belongs to any team of the person, else 404."""
    mine = memberships(request.user).order_by().values("team_id")
    # No code has a NUL, and PostgreSQL refuses to look for one.
    row = None if "\0" in code else queryset.filter(code=code, team_id__in=mine).first()
    if row is None:
        raise NotFound(NOT_HERE)
    return row


def plainly_of_my_teams[M: Model](request: HttpRequest, model: type[M], code: str) -> M:
    """As `of_my_teams`, for what is asked hundreds of times a second: nothing else is joined."""
    where = f"code = %s AND team_id IN (SELECT team_id FROM {table(Membership)} WHERE user_id = %s)"  # noqa: S608
    row = None if "\0" in code else find(model, where, [code, request.user.pk])
    if row is None:
        raise NotFound(NOT_HERE)
    return row


def member_of_team(team: Team, pk: int) -> Membership:
    row = team.memberships.filter(pk=pk).select_related("user", "team").first()
    if row is None:
        raise NotFound("There is no such member in this team.")
    return row


def invitation_of_team(team: Team, pk: int) -> Invitation:
    row = team.invitations.pending().filter(pk=pk).select_related("team").first()
    if row is None:
        raise NotFound("There is no such open invitation in this team.")
    return row


def is_member(email: str, team_id: int) -> bool:
    """Whether this address still belongs to an active member: capabilities end with it."""
    sql = (
        f"SELECT 1 FROM {table(Membership)} m JOIN {table(User)} u ON u.id = m.user_id"  # noqa: S608
        " WHERE m.team_id = %s AND u.email = %s AND u.is_active"
    )
    return fetch(sql, [team_id, email]) is not None

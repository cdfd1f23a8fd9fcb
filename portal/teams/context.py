"""What every page shows of the person's teams."""

from django.http import HttpRequest

from portal.teams.access import memberships


def current_team(request: HttpRequest) -> dict[str, object]:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    return {
        "team": getattr(request, "team", None),
        "membership": getattr(request, "membership", None),
        "my_teams": [m.team for m in memberships(user)],
    }

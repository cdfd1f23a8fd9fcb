"""Puts the person's current membership and team on the request, and names both in the logs."""

from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse

from portal.teams.access import current_membership


class TeamMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        membership = None
        if request.path in ("/healthz", "/readyz"):  # these answer without the database
            return self.get_response(request)
        if request.path.startswith("/tus/"):  # an address is a capability: no session is looked at
            return self.get_response(request)
        if request.user.is_authenticated:
            membership = current_membership(request)
            structlog.contextvars.bind_contextvars(user=request.user.pk)
        request.membership = membership  # type: ignore[attr-defined]
        request.team = membership.team if membership else None  # type: ignore[attr-defined]
        return self.get_response(request)

"""Signing somebody in without a password, after a token has proved the right to it."""

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import record_authentication
from django.http import HttpRequest

from portal.teams.models import User


def sign_in(request: HttpRequest, user: User, *, method: str) -> None:
    """Start a fresh session; `method` tells allauth that this person has just proved something.

    Without that note an account that has no password yet could not set one.
    """
    get_adapter(request).login(request, user)
    record_authentication(request, user, method=method)

"""allauth's adapter: an account begins with an invitation, never with a sign-up form."""

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import reverse

from portal.teams.accounts import is_local_path


class ClosedAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def is_safe_url(self, url: str) -> bool:
        """Redirects stay on this portal, so only a path is safe."""
        return bool(url) and is_local_path(url)

    def get_reset_password_from_key_url(self, key: str) -> str:
        """PUBLIC_URL, never the Host header of whoever asked for the mail."""
        uid, _, rest = key.partition("-")
        path = reverse("account_reset_password_from_key", kwargs={"uidb36": uid, "key": rest})
        return settings.PUBLIC_URL + path

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account_login")

    def get_client_ip(self, request: HttpRequest) -> str:
        """What the rate limits count by. Behind a socket without a proxy all share one bucket."""
        try:
            return super().get_client_ip(request)
        except PermissionDenied:
            return "unknown"

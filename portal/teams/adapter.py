"""allauth's adapter: an account begins with an invitation, never with a sign-up form."""

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import reverse

from portal.teams import mail
from portal.teams.accounts import is_local_path

log = structlog.get_logger(__name__)


class ClosedAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def is_safe_url(self, url: str) -> bool:
        """Redirects stay on this portal, so only a path is safe."""
        return bool(url) and is_local_path(url)

    def send_mail(self, template_prefix: str, email: str, context: dict) -> None:
        if mail.sends_mail():
            super().send_mail(template_prefix, email, context)
        else:
            log.info("mail_not_sent", template=template_prefix)

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

"""The mail with a link to choose a new password, as allauth makes it."""

import smtplib

import structlog
from allauth.account.forms import default_token_generator
from allauth.account.internal.flows.password_reset import request_password_reset
from django.http import HttpRequest

from portal.teams.models import User

log = structlog.get_logger(__name__)


def mail_reset(request: HttpRequest, user: User) -> None:
    """Send it now; a failure is logged, for the person can ask for the mail again."""
    try:
        request_password_reset(request, user.email, [user], default_token_generator)
    except (OSError, smtplib.SMTPException) as error:
        log.warning("mail_failed", template="password_reset_key", error=str(error))

"""Mail leaves after the commit. Where it cannot, that is logged: links are shown on pages too.

An installation without a mail server has the backend portal/base/nomail.py.
"""

import smtplib
from collections.abc import Mapping
from functools import partial

import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.template.loader import render_to_string

log = structlog.get_logger(__name__)


def sends_mail() -> bool:
    """Whether this installation has been told of a mail server."""
    return settings.MAILERS["default"]["BACKEND"] != settings.NO_MAIL


def send_after_commit(template: str, to: str, context: Mapping[str, object]) -> None:
    """Render `template`_subject.txt and `template`_message.txt and send them to one address."""
    subject, body = _render(template, context)
    transaction.on_commit(partial(_send, template, subject, body, to))


def send_now(template: str, to: str, context: Mapping[str, object]) -> bool:
    """As `send_after_commit`, at once; whether the mail server took it."""
    return _send(template, *_render(template, context), to)


def _render(template: str, context: Mapping[str, object]) -> tuple[str, str]:
    context = {"portal": settings.PUBLIC_URL, **context}
    subject = " ".join(render_to_string(f"{template}_subject.txt", context).split())
    return subject, render_to_string(f"{template}_message.txt", context)


def _send(template: str, subject: str, body: str, to: str) -> bool:
    try:
        send_mail(subject, body, settings.DEFAULT_FROM_EMAIL, [to])
    except (OSError, smtplib.SMTPException) as error:
        log.warning("mail_failed", template=template, error=str(error))
        return False
    return True

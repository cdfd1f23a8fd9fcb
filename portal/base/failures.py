"""What is answered when something outside the portal's code is away, and when code fails.

`outage` knows the errors that mean "the database (or broker) cannot be reached": they become a
503 with a sentence, from views (DomainErrorMiddleware) and from middleware (handler500) alike.
"""

import sys

import redis.exceptions
import structlog
from django.contrib.staticfiles.storage import staticfiles_storage
from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import get_template
from kombu.exceptions import OperationalError as BrokerError

log = structlog.get_logger(__name__)

PROGRAM_PATHS = ("/agent/", "/tus/", "/api/", "/healthz", "/readyz")
RETRY_AFTER_S = 5
BROKER_AWAY = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, BrokerError)
# SQLite raises OperationalError for mistakes in a query too; these mean the file or its disk.
SQLITE_AWAY = ("locked", "busy", "unable to open", "disk", "readonly")


def wants_json(request: HttpRequest) -> bool:
    accept = request.headers.get("Accept", "")
    return request.path.startswith(PROGRAM_PATHS) or accept.startswith("application/json")


def outage(error: BaseException | None) -> str:
    """The sentence for an error that means an outage, else nothing."""
    if isinstance(error, InterfaceError) or _database_away(error):
        return "The portal's database cannot be reached just now. Nothing was changed."
    if isinstance(error, BROKER_AWAY):
        return "The portal's broker cannot be reached just now. Nothing was changed."
    return ""


def _database_away(error: BaseException | None) -> bool:
    if not isinstance(error, OperationalError):
        return False
    return connection.vendor != "sqlite" or any(word in str(error) for word in SQLITE_AWAY)


def unavailable(request: HttpRequest, error: BaseException, sentence: str) -> HttpResponse:
    log.error("outage", sentence=sentence, error=str(error))
    response = plain(request, 503, "unavailable", "Not reachable just now", sentence)
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response


def plain(request: HttpRequest, status: int, code: str, title: str, sentence: str) -> HttpResponse:
    """An answer that needs no database, no session and no static file."""
    if wants_json(request):
        return JsonResponse({"error": code, "message": sentence}, status=status)
    context = {"title": title, "sentence": sentence, "stylesheet": _stylesheet()}
    return HttpResponse(get_template(f"{_page(status)}.html").render(context), status=status)


def _page(status: int) -> str:
    return "400" if status < 500 else "500"


def _stylesheet() -> str:
    """The stylesheet's address; none before the first collectstatic."""
    try:
        return staticfiles_storage.url("css/app.css")
    except ValueError:
        return ""


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400: malformed or too large, refused before any view looked at it."""
    sentence = "This request is malformed or too large, and nothing was changed."
    return plain(request, 400, "bad_request", "This request cannot be read", sentence)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403"""
    return _with_page(request, 403, "forbidden", "You may not do this.")


def form_out_of_date(request: HttpRequest, reason: str = "") -> HttpResponse:
    """CSRF_FAILURE_VIEW"""
    sentence = (
        "It was sent without the token that proves it came from this portal, and nothing was "
        "changed. This happens when you signed in or out in another tab, or when cookies are "
        "switched off. Go back, reload the page, and send the form again."
    )
    return plain(request, 403, "form_out_of_date", "This form is out of date", sentence)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404"""
    sentence = "There is nothing here, or it belongs to another team."
    return _with_page(request, 404, "not_found", sentence)


def _with_page(request: HttpRequest, status: int, code: str, sentence: str) -> HttpResponse:
    if wants_json(request):
        return JsonResponse({"error": code, "message": sentence}, status=status)
    return HttpResponse(get_template(f"{status}.html").render({}, request), status=status)


def too_many_requests(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """handler429: a rate limit of sign-in or password reset was reached."""
    sentence = "Too many tries. Wait a few minutes, then go on."
    return plain(request, 429, "too_many", "Too many tries", sentence)


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500, also for errors in middleware, where an outage shows first."""
    error = sys.exc_info()[1]
    sentence = outage(error)
    if error is not None and sentence:
        return unavailable(request, error, sentence)
    sentence = "The portal failed at this request. The failure is in its log."
    return plain(request, 500, "failed", "The portal failed here", sentence)

"""Request-wide plumbing: the log context, and domain errors as page, fragment or JSON."""

import uuid
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from portal.base.errors import DomainError

type GetResponse = Callable[[HttpRequest], HttpResponse]

PROGRAM_PATHS = ("/agent/", "/tus/", "/api/", "/healthz", "/readyz")


def wants_json(request: HttpRequest) -> bool:
    return request.path.startswith(PROGRAM_PATHS) or request.headers.get("Accept", "").startswith(
        "application/json"
    )


class RequestContextMiddleware:
    """Every log line of a request carries its id; the id also goes back in a header."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request_id = uuid.uuid4().hex[:16]
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id)
        response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response


class DomainErrorMiddleware:
    """One place that turns a DomainError into an answer."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, DomainError):
            return None
        if wants_json(request):
            body = {"error": error.code, "message": str(error), **error.data}
            return JsonResponse(body, status=error.status)
        return render(request, "error.html", {"error": error}, status=error.status)

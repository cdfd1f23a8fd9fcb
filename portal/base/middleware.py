"""Request-wide plumbing: the log context, and domain errors as page, fragment or JSON."""

import uuid
from collections.abc import Callable
from math import inf

import structlog
from django.conf import settings
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    UnreadablePostError,
)
from django.shortcuts import render

from portal.base.errors import CutShort, DomainError
from portal.base.failures import bad_request, outage, plain, unavailable, wants_json
from portal.base.small import AS_THEY_ARRIVE, SMALL_BODY
from portal.base.words import in_bytes

# What a program is told in the ordinary course of things: it looks again and goes on from there.
ORDINARY = {404, 409, 410}
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
log = structlog.get_logger(__name__)

type GetResponse = Callable[[HttpRequest], HttpResponse]
type View = Callable[..., HttpResponse]


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

    def process_view(self, request: HttpRequest, view, args, kwargs: dict) -> None:
        """Name the job or lease that the address is about, for every line that follows."""
        if "lease" in kwargs:
            structlog.contextvars.bind_contextvars(lease=str(kwargs["lease"])[:40])
        if "code" in kwargs and request.path.startswith(("/jobs/", "/records/")):
            structlog.contextvars.bind_contextvars(job=str(kwargs["code"])[:40])


class NoNulMiddleware:
    """Refuses NUL in path, query and cookies: PostgreSQL cannot take it, and nobody means it.

    Forms refuse it in their fields. A cookie may carry it as an octal escape.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        texts = [request.path_info, *request.COOKIES.values(), *request.GET]
        texts += [value for values in request.GET.lists() for value in values[1]]
        if any("\0" in text for text in texts):
            return bad_request(request, ValueError("NUL"))
        return self.get_response(request)


def takes_files(view: View) -> View:
    """Marks a view whose form carries files; it checks their size and room by itself."""
    view.takes_files = True  # type: ignore[attr-defined]
    return view


def reads_pieces[V: Callable[..., HttpResponseBase]](view: V) -> V:
    """Marks a view that takes the body from the server as it comes, chunked or not, and what came
    of one that is cut."""
    view.reads_pieces = True  # type: ignore[attr-defined]
    return view


def announced(request: HttpRequest) -> int:
    """Bytes of a body as Django reads it: none where no length was sent."""
    sent = str(request.META.get("CONTENT_LENGTH") or "")
    return int(sent) if sent.isascii() and sent.isdigit() and len(sent) < 19 else 0


class BodyMiddleware:
    """Reads the body of a POST before anything acts on it, and refuses what is not a whole one.

    The CSRF check reads forms too, and goes on with an empty form where that fails. It does so for
    anybody, and Django limits no file: multipart above a form's size would go to the disk.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view, args, kwargs: dict) -> HttpResponse | None:
        """Views that are exempt of the CSRF check read, and check, what they take by themselves;
        they ask first who sends it."""
        exempt = getattr(view, "csrf_exempt", False)
        if not exempt and (refusal := _from_nobody(request)):
            return refusal
        if getattr(view, "reads_pieces", False):
            return _too_large(request)
        if "HTTP_TRANSFER_ENCODING" in request.META:  # Django would see an empty body
            sentence = "Send the body with a Content-Length; nothing of this one was read."
            return plain(request, 411, "length_required", "This has no length", sentence)
        if request.content_type in AS_THEY_ARRIVE:  # the server collects none of these
            sentence = "No upload is taken at this address; nothing of this one was read."
            return plain(request, 415, "media_type", "This is no form", sentence)
        if getattr(view, "takes_files", False):
            return None
        if refusal := _too_large(request):
            return refusal
        if request.method != "POST" or exempt:
            return None
        try:
            read_whole(request)
        except CutShort as error:
            return plain(request, error.status, error.code, "This did not come whole", str(error))
        return None


def _from_nobody(request: HttpRequest) -> HttpResponse | None:
    """A thread would wait for such a body, one that the server does not collect, as long as
    somebody likes."""
    if _length(request) <= SMALL_BODY or request.user.is_authenticated:
        return None
    if wants_json(request):  # it knows what to do then
        return plain(request, 401, "sign_in", "Sign in first", "Sign in to go on.")
    sentence = (
        f"Sign in first: at most {in_bytes(SMALL_BODY)} of a form are taken from somebody who is "
        "not signed in. Nothing of this was read."
    )
    return plain(request, 413, "too_large", "This is too large", sentence)


def _too_large(request: HttpRequest) -> HttpResponse | None:
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if not (request.content_type or "").startswith("multipart/") or _length(request) <= most:
        return None
    sentence = f"A form here has at most {in_bytes(most)}; nothing of this one was read."
    return plain(request, 413, "too_large", "This form is too large", sentence)


def read_whole(request: HttpRequest) -> None:
    """Read the body into `request.POST` or `request.body`. Raises CutShort.

    What is too large for the memory is left to whoever asks for it.
    """
    try:
        if request.content_type in FORMS:
            request.POST  # noqa: B018  a property that reads
        elif 0 < announced(request) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            request.body  # noqa: B018
    except UnreadablePostError as error:
        raise CutShort(
            "The request ended before all of it had come. Nothing was changed."
        ) from error


def _length(request: HttpRequest) -> int | float:
    """As `announced`; a length that is no number, or longer than any, counts as endless."""
    sent = str(request.META.get("CONTENT_LENGTH") or "0")
    return announced(request) if sent.isdigit() and len(sent) < 19 else inf


class DomainErrorMiddleware:
    """One place that turns a DomainError into an answer."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if sentence := outage(error):
            return unavailable(request, error, sentence)
        if not isinstance(error, DomainError):
            return None
        if wants_json(request):
            return _for_a_program(request, error)
        return render(request, error.page, {"error": error}, status=error.status)


def _for_a_program(request: HttpRequest, error: DomainError) -> JsonResponse:
    """Its JSON; Django warns of every status from 400 on, unless the answer has been logged."""
    response = JsonResponse(error.as_json(), status=error.status)
    if error.status in ORDINARY:
        log.info("refused", code=error.code, status=error.status, path=request.path)
        response._has_been_logged = True  # type: ignore[attr-defined]
    return response

"""tus 1.0.0 (https://tus.io/protocols/resumable-upload): core, creation, termination.

The address of an upload is a capability: an unguessable code and a signed token. It needs no
session, so a long upload outlives the login; the right behind it is checked on every request.
"""

import base64
import binascii
from collections.abc import Callable
from contextlib import closing
from functools import wraps

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.http import http_date
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from portal.base.errors import DomainError, NotFound, TooLarge
from portal.teams.access import actor_of
from staging import body
from staging.access import my_input
from staging.errors import SignInNeeded, TooMany
from staging.files import Entry, create_upload
from staging.models import Upload
from staging.receive import check_open, receive, settle_offset
from staging.states import UploadState
from staging.uploads import find_upload, terminate_upload

VERSION = "1.0.0"
EXTENSIONS = "creation,termination"
PATCH_TYPE = "application/offset+octet-stream"
LONGEST_METADATA = 8192
LONGEST_NUMBER = 18  # digits: every value fits the database's 64 bits
METHODS = "OPTIONS, POST, HEAD, PATCH, DELETE"

type View = Callable[..., HttpResponseBase]


class WrongVersion(DomainError):
    """The request is not of the version that is spoken here."""

    code = "version"
    status = 412


class WrongType(DomainError):
    """A PATCH needs its media type."""

    code = "media_type"
    status = 415


class WrongMethod(DomainError):
    """Not one of the protocol's methods here."""

    code = "method"
    status = 405


def speaks_tus(view: View) -> View:
    """Versions, the method override, errors as JSON, the protocol's header on every answer."""

    @csrf_exempt
    @wraps(view)
    def wrapped(request: HttpRequest, *args: str, **kwargs: str) -> HttpResponseBase:
        method = request.headers.get("X-HTTP-Method-Override", request.method or "").upper()
        try:
            response = _answer(view, request, method, *args, **kwargs)
        except DomainError as error:
            response = _refusal(error)
        if response.status_code == 403 and not isinstance(response, JsonResponse):
            response = JsonResponse(
                {"error": "csrf", "message": "The CSRF token is missing or wrong."}, status=403
            )
        if request.method == "HEAD" and isinstance(response, HttpResponse):
            response.content = b""
        response["Tus-Resumable"] = VERSION
        response.setdefault("Cache-Control", "no-store")
        return response

    return wrapped


def _answer(
    view: View, request: HttpRequest, method: str, *args: str, **kwargs: str
) -> HttpResponseBase:
    if method == "OPTIONS":
        return _options()
    if request.headers.get("Tus-Resumable") != VERSION:
        raise WrongVersion(f"This server speaks tus {VERSION}; send Tus-Resumable: {VERSION}.")
    return view(request, *args, method=method, **kwargs)


def _refusal(error: DomainError) -> HttpResponse:
    response = JsonResponse(error.as_json(), status=error.status)
    if "offset" in error.data:
        response["Upload-Offset"] = str(error.data["offset"])
    if isinstance(error, WrongVersion):
        response["Tus-Version"] = VERSION
    if isinstance(error, WrongMethod):
        response["Allow"] = METHODS
    if error.status == 503:
        response["Retry-After"] = "1"
    return response


def _options() -> HttpResponse:
    response = HttpResponse(status=204)
    response["Tus-Version"] = VERSION
    response["Tus-Extension"] = EXTENSIONS
    response["Tus-Max-Size"] = str(settings.LARGEST_UPLOAD_BYTES)
    return response


@speaks_tus
@csrf_protect
def tus_create(request: HttpRequest, *, method: str) -> HttpResponseBase:
    """POST /tus/: a file of a dataset, named by the metadata `dataset` and `filename`."""
    if method != "POST":
        raise WrongMethod("Uploads are created with POST.")
    if not request.user.is_authenticated:
        raise SignInNeeded("Sign in to create an upload.")
    length = _length_to_create(request)
    raw = request.headers.get("Upload-Metadata", "")
    metadata = read_metadata(raw)
    dataset = my_input(request, metadata.get("dataset", ""))
    entry = Entry(path=metadata.get("relativePath") or metadata.get("filename", ""), size=length)
    upload, address = create_upload(
        dataset=dataset, entry=entry, actor=actor_of(request), metadata=raw
    )
    response = HttpResponse(status=201)
    response["Location"] = address
    response["Upload-Offset"] = str(upload.offset)
    return _with_expiry(response, upload)


@speaks_tus
def tus_upload(request: HttpRequest, code: str, token: str, *, method: str) -> HttpResponseBase:
    """HEAD, PATCH and DELETE of one upload."""
    verbs = {"HEAD": _head, "PATCH": _patch, "DELETE": _delete}
    if method not in verbs:
        raise WrongMethod("An upload answers HEAD, PATCH and DELETE.")
    return verbs[method](request, find_upload(code, token))


@speaks_tus
def tus_nothing(request: HttpRequest, *, method: str, rest: str = "") -> HttpResponseBase:
    """Whatever else is asked for below /tus/."""
    raise NotFound("There is no such upload.")


def _head(request: HttpRequest, upload: Upload) -> HttpResponse:
    check_open(upload)
    settle_offset(upload)
    check_open(upload)
    response = HttpResponse(status=200)
    response["Upload-Offset"] = str(upload.offset)
    response["Upload-Length"] = str(upload.length)
    if upload.metadata:
        response["Upload-Metadata"] = upload.metadata
    return _with_expiry(response, upload)


def _patch(request: HttpRequest, upload: Upload) -> HttpResponse:
    check_open(upload)
    if request.content_type != PATCH_TYPE:
        raise WrongType(f"PATCH needs Content-Type: {PATCH_TYPE}.")
    offset = _number(request, "Upload-Offset")
    length = _content_length(request)
    if offset == upload.offset and length is not None and length > upload.length - offset:
        raise TooMany("More bytes were announced than the upload has room for.", offset=offset)
    with closing(body.pieces(request.environ, length)) as pieces:  # type: ignore[attr-defined]
        try:
            receive(upload=upload, offset=offset, pieces=pieces)
        except body.BadFraming as error:
            raise DomainError(str(error), offset=_kept(upload)) from error
    response = HttpResponse(status=204)
    response["Upload-Offset"] = str(upload.offset)
    return _with_expiry(response, upload)


def _kept(upload: Upload) -> int:
    upload.refresh_from_db()
    return upload.offset


def _delete(request: HttpRequest, upload: Upload) -> HttpResponse:
    check_open(upload)
    terminate_upload(upload=upload, actor=upload.holder)
    return HttpResponse(status=204)


def _with_expiry(response: HttpResponse, upload: Upload) -> HttpResponse:
    if upload.state == UploadState.OPEN:
        response["Upload-Expires"] = http_date(upload.expires_at.timestamp())
    return response


def _number(request: HttpRequest, header: str) -> int:
    """A header of ASCII digits. Raises DomainError (400) when it is missing or anything else."""
    raw = request.headers.get(header, "")
    if not raw.isascii() or not raw.isdigit():
        raise DomainError(f"{header} must be a whole number of bytes.")
    if len(raw.lstrip("0")) > LONGEST_NUMBER:
        raise TooLarge(f"{header} is larger than any file accepted here.")
    return int(raw)


def _content_length(request: HttpRequest) -> int | None:
    """Bytes announced; None for a chunked body, whose end is in its framing."""
    if body.is_chunked(request.META):
        return None
    return _number(request, "Content-Length") if request.META.get("CONTENT_LENGTH") else 0


def _length_to_create(request: HttpRequest) -> int:
    deferred = request.headers.get("Upload-Defer-Length")
    if deferred is not None:
        if "Upload-Length" in request.headers or deferred != "1":
            raise DomainError("Send either Upload-Length or Upload-Defer-Length: 1.")
        raise DomainError("The length must be known here: send Upload-Length.")
    length = _number(request, "Upload-Length")
    if length > settings.LARGEST_UPLOAD_BYTES:
        raise TooLarge(f"At most {settings.LARGEST_UPLOAD_BYTES} bytes are accepted for one file.")
    return length


def read_metadata(raw: str) -> dict[str, str]:
    """Upload-Metadata: unique keys, each with a base64 value or none, joined by commas.

    Raises DomainError (400) for anything else, and for more than 8 KiB.
    """
    if len(raw) > LONGEST_METADATA:
        raise DomainError(f"Upload-Metadata may have at most {LONGEST_METADATA} bytes.")
    found: dict[str, str] = {}
    for pair in raw.split(",") if raw else []:
        key, _, value = pair.strip(" ").partition(" ")
        if not key or not key.isascii() or not key.isprintable() or key in found:
            raise DomainError("Upload-Metadata needs unique keys of printable ASCII.")
        found[key] = _decode(key, value)
    return found


def _decode(key: str, value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise DomainError(f"The metadata {key!r} is not base64 of UTF-8 text.") from None

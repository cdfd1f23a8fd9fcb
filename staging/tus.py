"""tus 1.0.0 (https://tus.io/protocols/resumable-upload): the core and every extension of it.

The address of an upload is a capability: an unguessable code and a signed token. It needs no
session, so a long upload outlives the login; the right behind it is checked on every request.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.http import http_date
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from portal.base.errors import DomainError, Forbidden, NotFound
from portal.base.middleware import reads_pieces
from portal.base.small import PATCH_TYPE
from portal.teams.access import actor_of, current_membership
from staging import body
from staging.access import my_input
from staging.checksums import ALGORITHMS, read_checksum
from staging.concat import concat_header, create_final, create_part, parts_named
from staging.creation import create_upload
from staging.entries import Entry
from staging.errors import ChecksumMismatch, DigestMismatch, SignInNeeded, WrongType
from staging.keys import read_key
from staging.models import Dataset, Upload
from staging.prefix import prefix_of
from staging.receive import receive
from staging.states import Concat, UploadState
from staging.takeover import check_open, settle_offset
from staging.tusheaders import (
    Length,
    content_length,
    header,
    length_to_create,
    length_to_settle,
    number,
    read_metadata,
)
from staging.uploads import find_upload, may_send, terminate_upload

VERSION = "1.0.0"
EXTENSIONS = (
    "creation,creation-with-upload,creation-defer-length,expiration,checksum,termination,"
    "concatenation"
)
METHODS = "OPTIONS, POST, HEAD, PATCH, DELETE"

type View = Callable[..., HttpResponseBase]


class WrongVersion(DomainError):
    """The request is not of the version that is spoken here."""

    code = "version"
    status = 412


class WrongMethod(DomainError):
    """Not one of the protocol's methods here."""

    code = "method"
    status = 405


def speaks_tus(view: View) -> View:
    """Versions, the method override, errors as JSON, the protocol's header on every answer."""

    @csrf_exempt
    @reads_pieces
    @wraps(view)
    def wrapped(request: HttpRequest, *args: str, **kwargs: str) -> HttpResponseBase:
        sent = request.method
        request.method = (header(request, "X-HTTP-Method-Override") or sent or "").upper()
        try:
            response = _answer(view, request, *args, **kwargs)
        except DomainError as error:
            response = _refusal(error)
        request.method = sent
        if sent == "HEAD" and isinstance(response, HttpResponse):
            response.content = b""
        response["Tus-Resumable"] = VERSION
        response.setdefault("Cache-Control", "no-store")
        return response

    return wrapped


def _answer(view: View, request: HttpRequest, *args: str, **kwargs: str) -> HttpResponseBase:
    if request.method == "OPTIONS":
        return _options()
    if header(request, "Tus-Resumable") != VERSION:
        raise WrongVersion(f"This server speaks tus {VERSION}; send Tus-Resumable: {VERSION}.")
    return view(request, *args, **kwargs)


def _refusal(error: DomainError) -> HttpResponse:
    response = JsonResponse(error.as_json(), status=error.status)
    if "offset" in error.data:
        response["Upload-Offset"] = str(error.data["offset"])
    if isinstance(error, WrongVersion):
        response["Tus-Version"] = VERSION
    if isinstance(error, WrongMethod):
        response["Allow"] = METHODS
    if "upload" in error.data:
        response["Location"] = str(error.data["upload"])
    if error.status == 503:
        response["Retry-After"] = "1"
    return response


def _options() -> HttpResponse:
    response = HttpResponse(status=204)
    response["Tus-Version"] = VERSION
    response["Tus-Extension"] = EXTENSIONS
    response["Tus-Checksum-Algorithm"] = ",".join(ALGORITHMS)
    response["Tus-Max-Size"] = str(settings.LARGEST_UPLOAD_BYTES)
    return response


@speaks_tus
def tus_create(request: HttpRequest) -> HttpResponseBase:
    """POST /tus/: a file of a dataset, named by the metadata `dataset` and `filename`.

    By a session and its CSRF token, or by an upload key, which names the dataset.
    """
    if request.method != "POST":
        raise WrongMethod("Uploads are created with POST.")
    scheme, _, key = (header(request, "Authorization") or "").partition(" ")
    if scheme.lower() != "bearer":
        if not request.user.is_authenticated:
            raise SignInNeeded("Sign in, or send an upload key, to create an upload.")
        return _create_by_session(request)
    found = read_key(key.strip())
    if found is None:
        raise SignInNeeded(
            "This upload key is wrong or over. Make a new one on the dataset's page."
        )
    dataset, actor = found
    if read_metadata(_metadata(request)).get("dataset", dataset.code) != dataset.code:
        raise NotFound("This upload key is for another dataset.")
    return _create(request, actor, dataset)


@csrf_protect
def _create_by_session(request: HttpRequest) -> HttpResponse:
    return _create(request, actor_of(request), None)


def _create(request: HttpRequest, actor: str, dataset: Dataset | None) -> HttpResponse:
    raw = _metadata(request)
    metadata = read_metadata(raw)
    concat = header(request, "Upload-Concat") or ""
    final = concat.startswith("final;")
    if concat not in ("", "partial") and not final:
        raise DomainError("Upload-Concat is partial, or final; and the addresses of the parts.")
    if final and header(request, "Upload-Length") is not None:
        raise DomainError("A final upload is as long as its parts: send no Upload-Length.")
    length = Length(0, deferred=False) if final else length_to_create(request)
    if concat == "partial":
        team_id = dataset.team_id if dataset else _team_of(request, metadata)
        upload, address = create_part(
            team_id=team_id,
            length=length.size,
            deferred=length.deferred,
            holder=actor,
            metadata=raw,
        )
        return _take_first_bytes(request, upload, address)
    dataset = dataset or my_input(request, metadata.get("dataset", ""))
    path = metadata.get("relativePath") or metadata.get("filename", "")
    entry = Entry(path=path, size=length.size, deferred=length.deferred)
    if final:
        parts = parts_named(concat[6:], team_id=dataset.team_id, holder=actor)
        upload, address = create_final(
            dataset=dataset, entry=entry, parts=parts, actor=actor, metadata=raw
        )
        return _created(upload, address)
    upload, address = create_upload(dataset=dataset, entry=entry, actor=actor, metadata=raw)
    return _take_first_bytes(request, upload, address)


def _metadata(request: HttpRequest) -> str:
    return header(request, "Upload-Metadata") or ""


def _team_of(request: HttpRequest, metadata: dict[str, str]) -> int:
    """A part names a dataset only if the client says so; else it is of the person's team."""
    if "dataset" in metadata:
        return my_input(request, metadata["dataset"]).team_id
    membership = current_membership(request)
    if membership is None:
        raise Forbidden("You are not a member of any team.")
    return membership.team_id


def _take_first_bytes(request: HttpRequest, upload: Upload, address: str) -> HttpResponse:
    """creation-with-upload: the body of the POST, if it has one, are the first bytes."""
    if request.content_type == PATCH_TYPE and upload.state == UploadState.OPEN:
        try:
            _receive(request, upload, upload.offset)
        except (ChecksumMismatch, DigestMismatch) as error:
            error.data["upload"] = address
            raise
    return _created(upload, address)


def _created(upload: Upload, address: str) -> HttpResponse:
    response = HttpResponse(status=201)
    response["Location"] = address
    response["Upload-Offset"] = str(upload.offset)
    return _with_expiry(response, upload)


@speaks_tus
def tus_upload(request: HttpRequest, code: str, token: str) -> HttpResponseBase:
    """HEAD, PATCH and DELETE of one upload."""
    verbs = {"HEAD": _head, "PATCH": _patch, "DELETE": _delete}
    if request.method not in verbs:
        raise WrongMethod("An upload answers HEAD, PATCH and DELETE.")
    return verbs[request.method](request, find_upload(code, token))


@speaks_tus
def tus_prefix(request: HttpRequest, code: str, token: str) -> HttpResponseBase:
    """GET of the digests of what has arrived; no part of tus (docs/uploads.md)."""
    if request.method != "GET":
        raise WrongMethod("The digests of an upload are read with GET.")
    upload = find_upload(code, token)
    start, stop = (_asked(request, name) for name in ("from", "to"))
    return JsonResponse(asdict(prefix_of(upload, start, stop)))


def _asked(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise DomainError(f"{name} must be a number of bytes.")
    return int(text)


@speaks_tus
def tus_nothing(request: HttpRequest, *, rest: str = "") -> HttpResponseBase:
    """Whatever else is asked for below /tus/."""
    raise NotFound("There is no such upload.")


def _head(request: HttpRequest, upload: Upload) -> HttpResponse:
    check_open(upload)
    if upload.concat != Concat.FINAL:
        settle_offset(upload)
        check_open(upload)
    response = HttpResponse(status=200)
    if upload.concat != Concat.FINAL or upload.state == UploadState.COMPLETE:
        response["Upload-Offset"] = str(upload.offset)
    if upload.deferred:
        response["Upload-Defer-Length"] = "1"
    else:
        response["Upload-Length"] = str(upload.length)
    if upload.metadata:
        response["Upload-Metadata"] = upload.metadata
    if concat := concat_header(upload):
        response["Upload-Concat"] = concat
    return _with_expiry(response, upload)


def _patch(request: HttpRequest, upload: Upload) -> HttpResponse:
    check_open(upload)
    if request.content_type != PATCH_TYPE:
        raise WrongType(f"PATCH needs Content-Type: {PATCH_TYPE}.")
    if upload.concat == Concat.FINAL:
        raise Forbidden("This file is made of parts; no bytes are added to it.")
    _receive(request, upload, number(request, "Upload-Offset"))
    response = HttpResponse(status=204)
    response["Upload-Offset"] = str(upload.offset)
    return _with_expiry(response, upload)


def _receive(request: HttpRequest, upload: Upload, offset: int) -> None:
    announced = content_length(request)
    environ = request.environ  # type: ignore[attr-defined]
    try:
        receive(
            upload=upload,
            offset=offset,
            pieces=body.pieces(environ, announced, upload.key),
            announced=announced,
            length=length_to_settle(request) if request.method == "PATCH" else None,
            may_go_on=lambda: may_send(upload),
            checksum=read_checksum(header(request, "Upload-Checksum")),
        )
    except body.BadFraming as error:
        raise DomainError(str(error), offset=_kept(upload)) from error


def _kept(upload: Upload) -> int:
    upload.refresh_from_db()
    return upload.offset


def _delete(request: HttpRequest, upload: Upload) -> HttpResponse:
    check_open(upload)
    terminate_upload(upload=upload, actor=upload.holder)
    return HttpResponse(status=204)


def _with_expiry(response: HttpResponse, upload: Upload) -> HttpResponse:
    if upload.state == UploadState.OPEN or upload.concat == Concat.PARTIAL:
        response["Upload-Expires"] = http_date(upload.expires_at.timestamp())
    return response

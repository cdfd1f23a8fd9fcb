"""The manifest of a dataset for programs and the browser's uploader: JSON in, JSON out."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST

from portal.base.bodies import any_json
from portal.base.errors import DomainError, TooLarge
from portal.base.failures import wants_json
from portal.base.middleware import reads_pieces
from portal.base.small import PACK_TYPE
from portal.base.words import in_bytes
from portal.teams.access import actor_of
from staging import body, services
from staging.access import my_dataset, my_input
from staging.entries import Entry, FilePlan
from staging.errors import NothingChosen, SignInNeeded, WrongType
from staging.files import MOST_ENTRIES
from staging.pack import LARGEST_BODY, receive_pack
from staging.progress import progress_of, unfinished_of
from staging.tusheaders import content_length

FIELDS = {"path", "size", "digest", "executable", "modified", "chunks"}
CHUNK = re.compile(r"[0-9a-f]{64}", re.ASCII)
LARGEST_NUMBER = 2**63 - 1
LARGEST_MANIFEST = 8 * 2**20

type View = Callable[..., HttpResponseBase]


def answers_json(view: View) -> View:
    """Every refusal as {"error", "message"}; a session is needed."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: str, **kwargs: str) -> HttpResponseBase:
        try:
            if not request.user.is_authenticated:
                raise SignInNeeded("Sign in to go on.")
            return view(request, *args, **kwargs)
        except DomainError as error:
            return JsonResponse(error.as_json(), status=error.status)

    return wrapped


@require_POST
@answers_json
def manifest(request: HttpRequest, code: str) -> HttpResponse:
    """Declare up to 1,000 files; for each: have it, send it where, or refused and why."""
    dataset = my_input(request, code)
    entries = read_entries(any_json(request, most_bytes=LARGEST_MANIFEST))
    plans = services.declare_files(
        dataset=dataset, entries=entries, actor=actor_of(request), strict=False
    )
    return JsonResponse({"files": [_answer(plan) for plan in plans]})


def _answer(plan: FilePlan) -> dict[str, object]:
    answer: dict[str, object] = {"path": plan.path, "state": plan.state}
    if plan.message:
        answer["message"] = plan.message
    if plan.upload is not None:
        answer |= {"upload": plan.address, "offset": plan.upload.offset}
        if plan.hash_first:
            answer["hash_first"] = True
    return answer


@require_POST
@reads_pieces
@answers_json
def pack(request: HttpRequest, code: str) -> HttpResponse:
    """Many small files in one body (docs/uploads.md); an answer for each that came whole."""
    dataset = my_input(request, code)
    if request.content_type != PACK_TYPE:
        raise WrongType(f"A pack is sent with Content-Type: {PACK_TYPE}.")
    announced = content_length(request)
    if announced is not None and announced > LARGEST_BODY:
        raise TooLarge(f"A pack has at most {in_bytes(LARGEST_BODY)}; send several.")
    environ = request.environ  # type: ignore[attr-defined]
    with body.pieces(environ, announced) as pieces:
        answers, error = receive_pack(
            dataset=dataset,
            pieces=body.limited(pieces, LARGEST_BODY),
            actor=actor_of(request),
            listed="listed" in request.GET,
        )
    if error is None:
        return JsonResponse({"files": answers})
    content = {"error": error.code, "message": str(error), **error.data, "files": answers}
    return JsonResponse(content, status=error.status)


@require_GET
@answers_json
def progress(request: HttpRequest, code: str) -> HttpResponse:
    """How far a dataset is, what changed since a cursor, and when it may be done."""
    dataset = my_dataset(request, code)
    since, anew = request.GET.get("since", ""), "anew" in request.GET
    return JsonResponse(progress_of(dataset, since, anew=anew))


@require_GET
@answers_json
def unfinished(request: HttpRequest, code: str) -> HttpResponse:
    """Files whose bytes have not all come, a page at a time, with where to send them."""
    dataset = my_input(request, code)
    return JsonResponse(unfinished_of(dataset, actor_of(request), request.GET.get("after", "")))


@require_POST
def seal(request: HttpRequest, code: str) -> HttpResponseBase:
    """No more files will come. JSON for programs, the dataset's page for people."""
    if wants_json(request):
        return _seal_for_programs(request, code)
    if not request.user.is_authenticated:
        return redirect("account_login")
    dataset = my_input(request, code)
    services.seal_dataset(dataset=dataset, actor=actor_of(request))
    return redirect("dataset", dataset.code)


@answers_json
def _seal_for_programs(request: HttpRequest, code: str) -> HttpResponse:
    dataset = my_input(request, code)
    services.seal_dataset(dataset=dataset, actor=actor_of(request))
    return JsonResponse({"dataset": dataset.code, "state": dataset.state})


def read_entries(body: Any) -> list[Entry]:
    """{"files": [{"path", "size", ...}]} as entries. Raises DomainError naming what is wrong."""
    files = body.get("files") if isinstance(body, dict) else None
    if not isinstance(files, list) or set(body) != {"files"}:
        raise DomainError('The body must be {"files": [...]}.')
    if not files:
        raise NothingChosen("No file is listed.")
    if len(files) > MOST_ENTRIES:
        raise TooLarge(f"At most {MOST_ENTRIES} files may be listed at once.")
    return [_entry(index, item) for index, item in enumerate(files)]


def _entry(index: int, item: Any) -> Entry:
    if not isinstance(item, dict) or not {"path", "size"} <= set(item) <= FIELDS:
        raise DomainError(f"files[{index}] needs path and size, and may have {_optional()}.")
    _check(index, "path", isinstance(item["path"], str), "a text")
    _check(index, "size", type(item["size"]) is int, "a whole number of bytes")
    if item["size"] > LARGEST_NUMBER:
        most = settings.LARGEST_UPLOAD_BYTES
        raise TooLarge(
            f"files[{index}].size is too large: at most {in_bytes(most)} are accepted.",
            largest=most,
        )
    _check(index, "digest", isinstance(item.get("digest", ""), str), "a text")
    _check(index, "executable", isinstance(item.get("executable", False), bool), "true or false")
    modified = item.get("modified")
    _check(index, "modified", modified is None or _is_number(modified), "whole milliseconds")
    chunks = item.get("chunks", [])
    _check(index, "chunks", _is_chunks(chunks), "SHA-256 in hex, one for each chunk")
    return Entry(**item | {"chunks": bytes.fromhex("".join(chunks))})


def _optional() -> str:
    return ", ".join(sorted(FIELDS - {"path", "size"}))


def _is_number(value: object) -> bool:
    return type(value) is int and -LARGEST_NUMBER <= value <= LARGEST_NUMBER


def _is_chunks(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(text, str) and CHUNK.fullmatch(text) for text in value
    )


def _check(index: int, name: str, right: bool, wanted: str) -> None:
    if not right:
        raise DomainError(f"files[{index}].{name} must be {wanted}.")

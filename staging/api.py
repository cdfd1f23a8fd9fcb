"""The manifest of a dataset for programs and the browser's uploader: JSON in, JSON out."""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    RawPostDataException,
    UnreadablePostError,
)
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from portal.base.errors import DomainError, TooLarge
from portal.base.failures import wants_json
from portal.teams.access import actor_of
from staging import services
from staging.access import my_input
from staging.errors import NothingChosen, SignInNeeded
from staging.files import MOST_ENTRIES, Entry, FilePlan

FIELDS = {"path", "size", "digest", "executable", "modified"}
LARGEST_NUMBER = 2**63 - 1

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
    entries = read_entries(read_json(request))
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


def read_json(request: HttpRequest) -> Any:
    """The body as JSON. Raises DomainError (400, 413) for anything that is not."""
    try:
        return json.loads(request.body)
    except RequestDataTooBig:
        raise TooLarge("The body is too large; list fewer files at once.") from None
    except (ValueError, RecursionError, RawPostDataException):  # the last: sent as a form
        raise DomainError("The body is not JSON.") from None
    except UnreadablePostError:
        raise DomainError("The body ended too early.") from None


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
    _check(index, "size", _is_number(item["size"]), "a whole number of bytes")
    _check(index, "digest", isinstance(item.get("digest", ""), str), "a text")
    _check(index, "executable", isinstance(item.get("executable", False), bool), "true or false")
    modified = item.get("modified")
    _check(index, "modified", modified is None or _is_number(modified), "whole milliseconds")
    return Entry(**item)


def _optional() -> str:
    return ", ".join(sorted(FIELDS - {"path", "size"}))


def _is_number(value: object) -> bool:
    return type(value) is int and -LARGEST_NUMBER <= value <= LARGEST_NUMBER


def _check(index: int, name: str, right: bool, wanted: str) -> None:
    if not right:
        raise DomainError(f"files[{index}].{name} must be {wanted}.")

"""Reading JSON bodies of programs: everything that is not what it should be is a clear 4xx."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, RawPostDataException, UnreadablePostError
from jsonschema import Draft202012Validator

from portal.base.errors import DomainError, TooLarge

DEEPEST = 32  # levels of lists and objects; no schema has ten


class BadBody(DomainError):
    """The body is not the JSON that this address takes; the sentence says where and why."""

    code = "bad_request"


def _no_constants(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _fault(body: object) -> str:
    """Why a body cannot be taken: a text that cannot be stored (NUL, a lone surrogate), or more
    depth than anything here has. Level by level, as Python's own stack is not deep."""
    level = [body]
    for _ in range(DEEPEST):
        below: list[object] = []
        for value in level:
            if isinstance(value, str):
                if not _storable(value):
                    return "A text in the body holds a NUL or is not valid Unicode."
            elif isinstance(value, dict):
                below += value
                below += value.values()
            elif isinstance(value, list):
                below += value
        if not below:
            return ""
        level = below
    return f"The body is nested more than {DEEPEST} deep."


def _storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def any_json(request: HttpRequest, *, most_bytes: int = 4 * 2**20) -> Any:
    """The request's body as JSON of any kind. Raises BadBody or TooLarge.

    A text in it may hold what cannot be stored; who takes the body one entry at a time refuses
    that entry alone.
    """
    length = request.headers.get("Content-Length") or "0"
    if not length.isascii() or not length.isdigit():
        raise BadBody("Content-Length must be a number.")
    too_large = f"The body may have at most {most_bytes} bytes."
    if int(length) > most_bytes:
        raise TooLarge(too_large)
    raw = whole_body(request, too_large)
    try:
        return json.loads(raw, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise BadBody(f"The body is not JSON: {str(error)[:200]}.") from error


def whole_body(request: HttpRequest, too_large: str) -> bytes:
    """The request's bytes, all of them. Raises BadBody, or TooLarge with that sentence."""
    try:
        return request.body
    except RequestDataTooBig:
        raise TooLarge(too_large) from None
    except RawPostDataException:  # it was sent, and read, as a form
        raise BadBody("The body is not JSON.") from None
    except UnreadablePostError:
        raise BadBody("The body ended too early.") from None


def read_json(request: HttpRequest, *, most_bytes: int = 4 * 2**20) -> dict[str, Any]:
    """The request's JSON object. Raises BadBody or TooLarge."""
    body = any_json(request, most_bytes=most_bytes)
    if not isinstance(body, dict):
        raise BadBody("The body must be a JSON object.")
    if fault := _fault(body):
        raise BadBody(fault)
    return body


@cache
def _validator(path: Path) -> Draft202012Validator:
    schema = json.loads(path.read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def checked_json(request: HttpRequest, schema: Path, *, most_bytes: int = 4 * 2**20) -> dict:
    """`read_json`, then the JSON schema in the file `schema`."""
    body = read_json(request, most_bytes=most_bytes)
    error = next(iter(_validator(schema).iter_errors(body)), None)
    if error is not None:
        where = "/".join(str(part) for part in error.absolute_path) or "the body"
        raise BadBody(f"{where}: {error.message[:300]}")
    return body

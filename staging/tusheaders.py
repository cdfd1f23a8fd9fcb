"""The headers of tus requests, as values. Everything here raises DomainError (400 or 413)."""

import base64
import binascii
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest
from django.http.request import HttpHeaders

from portal.base.errors import DomainError, TooLarge
from portal.base.words import in_bytes
from staging import body

LONGEST_METADATA = 8192
LONGEST_NUMBER = 18  # digits: every value fits the database's 64 bits


@dataclass(frozen=True)
class Length:
    """How long an upload will be; not known yet when `deferred`."""

    size: int
    deferred: bool


def header(request: HttpRequest, name: str) -> str | None:
    """A header; a dictionary of all of them, as `request.headers` makes, costs each PATCH more
    than what it does with them."""
    return request.META.get(_variable(name))


@lru_cache
def _variable(name: str) -> str:
    variable = name.upper().replace("-", "_")
    return variable if variable in HttpHeaders.UNPREFIXED_HEADERS else f"HTTP_{variable}"


def number(request: HttpRequest, name: str) -> int:
    """A header of ASCII digits. Raises DomainError (400) when it is missing or anything else."""
    raw = header(request, name) or ""
    if not raw.isascii() or not raw.isdigit():
        raise DomainError(f"{name} must be a whole number of bytes.")
    if len(raw.lstrip("0")) > LONGEST_NUMBER:
        most = settings.LARGEST_UPLOAD_BYTES
        raise TooLarge(f"{name} is too large: at most {in_bytes(most)} are accepted.", largest=most)
    return int(raw)


def content_length(request: HttpRequest) -> int | None:
    """Bytes announced; None for a chunked body, whose end is in its framing. Raises DomainError
    (400) for any other Transfer-Encoding: its bytes are not those of the file."""
    if body.is_chunked(request.META):
        return None
    if header(request, "Transfer-Encoding") is not None:
        raise DomainError("The only Transfer-Encoding that is taken is chunked.")
    return number(request, "Content-Length") if request.META.get("CONTENT_LENGTH") else 0


def length_to_create(request: HttpRequest) -> Length:
    """Exactly one of Upload-Length and Upload-Defer-Length: 1."""
    deferred = header(request, "Upload-Defer-Length")
    if deferred is not None:
        if header(request, "Upload-Length") is not None or deferred != "1":
            raise DomainError("Send either Upload-Length or Upload-Defer-Length: 1.")
        return Length(0, deferred=True)
    length = number(request, "Upload-Length")
    most = settings.LARGEST_UPLOAD_BYTES
    if length > most:
        raise TooLarge(
            f"The file has {in_bytes(length)}; at most {in_bytes(most)} are accepted.",
            largest=most,
        )
    return Length(length, deferred=False)


def length_to_settle(request: HttpRequest) -> int | None:
    """The length that a PATCH may bring for an upload that was created without one."""
    given = header(request, "Upload-Length") is not None
    return number(request, "Upload-Length") if given else None


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

"""One byte range of a request (RFC 9110, section 14): what a client may resume with."""

import re
from collections.abc import Callable, Iterator

from django.http import StreamingHttpResponse

from portal.base.errors import DomainError

_ONE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class RangeNotSatisfiable(DomainError):
    """The range lies outside the file."""

    code = "range_not_satisfiable"
    status = 416


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """[start, stop) of a Range header over `size` bytes; None where the whole is to be sent.

    Several ranges, another unit and a range that ends before it begins are ignored, as the RFC
    has it. Raises RangeNotSatisfiable.
    """
    match = _ONE_RANGE.fullmatch(header.strip())
    if match is None or match.group(1) == match.group(2) == "":
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    if first == "":
        start, stop = max(0, size - int(last)), size
    else:
        start = int(first)
        stop = min(size, int(last) + 1) if last else size
    if start >= size or start >= stop:
        raise RangeNotSatisfiable(f"The file has {size} bytes.", size=size)
    return start, stop


def ranged(
    header: str, size: int, read: Callable[[int, int], Iterator[bytes]], *, head: bool = False
) -> StreamingHttpResponse:
    """The bytes that a Range header asks for: 206 for a part, 200 for the whole.

    `read(start, stop)` gives them in pieces. `head`: the answer to HEAD, with every header and no
    byte. Raises RangeNotSatisfiable.
    """
    start, stop = byte_range(header, size) or (0, size)
    pieces = read(start, stop)
    response = StreamingHttpResponse(
        () if head else pieces, content_type="application/octet-stream"
    )
    if (start, stop) != (0, size):
        response.status_code = 206
        response["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    response["Content-Length"] = str(stop - start)
    response["Accept-Ranges"] = "bytes"
    return response

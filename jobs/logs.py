"""Logs: one file a lease, appended by its agent, read by pages. Bytes as the work wrote them.

The offset is checked under a lock on the file itself, so two writers (a retried request, two web
workers) never write the same bytes twice, and a write cut short by a crash is simply gone on from.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import transaction

from jobs.models import Job
from portal.base.errors import Conflict, NotFound, TooLarge

CODE = re.compile(r"[a-z0-9]{1,16}")
BLOCK = 2**20


class LogEndsElsewhere(Conflict):
    """The log does not end where this piece begins; `data["offset"]` says where it does."""

    code = "offset"


class LogClosed(Conflict):
    """The log has ended with its attempt; nothing is added to it any more."""

    code = "log_closed"


def log_path(lease_code: str) -> Path:
    """The log file of a lease. Raises NotFound for what cannot be a lease's code."""
    if not CODE.fullmatch(lease_code):
        raise NotFound("There is no such log.")
    return Path(settings.DATA_DIR) / "logs" / f"{lease_code}.log"


def append_log(lease_code: str, offset: int, data: bytes, *, ends_at: int | None = None) -> int:
    """Append `data`, which begins at byte `offset`; returns the log's new length in bytes.

    `ends_at`: its length in bytes where the attempt has ended; None while it goes on.
    Raises LogEndsElsewhere with the true offset, LogClosed beyond the end, TooLarge when the log is
    full (what fits is kept).
    """
    path = log_path(lease_code)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if _gone_mark(path).exists():
        return max(0, offset) + len(data)
    with _locked(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if offset != size:
            raise LogEndsElsewhere(f"The log ends at byte {size}, not at {offset}.", offset=size)
        if ends_at is not None and size + len(data) > ends_at:
            raise LogClosed(f"This log has ended at byte {ends_at}.")
        room = max(0, settings.LARGEST_LOG_BYTES - size)
        end = size + _write(descriptor, data[:room])
        if len(data) > room:
            raise TooLarge(
                f"A log can have at most {settings.LARGEST_LOG_BYTES:,} bytes.", offset=end
            )
    return end


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> int:
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])
    return done


def remove_log(lease_code: str) -> None:
    """Delete a log for good. What its agent may still send of it is taken and dropped."""
    path = log_path(lease_code)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _gone_mark(path).touch()
    path.unlink(missing_ok=True)


def remove_logs(lease_codes: list[str]) -> None:
    for code in lease_codes:
        remove_log(code)


def _gone_mark(path: Path) -> Path:
    return path.with_suffix(".gone")


def remove_unkept_logs(sender: object, job: Job, **kwargs: object) -> None:
    """The end of a job that declared its log not to be kept; files go after the commit."""
    if job.keep_log:
        return
    codes = [code for code in job.shards.values_list("leases__code", flat=True) if code]
    transaction.on_commit(lambda: remove_logs(codes))


def log_size(lease_code: str) -> int:
    """Bytes in the log; 0 where there is none yet."""
    try:
        return log_path(lease_code).stat().st_size
    except FileNotFoundError:
        return 0


def read_log(lease_code: str, offset: int, limit: int) -> bytes:
    """At most `limit` bytes from `offset`; empty at the end and where there is no log."""
    try:
        with log_path(lease_code).open("rb") as file:
            file.seek(max(0, offset))
            return file.read(max(0, limit))
    except FileNotFoundError:
        return b""


def stream_log(lease_code: str) -> Iterator[bytes]:
    """The log as it is now, in blocks."""
    offset, end = 0, log_size(lease_code)
    while offset < end:
        block = read_log(lease_code, offset, min(BLOCK, end - offset))
        if not block:
            return
        offset += len(block)
        yield block


@dataclass(frozen=True)
class LinePage:
    """Lines `first`.. of a log, as bytes without their ends. Numbers count from 1."""

    lines: list[bytes]
    first: int
    number: int
    pages: int
    total: int  # lines in the log, an unfinished last one counted
    size: int  # bytes in the log


def count_lines(lease_code: str) -> int:
    """Lines in the log; an unfinished last one counts."""
    lines, last = 0, b"\n"
    for block in stream_log(lease_code):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last != b"\n")


def line_page(lease_code: str, page: int | None, per_page: int, longest: int) -> LinePage:
    """One page of `per_page` lines, each cut after `longest` bytes; None is the last page.

    A page beyond the end is the last one. The log is read block by block, never whole.
    """
    total = count_lines(lease_code)
    pages = max(1, -(-total // per_page))
    number = pages if page is None else min(max(1, page), pages)
    first = (number - 1) * per_page
    lines = _lines(lease_code, first, min(per_page, total - first), longest)
    return LinePage(lines, first + 1, number, pages, total, log_size(lease_code))


def _lines(lease_code: str, skip: int, wanted: int, longest: int) -> list[bytes]:
    """`wanted` lines after the first `skip`; bytes beyond `longest` of a line are left out."""
    lines: list[bytes] = []
    open_line = bytearray()
    for block in stream_log(lease_code):
        if skip:
            seen = block.count(b"\n")
            if seen < skip:
                skip -= seen
                continue
            block, skip = _after(block, skip), 0
        pieces = block.split(b"\n", wanted - len(lines))
        for piece in pieces[:-1]:
            open_line += piece[: longest + 1 - len(open_line)]
            lines.append(bytes(open_line))
            open_line.clear()
        if len(lines) == wanted:
            return lines
        open_line += pieces[-1][: max(0, longest + 1 - len(open_line))]
    return [*lines, bytes(open_line)] if open_line and len(lines) < wanted else lines


def _after(block: bytes, newlines: int) -> bytes:
    """What comes after that many line ends."""
    position = 0
    for _ in range(newlines):
        position = block.index(b"\n", position) + 1
    return block[position:]

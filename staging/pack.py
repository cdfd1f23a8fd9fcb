"""Many small files in one request: frames of header and bytes, each file verified by its digest.

A frame is a 4-byte big-endian length, a JSON header of that length (`path`, `size`, and `digest`
where it is known) and `size` bytes. A body that is cut keeps every complete frame. Bytes are
written as they come; rows are written for a batch of files at a time (staging.batches).
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from portal.base.errors import DomainError
from portal.base.words import in_bytes
from staging import names, store
from staging.batches import Arrival, settle_arrivals
from staging.body import BadFraming
from staging.digests import is_digest
from staging.models import Dataset

LONGEST_HEADER = 16 * 2**10
LARGEST_FILE = 4 * 2**20
LARGEST_BODY = 64 * 2**20
MOST_FILES = 2000
BATCH = 500


class BadPack(DomainError):
    """The body is not made of frames; what came before the fault was taken."""

    code = "bad_pack"


@dataclass(frozen=True)
class Header:
    """What a frame says of its file: bytes, and the SHA-256 in hex or nothing."""

    path: str
    size: int
    digest: str


class Frames:
    """Takes frames off pieces of a body as they come."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self.pieces = iter(pieces)
        self.buffer = bytearray()

    def __iter__(self) -> Iterator[tuple[Header, bytes | None]]:
        """(header, its bytes) of every complete frame; None for bytes that are too many to keep.

        Raises BadPack for a frame that cannot be read.
        """
        while (prefix := self._take(4)) is not None:
            length = int.from_bytes(prefix, "big")
            if not 2 <= length <= LONGEST_HEADER:
                raise BadPack(f"A header of {length} bytes; it may have 2 to {LONGEST_HEADER}.")
            raw = self._take(length)
            if raw is None:
                return
            header = read_header(raw)
            if header.size > LARGEST_FILE:
                if not self._skip(header.size):
                    return
                yield header, None
                continue
            content = self._take(header.size)
            if content is None:
                return
            yield header, content

    def _take(self, size: int) -> bytes | None:
        """The next `size` bytes; None when the body ends before."""
        while len(self.buffer) < size:
            piece = self._piece()
            if piece is None:
                return None
            self.buffer += piece
        taken = bytes(memoryview(self.buffer)[:size])
        del self.buffer[:size]
        return taken

    def _piece(self) -> bytes | memoryview | None:
        try:
            return next(self.pieces, None)
        except BadFraming as error:
            raise BadPack(str(error)) from error

    def _skip(self, size: int) -> bool:
        while size:
            part = self._take(min(size, LARGEST_FILE))
            if part is None:
                return False
            size -= len(part)
        return True


def read_header(raw: bytes) -> Header:
    try:
        found = json.loads(raw)
        path, size, digest = found["path"], found["size"], found.get("digest") or ""
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadPack("A header is not JSON with path and size.") from None
    if not (isinstance(path, str) and type(size) is int and isinstance(digest, str)):
        raise BadPack("A header needs a path that is text and a size that is a number.")
    if not 0 <= size < 2**63:
        raise BadPack(f"{names.shown(path)}: the size in its header is impossible.")
    return Header(path, size, digest)


def receive_pack(
    *,
    dataset: Dataset,
    pieces: Iterable[bytes | memoryview],
    actor: str,
    listed: bool = False,
) -> tuple[list[dict[str, str]], DomainError | None]:
    """Take the files of a pack: (an answer for each, in order; the error that ended it early).

    A file is "staged-upload" once it is kept, "have" when the team had it, else "failed" and why.
    `listed`: files that are not listed (any more) are not listed by it.
    """
    answers: list[dict[str, str]] = []
    batch: list[Arrival] = []  # written and not settled yet

    def settle() -> None:
        nonlocal batch
        arrivals, batch = batch, []  # from here on `settle_arrivals` answers for their bytes
        answers.extend(
            settle_arrivals(dataset=dataset, arrivals=arrivals, actor=actor, listed=listed)
        )

    fault = None
    try:
        try:
            for header, content in Frames(pieces):
                if len(answers) + len(batch) >= MOST_FILES:
                    raise BadPack(f"A pack has at most {MOST_FILES} files.")
                batch.append(_store(header, content))
                if len(batch) >= BATCH:
                    settle()
        except DomainError as error:
            fault = error
        settle()
    except DomainError as error:
        return answers, fault or error
    finally:
        for arrival in batch:
            if arrival.key:
                store.delete(arrival.key)
    return answers, fault


def _store(header: Header, content: bytes | None) -> Arrival:
    """Write the bytes of one file under a new key, if they are what the header says."""
    arrival = Arrival(header.path, header.size, header.digest)
    arrival.problem = names.problem(header.path)
    if arrival.problem:
        return arrival
    if content is None:
        arrival.problem = (
            f"It has {in_bytes(header.size)}; files over {in_bytes(LARGEST_FILE)} are sent alone."
        )
    elif header.digest and not is_digest(header.digest, header.size):
        arrival.problem = "Its digest does not have the form of a digest of its size."
    else:
        _write(arrival, content)
    return arrival


def _write(arrival: Arrival, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if arrival.digest not in ("", digest):
        arrival.problem = "The bytes that arrived are not those that were declared. Send it again."
        return
    arrival.digest = digest
    if arrival.size:
        key = store.new_key()
        try:
            store.write_new(key, content)
        except OSError:
            free = max(0, store.free_bytes())
            arrival.problem = f"The store's disk is full: {in_bytes(free)} are free."
            return
        arrival.key = key

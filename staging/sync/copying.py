"""Copying one part: bytes from a source to their place in the store, hashed on the way.

What is here runs in the threads of a pump and knows no database. It takes an order and returns an
outcome, which `record.py` writes down.
"""

import contextlib
import errno
import hashlib
import os
import threading
import time
import zlib
from dataclasses import dataclass, field

import structlog

from portal.base.turns import is_ending, is_over
from staging import store
from staging.digests import RAW, Hasher, combine
from staging.errors import StoreAway
from staging.sync.errors import Changed, Interrupted, SourceAway, Trouble, Unreadable
from staging.sync.readers import Body, Pinned, Reader
from staging.sync.states import PartKind

PIECE = 2**20
log = structlog.get_logger(__name__)
READ_PIECE = 4 * 2**20
MOST_TROUBLES = 3  # in one pack
# A sum over a whole file needs the whole file in order, and so one turn of one worker.
MOST_CHECKED = 64 * 2**30
STRONGEST = ("sha256", "sha1", "md5", "crc32")
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class Tally:
    """What a thread has copied of an order, for whoever looks while it goes on."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Order:
    """A claimed part, with all that a thread needs to copy it."""

    part: int
    generation: int
    source: int
    kind: str
    files: tuple[Pinned, ...]
    start: int = 0
    stop: int = 0
    arrived: int = 0
    digests: bytes = b""
    tally: Tally = field(default_factory=Tally, compare=False)


@dataclass(frozen=True)
class Arrived:
    """A file whose bytes are all in the store, hashed, and compared with what its source offers."""

    pk: int
    size: int
    store_key: str
    digest: str
    chunks: bytes


@dataclass
class Outcome:
    """What came of an order. `trouble` is why the rest did not come; `left` says there is a rest.

    `refused` are files with a Changed or Unreadable each. `arrived` and `digests` are of the whole
    range, what was there before included.
    """

    order: Order
    files: list[Arrived] = field(default_factory=list)
    refused: list[tuple[int, Trouble]] = field(default_factory=list)
    arrived: int = 0
    digests: bytes = b""
    left: bool = False
    mismatch: bool = False
    disk_full: bool = False
    trouble: Trouble | None = None
    took_s: float = 0.0
    last: bool = True  # of those that its thread was given


class _Local(threading.local):
    """A buffer a thread, kept for all its parts."""

    def __init__(self) -> None:
        self.buffer = bytearray(PIECE)

    def view(self, size: int = PIECE) -> memoryview:
        if len(self.buffer) < size:
            self.buffer = bytearray(size)
        return memoryview(self.buffer)[:size]


_local = _Local()


def copy(reader: Reader, order: Order, until: float) -> Outcome:
    """Do an order until it is done or the time.monotonic() value has come. Raises nothing."""
    outcome = Outcome(order, arrived=order.arrived, digests=order.digests)
    began = time.monotonic()
    work = {PartKind.PACK: _pack, PartKind.RANGE: _range, PartKind.CHECK: _check}[
        PartKind(order.kind)
    ]
    try:
        work(reader, outcome, until)
    except Interrupted:
        outcome.left = True
    except Trouble as trouble:
        outcome.trouble, outcome.left = trouble, True
    except StoreAway as error:
        outcome.trouble, outcome.left = Trouble(str(error)), True
    except OSError as error:
        outcome.left = True
        outcome.disk_full = error.errno in FULL
        outcome.trouble = Trouble(f"The store cannot be written: {error.strerror or error}.")
    except Exception:  # no answer of a source may end a thread; the part is tried again
        log.exception("sync_copy_failed", part=order.part)
        outcome.trouble, outcome.left = Trouble("The source's answer cannot be understood."), True
    outcome.took_s = time.monotonic() - began
    return outcome


def _pack(reader: Reader, outcome: Outcome, until: float) -> None:
    """One file that does not come keeps nobody waiting; several mean that none will."""
    troubles = 0
    for pinned in outcome.order.files:
        if is_over(until):
            raise Interrupted
        try:
            outcome.files.append(_small(reader, pinned, until, outcome.order.tally))
            outcome.order.tally.files += 1
        except (Changed, Unreadable) as trouble:
            outcome.refused.append((pinned.pk, trouble))
        except SourceAway:
            raise
        except Trouble as trouble:
            troubles += 1
            outcome.trouble, outcome.left = trouble, True
            if troubles >= MOST_TROUBLES:
                return


def _small(reader: Reader, pinned: Pinned, until: float, tally: Tally) -> Arrived:
    """A file of one chunk, in memory and then at once to its place."""
    view = _local.view(pinned.size)
    with reader.fetch(pinned, 0, pinned.size, until) as body:
        _fill(body, view, until, tally)
        sums = body.sums
    digest = hashlib.sha256(view).digest()
    _compare(sums, pinned, lambda name: _sum_of(name, view, digest))
    fd = store.open_to_write(pinned.store_key)
    try:
        store.write_all(fd, view, 0)
    finally:
        os.close(fd)
    return Arrived(pinned.pk, pinned.size, pinned.store_key, digest.hex(), digest)


def _fill(body: Body, view: memoryview, until: float, tally: Tally) -> None:
    filled = 0
    while filled < len(view):
        if is_over(until):
            raise Interrupted
        count = body.read_into(view[filled:], until)
        if not count:
            raise Trouble("The source sent less than it has.")
        filled += count
        tally.bytes += count


def _sum_of(name: str, view: memoryview, sha256: bytes) -> str:
    if name == "sha256":
        return sha256.hex()
    return _Sum(name).over(view).hex()


class _Sum:
    """A digest by name; crc32 among them."""

    def __init__(self, name: str) -> None:
        self.crc: int | None = 0 if name == "crc32" else None
        self.hash = hashlib.new(name, usedforsecurity=False) if name != "crc32" else None

    def over(self, view: memoryview | bytes) -> "_Sum":
        if self.hash is not None:
            self.hash.update(view)
        else:
            self.crc = zlib.crc32(view, self.crc or 0)
        return self

    def hex(self) -> str:
        return self.hash.hexdigest() if self.hash is not None else f"{self.crc:08x}"


def strongest(sums: dict[str, str]) -> str:
    """The name of the strongest sum that is offered; "" where there is none."""
    return next((name for name in STRONGEST if sums.get(name)), "")


class Mismatch(Trouble):
    """What came is not what the source says it has."""

    code = "mismatch"


def _compare(sums: dict[str, str], pinned: Pinned, compute) -> None:
    """Raises Mismatch where the bytes differ from the sum that their source offers or declared."""
    if pinned.sha256:
        sums = {"sha256": pinned.sha256}
    name = strongest(sums)
    if name and compute(name) != sums[name].lower():
        raise Mismatch(
            f"What arrived does not have the {name.upper()} that the source says it has."
        )


def _range(reader: Reader, outcome: Outcome, until: float) -> None:
    """Go on with a range where it stopped. What is written before an end is kept to the byte."""
    order = outcome.order
    (pinned,) = order.files
    hasher = Hasher(pinned.size, order.digests)
    size = order.stop - order.start
    fd = store.open_to_write(pinned.store_key)
    try:
        at = order.arrived
        _hash_again(fd, hasher, order.start + hasher.resume_at, order.start + at)
        if at < size:  # a worker may have died right after the last byte
            at = _stream(reader, pinned, outcome, (fd, hasher, at), until)
        chunks = hasher.finish()[1] if at == size else bytes(hasher.chunks)
        outcome.arrived, outcome.digests = at, chunks
    finally:
        os.close(fd)


def _hash_again(fd: int, hasher: Hasher, start: int, stop: int) -> None:
    """The bytes of the open chunk, which came in an earlier turn."""
    while start < stop:
        piece = os.pread(fd, min(READ_PIECE, stop - start), start)
        if not piece:
            raise Trouble("Bytes that had been stored are no longer there.", kind="lost")
        hasher.update(piece)
        start += len(piece)


def _stream(
    reader: Reader, pinned: Pinned, outcome: Outcome, state: tuple[int, Hasher, int], until: float
) -> int:
    """Copy the rest of a range; how far it came. An end before the end is noted, not raised."""
    fd, hasher, at = state
    order = outcome.order
    view = _local.view()
    size = order.stop - order.start
    try:
        with reader.fetch(pinned, order.start + at, order.stop, until) as body:
            while at < size:
                if is_over(until):
                    raise Interrupted
                count = body.read_into(view[: min(PIECE, size - at)], until)
                if not count:
                    raise Trouble("The source sent less than it has.")
                piece = view[:count]
                store.write_all(fd, piece, order.start + at)
                hasher.update(piece)
                at += count
                order.tally.bytes += count
    except Interrupted:
        outcome.left = True
    except (Changed, Unreadable) as trouble:
        outcome.refused.append((pinned.pk, trouble))
        outcome.left = True
    except Trouble as trouble:
        outcome.trouble, outcome.left = trouble, True
    if at < size and at > order.arrived:
        # Whoever goes on hashes these bytes again from the disk: they must survive a power cut.
        os.fsync(fd)
    return at


def _check(reader: Reader, outcome: Outcome, until: float) -> None:
    """Compare a file that came in ranges with the strongest sum its source offers.

    It asks the source once more, so what was overwritten while it was copied is noticed.
    """
    order = outcome.order
    (pinned,) = order.files
    try:
        sums = reader.sums(pinned)
        if pinned.size <= MOST_CHECKED:
            _compare(sums, pinned, lambda name: _sum_of_stored(name, pinned, order.digests))
    except (Changed, Unreadable) as trouble:
        outcome.refused.append((pinned.pk, trouble))
        return
    except Mismatch as trouble:
        outcome.mismatch, outcome.trouble, outcome.left = True, trouble, True
        return
    digest = combine(order.digests)
    outcome.files.append(Arrived(pinned.pk, pinned.size, pinned.store_key, digest, order.digests))


def _sum_of_stored(name: str, pinned: Pinned, chunks: bytes) -> str:
    if name == "sha256" and len(chunks) == RAW:
        return chunks.hex()
    whole = _Sum(name)
    fd = os.open(store.path_of(pinned.store_key), os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(AttributeError, OSError):
            os.posix_fadvise(fd, 0, pinned.size, os.POSIX_FADV_SEQUENTIAL)
        view, at = _local.view(READ_PIECE), 0
        while count := os.preadv(fd, [view[: min(READ_PIECE, pinned.size - at)]], at):
            if is_ending():
                raise Interrupted
            whole.over(view[:count])
            at += count
    finally:
        os.close(fd)
    return whole.hex()

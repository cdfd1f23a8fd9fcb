"""What every kind of source offers: pages of what it holds, and bytes of what was pinned."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from staging.sync.errors import Changed, Trouble, Unreadable
from staging.sync.web import Answer

PAGE = 1000  # entries
# A server that answers a range with the whole is read up to the range, if that is near enough.
MOST_SKIPPED = 256 * 2**20


@dataclass(frozen=True)
class Found:
    """One entry of a source. `path` is its name in the dataset; `etag` and `version` pin it.

    `settled`: equal pins mean equal bytes, so a copy that is here already serves.
    """

    key: str
    path: str
    size: int
    etag: str = ""
    version: str = ""
    sha256: str = ""
    modified: int | None = None
    settled: bool = True


@dataclass
class Page:
    """What one step of a listing brought. `cursor` is where the next begins; None at the end.

    `skipped` are names that were not taken, each with a sentence.
    """

    found: list[Found] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    cursor: dict | None = None


@dataclass(frozen=True)
class Pinned:
    """A file as it was listed, and where its bytes go."""

    pk: int
    key: str
    size: int
    etag: str
    version: str
    sha256: str
    store_key: str


class NoRanges(Trouble):
    """What came may be the part that was asked for, but nothing says so: ask for the whole."""


class Body(Protocol):
    """Exactly the bytes that were asked for. `sums`: digests of the whole file by algorithm, as
    the source offers them, when the whole was asked for."""

    sums: dict[str, str]

    def __enter__(self) -> "Body": ...

    def __exit__(self, *_: object) -> None: ...

    def read_into(self, view: memoryview, until: float) -> int:
        """Some bytes; 0 at the end. Raises Trouble and Interrupted."""


class Reader(Protocol):
    """A source, without a database: it is used by the threads of a pump."""

    def pages(self, cursor: dict) -> Iterator[Page]:
        """Everything after a cursor ({} for the beginning). Raises Trouble."""

    def fetch(self, pinned: Pinned, start: int, stop: int, until: float) -> Body:
        """Bytes [start, stop) of a file that is still what was listed. Raises Trouble."""

    def sums(self, pinned: Pinned) -> dict[str, str]:
        """Digests of the whole file as the source offers them now. Raises Trouble."""


class HttpBody:
    """Bytes [start, stop) out of an answer that holds them, with what comes before thrown away."""

    def __init__(
        self, answer: Answer, pinned: Pinned, start: int, stop: int, sums: dict[str, str]
    ) -> None:
        self.answer, self.sums = answer, sums
        self.skip, self.left = skipped_by(answer, pinned, start, stop), stop - start

    def __enter__(self) -> "HttpBody":
        self.answer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.answer.__exit__(*error)  # type: ignore[arg-type]

    def read_into(self, view: memoryview, until: float) -> int:
        while self.skip:
            self.skip -= self._some(view[: self.skip], until)
        if not self.left:
            return 0
        count = self._some(view[: self.left], until)
        self.left -= count
        return count

    def _some(self, view: memoryview, until: float) -> int:
        count = self.answer.read_into(view, until)
        if not count:
            raise Trouble("The source closed the connection before the end.")
        return count


def skipped_by(answer: Answer, pinned: Pinned, start: int, stop: int) -> int:
    """How many bytes of an answer come before `start`. Raises Changed, Unreadable or Trouble
    where the answer does not hold what was asked for."""
    if answer.status == 206 and answer.range is None:
        raise Trouble("The source answered a range without saying which.")
    if answer.range is not None:
        first, last, size = answer.range
        if size != pinned.size:
            raise Changed(f"It has {size} bytes now; {pinned.size} were listed.")
        if (first, last) != (start, stop):
            raise Trouble("The source answered with another range than was asked for.")
        return 0
    if answer.length is None:
        raise Trouble("The source does not say how much it sends.")
    if answer.length == stop - start != pinned.size:
        raise NoRanges("The source calls a part of a file the whole of it.")
    if answer.length != pinned.size:
        raise Changed(f"It has {answer.length} bytes now; {pinned.size} were listed.")
    if start > MOST_SKIPPED:
        raise Unreadable("It is too large for a source that cannot send a part of a file.")
    return start


def same_etag(one: str, other: str) -> bool:
    return plain_etag(one) == plain_etag(other)


def plain_etag(text: str) -> str:
    return text.strip().removeprefix("W/").strip('"')


def pin_of(origin: str, found: Found) -> str:
    """A digest over what pins an entry; "" where equal pins would not mean equal bytes."""
    if not found.settled or not (found.etag or found.version):
        return ""
    parts = [origin, found.key, str(found.size), plain_etag(found.etag), found.version]
    parts.append(found.sha256)  # what was not compared with it may not stand for it
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()

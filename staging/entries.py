"""A file as its source describes it, and the answer: have it, send it, or refused and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from portal.base.errors import DomainError, TooLarge
from portal.base.words import in_bytes
from staging import names
from staging.digests import RAW, chunk_count, combine, is_digest
from staging.errors import RefusedName
from staging.models import File, Upload

HAVE, SEND, REFUSED = "have", "send", "refused"


@dataclass(frozen=True)
class Entry:
    """A file as its source describes it. Sizes in bytes, `modified` in ms since 1970.

    `chunks` are the raw SHA-256 of its chunks, so that a wrong one is told apart; `deferred` says
    that the size is not known yet (and 0 here).
    """

    path: str
    size: int
    digest: str = ""
    executable: bool = False
    modified: int | None = None
    chunks: bytes = b""
    deferred: bool = False

    @property
    def empty(self) -> bool:
        return not self.size and not self.deferred


@dataclass
class FilePlan:
    """What to do about one entry. `address` is where bytes go, from `upload.offset` on.

    `hash_first`: the team has bytes of this size; a digest would tell whether they are these.
    """

    file: File | None
    state: str
    upload: Upload | None = None
    address: str = ""
    message: str = ""
    path: str = ""
    hash_first: bool = False


def refused_plan(entry: Entry, sentence: str) -> FilePlan:
    return FilePlan(None, REFUSED, message=sentence, path=entry.path)


def problem_of(entry: Entry) -> str:
    """Why an entry is refused whatever the dataset holds, or ""."""
    return names.problem(entry.path) or _fact_problem(entry)


def _fact_problem(entry: Entry) -> str:
    if entry.size < 0:
        return "Its size is negative."
    if entry.size > settings.LARGEST_UPLOAD_BYTES:
        return f"It is larger than {in_bytes(settings.LARGEST_UPLOAD_BYTES)}, the most accepted."
    if entry.digest and not is_digest(entry.digest, entry.size):
        return "Its digest does not have the form of a digest of its size."
    if entry.chunks and len(entry.chunks) != chunk_count(entry.size) * RAW:
        return f"A file of its size has {chunk_count(entry.size)} chunks."
    if entry.chunks and entry.digest not in ("", combine(entry.chunks)):
        return "Its digest is not the one of its chunks."
    return ""


def refuse(entries: Sequence[Entry]) -> dict[int, str]:
    """Sentences for entries that are refused whatever else the dataset holds."""
    refused: dict[int, str] = {}
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        sentence = problem_of(entry)
        if not sentence and entry.path in seen:
            sentence = "It is listed twice."
        if sentence:
            refused[index] = sentence
        else:
            seen.add(entry.path)
    return refused


def refusal(entry: Entry, sentence: str) -> DomainError:
    if sentence.startswith("It is larger"):
        return TooLarge(f"{names.shown(entry.path)}: {sentence}", path=names.shown(entry.path))
    return RefusedName(f"{names.shown(entry.path)}: {sentence}", path=names.shown(entry.path))

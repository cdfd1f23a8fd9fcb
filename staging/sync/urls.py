"""Lists of addresses: one HTTPS address a line, with its size and SHA-256 where they are known.

What a server says of a file pins it: a strong ETag, else the date of its last change. Redirects are
followed, each through the guard again, and only to HTTPS.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urljoin, urlsplit

from portal.base.errors import DomainError
from staging.sync import web
from staging.sync.errors import Changed, Interrupted, SourceAway, SourceRefuses, Trouble, Unreadable
from staging.sync.readers import Found, HttpBody, NoRanges, Page, Pinned

MOST_LINES = 10_000
MOST_BYTES = 2**20
LONGEST = 2000  # characters of an address
AT_A_TIME = 5  # addresses asked for in one step
MOST_REDIRECTS = 5
SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
MODIFIED = "modified "


@dataclass(frozen=True)
class Line:
    """One address, the name that its file gets, and what its owner says of it."""

    number: int
    url: str
    path: str
    size: int | None
    sha256: str


def read_list(text: str) -> list[Line]:
    """The lines of a list; "#" begins a comment. Raises DomainError, naming the line."""
    if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise DomainError("A list of addresses has at most 1 MiB.")
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition(" #")[0].split():
            if words[0].startswith("#"):
                continue
            rows.append(_read_line(number, words))
    if not rows:
        raise DomainError("There is no address in this list.")
    if len(rows) > MOST_LINES:
        raise DomainError(f"A list has at most {MOST_LINES:,} addresses.")
    short = [urlsplit(row.url).path.rpartition("/")[2] for row in rows]
    alone = len(set(short)) == len(short)
    return [_named(row, alone) for row in rows]


def _read_line(number: int, words: list[str]) -> Line:
    url, *facts = words
    _check_address(number, url)
    size, sha256 = None, ""
    for fact in facts:
        if SHA256.fullmatch(fact) and not sha256:
            sha256 = fact.lower()
        elif fact.isascii() and fact.isdigit() and len(fact) < 17 and size is None:
            size = int(fact)
        else:
            raise DomainError(f"Line {number}: after the address come a size and a SHA-256.")
    return Line(number, url.partition("#")[0], "", size, sha256)


def _check_address(number: int, url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise DomainError(f"Line {number} is no address.") from None
    if not good:
        raise DomainError(f"Line {number}: an address begins with https://.")
    if "@" in parts.netloc:
        raise DomainError(f"Line {number}: an address holds no user or password.")
    if len(url) > LONGEST or not url.isascii() or not url.isprintable():
        raise DomainError(f"Line {number}: an address has at most {LONGEST} ASCII characters.")


def _named(row: Line, alone: bool) -> Line:
    """A file is called by the end of its address; where ends repeat, by host and path."""
    parts = urlsplit(row.url)
    path = unquote(parts.path)
    name = path.rpartition("/")[2] if alone else f"{parts.hostname}{path}"
    if not name or name.endswith("/"):
        raise DomainError(f"Line {row.number}: the address names no file.")
    return Line(row.number, row.url, name, row.size, row.sha256)


class UrlReader:
    def __init__(self, addresses: str) -> None:
        self.addresses = addresses

    def pages(self, cursor: dict) -> Iterator[Page]:
        lines = read_list(self.addresses)
        at = int(cursor.get("line", 0))
        while True:
            some, at = lines[at : at + AT_A_TIME], at + AT_A_TIME
            more = {"line": at} if at < len(lines) else None
            yield Page([_found(line) for line in some], [], more)
            if more is None:
                return

    def fetch(self, pinned: Pinned, start: int, stop: int, until: float) -> HttpBody:
        if (start, stop) == (0, pinned.size):
            return self._get(pinned, start, stop, until, {})
        ranged = {"Range": f"bytes={start}-{stop - 1}"}
        if pinned.etag:
            ranged["If-Range"] = pinned.etag.removeprefix(MODIFIED)
        try:
            return self._get(pinned, start, stop, until, ranged)
        except NoRanges:
            return self._get(pinned, start, stop, until, {})

    def _get(
        self, pinned: Pinned, start: int, stop: int, until: float, headers: Mapping[str, str]
    ) -> HttpBody:
        answer = _of_one_file(lambda: _follow("GET", pinned.key, headers, until))
        try:
            if answer.status not in (200, 206):
                raise _problem(answer)
            _same(pinned, answer)
            return HttpBody(answer, pinned, start, stop, {})
        except BaseException:
            answer.connection.close()
            raise

    def sums(self, pinned: Pinned) -> dict[str, str]:
        return {"sha256": pinned.sha256} if pinned.sha256 else {}


def _of_one_file(ask) -> web.Answer:
    """A list names many hosts: one that is away is the trouble of its own files only."""
    try:
        return ask()
    except SourceRefuses as error:
        raise Unreadable(str(error)) from error
    except SourceAway as error:
        raise Trouble(str(error)) from error


def _follow(
    method: str, url: str, headers: Mapping[str, str], until: float | None = None
) -> web.Answer:
    """An answer after redirects. Each is asked for through the guard, and must be HTTPS."""
    for _ in range(MOST_REDIRECTS + 1):
        answer = web.send(method, url, {"Accept-Encoding": "identity", **headers}, until)
        where = answer.header("Location")
        if answer.status not in (301, 302, 303, 307, 308) or not where:
            return answer
        answer.connection.close()
        url = urljoin(url, where)
        if urlsplit(url).scheme != "https":
            raise Unreadable("It leads to an address that is not HTTPS.")
    raise Unreadable("It leads from one address to the next without end.")


def _validator(answer: web.Answer) -> str:
    etag = answer.header("ETag").strip()
    if etag and not etag.startswith("W/"):
        return etag[:200]
    modified = answer.header("Last-Modified").strip()
    return f"{MODIFIED}{modified}"[:200] if modified else ""


def _same(pinned: Pinned, answer: web.Answer) -> None:
    if pinned.etag and _validator(answer) != pinned.etag:
        raise Changed("It changed at its address after it was listed.")


def _problem(answer: web.Answer) -> Trouble:
    status, host = answer.status, answer.connection.place[1]
    if status in (404, 410):
        return Changed("It is no longer at its address.")
    if status in (412, 416):
        return Changed("It changed at its address after it was listed.")
    if status in (401, 403, 451):
        return Unreadable(f"{host} does not hand it out ({status}).")
    if status in (408, 425, 429) or status >= 500:
        return Trouble(f"{host} answers {status}.")
    return Unreadable(f"{host} answers {status}.")


def _found(line: Line) -> Found:
    """What a server says of a file before it is asked for. Raises Trouble, naming the line.

    A list that lacks one of its files is not what was asked for, so nothing is passed over.
    """
    try:
        size, etag = _ask(line.url)
    except SourceRefuses as error:
        raise SourceRefuses(f"Line {line.number}: {error}") from error
    except (Changed, Unreadable) as error:
        raise SourceRefuses(f"Line {line.number}: {error}") from error
    except (Trouble, Interrupted) as error:
        raise SourceAway(f"Line {line.number}: {error}") from error
    if size is None:
        size = line.size
    if size is None:
        raise SourceRefuses(f"Line {line.number}: its server tells no size. Write it there.")
    if line.size not in (None, size):
        raise SourceRefuses(f"Line {line.number}: it has {size} bytes, not {line.size}.")
    if not etag and not line.sha256:
        raise SourceRefuses(
            f"Line {line.number}: its server gives neither an ETag nor a date, so a change would "
            "not be noticed. Write its SHA-256 there."
        )
    strong = bool(etag) and not etag.startswith(MODIFIED)
    return Found(line.url, line.path, size, etag, sha256=line.sha256, settled=strong)


def _ask(url: str) -> tuple[int | None, str]:
    """(size or None, what pins the file)"""
    with _follow("HEAD", url, {}) as answer:
        if answer.status == 200 and answer.length is not None:
            return answer.length, _validator(answer)
    with _follow("GET", url, {"Range": "bytes=0-0"}) as answer:
        if answer.status == 416:
            return 0, _validator(answer)  # nothing is at the place of the first byte
        if answer.status not in (200, 206):
            raise _problem(answer)
        size = answer.range[2] if answer.range else answer.length
        return size, _validator(answer)

"""HTTP over kept connections through the guard: a small pool a process, time limits everywhere."""

import contextlib
import http.client
import re
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from urllib.parse import SplitResult, urlsplit

from portal.base.turns import is_over
from staging.sync import guard
from staging.sync.errors import Interrupted, SourceAway, Trouble, Unreadable

PIECE = 2**18  # bytes; what has come of one is lost with its connection
SILENCE_S = 10.0  # the longest that a server may send nothing
IDLE_S = 15.0  # how long an unused connection is kept
MOST_IDLE = 8  # for one host
MOST_TEXT = 8 * 2**20  # bytes of an answer that is read whole
CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)", re.ASCII)

type Place = tuple[str, str, int]  # scheme, host, port


def place_of(parts: SplitResult) -> Place:
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port


class _Connection(http.client.HTTPConnection):
    """http.client's connection; the guard makes the socket."""

    def __init__(self, place: Place) -> None:
        self.place = place
        super().__init__(place[1], place[2], timeout=SILENCE_S)
        self.idle_since = 0.0

    def connect(self) -> None:
        scheme, host, port = self.place
        sock = guard.connect(host, port)
        sock.settimeout(SILENCE_S)
        self.sock = guard.secure(sock, host) if scheme == "https" else sock


class Pool:
    """Connections that wait for their next request; shared by the threads of a process."""

    def __init__(self) -> None:
        self._idle: dict[Place, list[_Connection]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, place: Place) -> tuple[_Connection, bool]:
        """(a connection, whether it was used before)"""
        with self._lock:
            waiting = self._idle[place]
            while waiting:
                connection = waiting.pop()
                if time.monotonic() - connection.idle_since < IDLE_S:
                    return connection, True
                connection.close()
        return _Connection(place), False

    def put(self, connection: _Connection) -> None:
        connection.idle_since = time.monotonic()
        with self._lock:
            waiting = self._idle[connection.place]
            if len(waiting) < MOST_IDLE:
                waiting.append(connection)
                return
        connection.close()

    def clear(self) -> None:
        with self._lock:
            for waiting in self._idle.values():
                for connection in waiting:
                    connection.close()
            self._idle.clear()


POOL = Pool()


class Answer:
    """An answer whose body is read in pieces. Leaving it keeps the connection, or closes it."""

    def __init__(self, connection: _Connection, response: http.client.HTTPResponse) -> None:
        self.connection, self.response = connection, response
        self.status = response.status
        self.headers = response.headers

    def __enter__(self) -> "Answer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        whole = self.response.isclosed() and not self.response.length
        if whole and not self.response.will_close:
            POOL.put(self.connection)
        else:
            self.connection.close()

    def header(self, name: str) -> str:
        return self.headers.get(name) or ""

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the server says so."""
        text = self.header("Content-Length")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def range(self) -> tuple[int, int, int] | None:
        """(start, stop, size of the whole) of a 206."""
        match = CONTENT_RANGE.fullmatch(self.header("Content-Range").strip())
        if match is None:
            return None
        first, last, size = map(int, match.groups())
        return first, last + 1, size

    @property
    def date(self) -> datetime | None:
        with contextlib.suppress(ValueError, TypeError):
            when = parsedate_to_datetime(self.header("Date"))
            return when if when.tzinfo else when.replace(tzinfo=UTC)
        return None

    def read_into(self, view: memoryview, until: float | None = None) -> int:
        """Some bytes of the body; 0 at its end. Raises Trouble, or Interrupted at `until`."""
        try:
            if until is not None:
                self._limit(until)
            return self.response.readinto(view[:PIECE])
        except TimeoutError as error:
            if until is not None and time.monotonic() >= until:
                raise Interrupted from error
            host = self.connection.place[1]
            raise Trouble(f"{host} sent nothing for {SILENCE_S:g} s.") from error
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"The connection to {self.connection.place[1]} broke.") from error

    def _limit(self, until: float) -> None:
        left = until - time.monotonic()
        if is_over(until):
            raise Interrupted
        if left < SILENCE_S and self.connection.sock is not None:
            self.connection.sock.settimeout(max(0.1, left))

    def text(self) -> bytes:
        """The whole body of a short answer. Raises Trouble."""
        body = bytearray()
        piece = memoryview(bytearray(2**16))
        until = time.monotonic() + 2 * SILENCE_S
        try:
            while count := self.read_into(piece, until):
                body += piece[:count]
                if len(body) > MOST_TEXT:
                    raise Trouble("The server's answer is far too long.")
        except Interrupted as error:
            raise Trouble(f"{self.connection.place[1]} takes too long to answer.") from error
        return bytes(body)


def send(method: str, url: str, headers: Mapping[str, str], until: float | None = None) -> Answer:
    """One request without a body; redirects are not followed. Raises SourceAway and Unreadable.

    A kept connection that the server has closed meanwhile is replaced, once.
    """
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    while True:
        connection, used = POOL.take(place_of(parts))
        try:
            if connection.sock is not None:
                connection.sock.settimeout(_patience(until))
            connection.request(method, target, headers=dict(headers))
            return Answer(connection, connection.getresponse())
        except (ValueError, http.client.InvalidURL) as error:
            connection.close()
            raise Unreadable("Its address cannot be asked for.") from error
        except TimeoutError as error:
            connection.close()
            if until is not None and time.monotonic() >= until:
                raise Interrupted from error
            raise SourceAway(f"{parts.hostname} did not answer within {SILENCE_S:g} s.") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if not used:
                raise SourceAway(f"{parts.hostname} broke the connection.") from error
        except BaseException:
            connection.close()
            raise


def _patience(until: float | None) -> float:
    """Seconds to wait for an answer; Interrupted when the time is over."""
    if until is None:
        return SILENCE_S
    left = until - time.monotonic()
    if is_over(until):
        raise Interrupted
    return max(0.1, min(SILENCE_S, left))

"""HTTP to the portal over kept connections, one per thread. Every request may be repeated."""

import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import IO, Any, TypeVar
from urllib.parse import urljoin, urlsplit

from nodes.agent import VERSION

TIMEOUT_SECONDS = 30
SEND_BLOCK = 1024 * 1024
BACKOFF_MOST_SECONDS = 30.0
T = TypeVar("T")


class Away(Exception):
    """The portal did not answer, or said that it cannot now (5xx): try again later.

    `kind` is what that means for an output that waits; see docs/agent-protocol.md.
    """

    def __init__(self, sentence: str = "", kind: str = "unreachable") -> None:
        super().__init__(sentence)
        self.kind = kind


class Refused(Exception):
    """The portal's word: a status of 4xx with a code."""

    def __init__(self, status: int, code: str, sentence: str, body: dict[str, Any]) -> None:
        super().__init__(f"{status} {code}: {sentence}")
        self.status, self.code, self.body = status, code, body


class Stopped(Exception):
    """The lease is no longer wanted: what was going on for it ends."""


class Portal:
    """One portal at `base`; `credential` is set after enrolment. Safe to use from any thread."""

    def __init__(self, base: str, credential: str = "") -> None:
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{base!r} is no http:// or https:// address of a portal.")
        self.base = base.rstrip("/") + "/"
        self.credential = credential
        self._local = threading.local()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        lease: tuple[str, str] | None = None,
    ) -> dict[str, Any]:
        """JSON (or raw bytes) to the agent API and the JSON of its answer."""
        headers = self._headers(lease)
        if isinstance(body, bytes):
            payload: bytes | None = body
            headers["Content-Type"] = "application/octet-stream"
        else:
            payload = None if body is None else json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        answer = self.open(method, self._api(path), payload, headers)
        return _decoded(self.read(answer))

    def get(self, path: str, *, lease: tuple[str, str], start: int = 0) -> http.client.HTTPResponse:
        """The bytes of a file from `start` on; the caller reads them all."""
        headers = self._headers(lease)
        if start:
            headers["Range"] = f"bytes={start}-"
        return self.open("GET", self._api(path), None, headers)

    def open(
        self, method: str, url: str, body: bytes | IO[bytes] | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """One request; raises Away or Refused, so that an answer is always a good one."""
        try:
            answer = self._send(method, urljoin(self.base, url), body, headers)
            if answer.status < 300:
                return answer
            content = answer.read(65536)
            answer.close()
        except (OSError, http.client.HTTPException) as error:
            self.hang_up()
            raise Away(f"{type(error).__name__}: {error}") from error
        self._give_up_on(answer.status, content)
        raise AssertionError("unreachable")

    def read(self, answer: http.client.HTTPResponse, size: int | None = None) -> bytes:
        """Up to `size` bytes of a good answer's body, or the whole. Raises Away where it breaks."""
        try:
            return answer.read(size)
        except (OSError, http.client.HTTPException) as error:
            self.hang_up()
            raise Away(f"The answer broke off: {type(error).__name__}: {error}") from error

    def _give_up_on(self, status: int, content: bytes) -> None:
        self.hang_up()
        if status >= 500 or status in (408, 425, 429):
            raise Away(f"The portal answered {status}.", _kind(status, _error_of(content)))
        body = _error_of(content)
        code = str(body.get("error", "unknown"))
        raise Refused(status, code, str(body.get("message", "no reason given")), body)

    def _send(
        self, method: str, url: str, body: bytes | IO[bytes] | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        origin = (parts.scheme, parts.netloc)
        kept = self._connections().get(origin)
        for connection in (kept, None) if kept else (None,):
            try:
                fresh = connection or self._connect(*origin)
                fresh.request(method, target, body, headers)
                return fresh.getresponse()
            except (OSError, http.client.HTTPException):
                self.hang_up()
                # Only a kept connection may have gone stale unseen, and a file cannot be unread.
                if connection is None or hasattr(body, "read"):
                    raise
        raise AssertionError("unreachable")

    def _connections(self) -> dict[tuple[str, str], http.client.HTTPConnection]:
        if not hasattr(self._local, "kept"):
            self._local.kept = {}
        kept: dict[tuple[str, str], http.client.HTTPConnection] = self._local.kept
        return kept

    def _connect(self, scheme: str, netloc: str) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                netloc, timeout=TIMEOUT_SECONDS, context=context, blocksize=SEND_BLOCK
            )
        else:
            connection = http.client.HTTPConnection(
                netloc, timeout=TIMEOUT_SECONDS, blocksize=SEND_BLOCK
            )
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections()[scheme, netloc] = connection
        return connection

    def hang_up(self) -> None:
        """Close this thread's connections; the next request makes a new one."""
        for connection in self._connections().values():
            connection.close()
        self._connections().clear()

    def _api(self, path: str) -> str:
        return urljoin(self.base, "agent/v1/" + path)

    def _headers(self, lease: tuple[str, str] | None) -> dict[str, str]:
        headers = {"User-Agent": f"e31-agent/{VERSION}"}
        if self.credential:
            headers["Authorization"] = f"Bearer {self.credential}"
        if lease:
            headers["X-Lease-Token"] = lease[1]
        return headers


def _decoded(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError as error:
        raise Away(f"The answer is no JSON: {content[:80]!r}") from error
    if not isinstance(body, dict):
        raise Away("The answer is no JSON object.")
    return body


def _error_of(content: bytes) -> dict[str, Any]:
    try:
        return _decoded(content)
    except Away:
        return {}


def _kind(status: int, body: dict[str, Any]) -> str:
    if status == 507:
        return "store_full"
    if body.get("error") == "store_away":
        return "store_away"
    return "unreachable" if status in (502, 504) else "not_taken"


class Backoff:
    """Growing pauses with jitter, so that many agents do not come back in step."""

    def __init__(self, first: float = 0.5, most: float = BACKOFF_MOST_SECONDS) -> None:
        self.first, self.most, self.tries = first, most, 0

    def reset(self) -> None:
        self.tries = 0

    def next(self) -> float:
        """Seconds to wait before the next try."""
        ceiling = min(self.most, self.first * 2 ** min(self.tries, 10))
        self.tries += 1
        return random.uniform(ceiling / 2, ceiling)  # noqa: S311


class Errand:
    """What goes on for one lease: it can be told to stop, and says how long nobody answers."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.away_since: float | None = None  # of time.monotonic()
        self.trouble = ""  # the kind of the last Away, until somebody answers


def patiently(action: Callable[[], T], errand: Errand) -> T:
    """Repeat `action` until the portal answers. Raises Stopped when the errand is stopped.

    A lease that the portal does not know (404 unknown_lease) is asked for again: the portal may be
    a restored one, and an operator may give the lease back.
    """
    backoff = Backoff()
    while not errand.stopped.is_set():
        try:
            done = action()
        except Away as error:
            errand.away_since = errand.away_since or time.monotonic()
            errand.trouble = error.kind
        except Refused as error:
            if error.code not in ("unknown_lease", "unknown_credential"):
                raise
            backoff.tries += 4
        else:
            errand.away_since, errand.trouble = None, ""
            return done
        errand.stopped.wait(backoff.next())
    raise Stopped

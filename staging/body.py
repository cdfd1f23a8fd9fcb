"""The body of a request as it arrives, not when it is whole.

`read(n)` of a WSGI server waits for n bytes; what came before a cut, or before another request
takes the upload over, would be lost with it. Under gunicorn this reads what its buffer and socket
hold and, while nothing comes, hands out an empty piece now and then, so that the one who writes
can look around. Elsewhere (tests, the development server) it reads small pieces.
"""

import select
import time
from collections.abc import Generator, Iterator
from typing import Any

PIECE = 2**20
SMALL_PIECE = 2**16
TICK = 0.2  # seconds without a byte until an empty piece is handed out
IDLE_LIMIT = 60.0  # seconds without a byte until the body counts as cut
LONGEST_LINE = 4096  # of chunked framing, in bytes


class BadFraming(ValueError):
    """The chunked body is not what RFC 9112 describes."""


def is_chunked(environ: dict[str, Any]) -> bool:
    return "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower()


def pieces(environ: dict[str, Any], length: int | None) -> Generator[bytes | memoryview]:
    """Pieces of the body until its end or its cut. `length` is Content-Length, None if chunked.

    Whether everything came is the caller's to compare. A piece is valid until the next is taken.
    """
    stream = environ["wsgi.input"]
    sock = environ.get("gunicorn.socket")
    reader = getattr(stream, "reader", None)
    unreader = getattr(reader, "unreader", None)
    plain = sock is not None and not hasattr(sock, "pending")
    if plain and length is not None and unreader and hasattr(reader, "length"):
        return _Direct(stream, sock, min(PIECE, length)).plain(reader)
    if plain and length is None and hasattr(getattr(reader, "req", None), "unreader"):
        return _Direct(stream, sock, PIECE).chunked(reader)
    return _small(stream, length)


def _small(stream: Any, length: int | None) -> Generator[bytes]:
    left = length
    while left is None or left > 0:
        try:
            piece = stream.read(SMALL_PIECE if left is None else min(SMALL_PIECE, left))
        except OSError:
            return
        if not piece:
            return
        if left is not None:
            left -= len(piece)
        yield piece


class _Direct:
    """Reads gunicorn's socket after what gunicorn had read ahead; keeps its count right."""

    def __init__(self, stream: Any, sock: Any, room: int) -> None:
        self.stream = stream
        self.sock = sock
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)
        self.room = memoryview(bytearray(room))

    def _cut(self) -> None:
        """The connection cannot carry another request."""
        self.stream.failed = True

    def plain(self, reader: Any) -> Generator[bytes | memoryview]:
        ahead = reader.unreader.take_buffered()
        if len(ahead) > reader.length:
            reader.unreader.unread(ahead[reader.length :])
            ahead = ahead[: reader.length]
        reader.length -= len(ahead)
        try:
            if ahead:
                yield ahead
            for size in self._arrivals(lambda: reader.length):
                reader.length -= size
                yield self.room[:size]
        finally:
            if reader.length:
                self._cut()

    def _arrivals(self, wanted: Any) -> Iterator[int]:
        """Sizes of what was read into `room`; 0 when nothing came for a while."""
        quiet_since = time.monotonic()
        while most := min(len(self.room), wanted()):
            if not self.poll.poll(TICK * 1000):
                if time.monotonic() - quiet_since > IDLE_LIMIT:
                    return
                yield 0
                continue
            try:
                size = self.sock.recv_into(self.room[:most])
            except OSError:
                return
            if not size:
                return
            quiet_since = time.monotonic()
            yield size

    def chunked(self, reader: Any) -> Generator[bytes]:
        unreader = reader.req.unreader
        frames = Frames()
        try:
            yield from frames.feed(unreader.take_buffered())
            for size in self._arrivals(lambda: 0 if frames.done else PIECE):
                yield from frames.feed(bytes(self.room[:size])) if size else (b"",)
        finally:
            reader.parser = None
            if frames.done:
                unreader.unread(frames.rest)
            else:
                self._cut()


class Frames:
    """Takes chunked framing (RFC 9112, 7.1) off bytes as they come."""

    def __init__(self) -> None:
        self.rest = b""
        self.left = -1  # bytes left of the open chunk; -1 before a size line
        self.done = False
        self.in_trailer = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Payload in `data`. Raises BadFraming; what was handed out before it stands."""
        self.rest += data
        while not self.done:
            if self.left > 0:
                if not self.rest:
                    return
                piece, self.rest = self.rest[: self.left], self.rest[self.left :]
                self.left -= len(piece)
                yield piece
                continue
            if self.left == 0 and not self.in_trailer and not b"\r\n".startswith(self.rest[:2]):
                raise BadFraming("A chunk does not end where it should.")
            line = self._line()
            if line is None:
                return
            self._take(line)

    def _line(self) -> bytes | None:
        end = self.rest.find(b"\r\n")
        if end > LONGEST_LINE or (end < 0 and len(self.rest) > LONGEST_LINE):
            raise BadFraming("A line of the chunked body is too long.")
        if end < 0:
            return None
        line, self.rest = self.rest[:end], self.rest[end + 2 :]
        return line

    def _take(self, line: bytes) -> None:
        if self.in_trailer:
            self.done = not line
        elif self.left == 0:
            self.left = -1  # the line was the end of a chunk
        else:
            self._begin(line)

    def _begin(self, line: bytes) -> None:
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
            raise BadFraming("A chunk's size is not a hexadecimal number.")
        self.left = int(digits, 16)
        if not self.left:
            self.in_trailer = True

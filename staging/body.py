"""The body of a request as it arrives, not when it is whole.

`read(n)` of a WSGI server waits for n bytes; what came before a cut, or before another request
takes the upload over, would be lost with it. Under gunicorn this reads what its buffer and socket
hold and, while nothing comes or when the upload's bell rings, hands out an empty piece, so that
the one who writes can look around. Elsewhere (tests, the development server) it reads small pieces.
"""

import select
import socket
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Self

from staging.bell import Bell
from staging.beside import LARGE

PIECE = LARGE
# Fewer and larger reads take an eighth less of a CPU (measured; more than 4 MiB gains nothing).
# A room of two halves: while one is filled, what is in the other may still be hashed.
LARGE_ROOM = 8 * 2**20
MOST_LARGE = 4  # rooms of that size in a process; whoever comes later reads smaller pieces
SMALL_PIECE = 2**16
FIRST_WAIT = 0.02  # seconds without a byte until the first empty piece
TICK = 0.2  # seconds without a byte until another one
LISTEN_EVERY = 0.02  # seconds between looks at the bell while bytes flow
IDLE_LIMIT = 60.0  # seconds without a byte until the body counts as cut
LONGEST_LINE = 4096  # of chunked framing, in bytes
MOST_TRAILERS = 64  # lines after the last chunk
LONGEST_TRAILER = 2 * LONGEST_LINE  # bytes of them in all


_rooms: list[bytearray | None] = [None] * MOST_LARGE  # made when first wanted, then kept


class BadFraming(ValueError):
    """The chunked body is not what RFC 9112 describes."""


def is_chunked(environ: dict[str, Any]) -> bool:
    """And nothing else: what was compressed before is not taken for the file."""
    return environ.get("HTTP_TRANSFER_ENCODING", "").strip(" \t").lower() == "chunked"


type Piece = bytes | memoryview


class Pieces(Iterator[Piece]):
    """The pieces of one body; a context manager, to be left when the last piece is used no more.

    A piece is valid until the next is taken; one of more than LARGE bytes, until the one after
    that; the last ones until `close`, also after the end.
    """

    def __init__(self, source: Generator[Piece], room: "Room") -> None:
        self.source = source
        self.room = room

    def __next__(self) -> Piece:
        return next(self.source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self.source.close()
        self.room.give_back()


def pieces(environ: dict[str, Any], length: int | None, key: str = "") -> Pieces:
    """Pieces of the body until its end or its cut. `length` is Content-Length, None if chunked.

    Whether everything came is the caller's to compare. `key` names the upload whose bell is
    listened to; close the pieces before its lock goes.
    """
    room = Room()
    return Pieces(_pieces(environ, length, key, room), room)


def _pieces(
    environ: dict[str, Any], length: int | None, key: str, room: "Room"
) -> Generator[Piece]:
    stream = environ["wsgi.input"]
    sock = environ.get("gunicorn.socket")
    reader = getattr(stream, "reader", None)
    unreader = getattr(reader, "unreader", None)
    plain = sock is not None and not hasattr(sock, "pending")
    if plain and length is not None and unreader and hasattr(reader, "length"):
        return _Direct(stream, sock, key, room).plain(reader)
    if plain and length is None and hasattr(getattr(reader, "req", None), "unreader"):
        return _Direct(stream, sock, key, room).chunked(reader)
    return _small(stream, length)


def limited(pieces: Iterable[Piece], most: int) -> Generator[Piece]:
    """Pieces up to `most` bytes in all, for a body that did not say how long it is."""
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            return
        yield piece


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


class Room:
    """Room for the pieces of a body, two halves by turns: taken when its first byte is awaited."""

    def __init__(self) -> None:
        self.large: bytearray | None = None
        self.now = self.next = memoryview(bytearray())

    def take(self, wanted: int) -> None:
        """For a body that still has `wanted` bytes."""
        if wanted > PIECE:
            with suppress(IndexError):
                self.large = _rooms.pop() or bytearray(LARGE_ROOM)
        if self.large is None:
            self.now = self.next = memoryview(bytearray(max(1, min(wanted, PIECE))))
            return
        whole, half = memoryview(self.large), LARGE_ROOM // 2
        self.now, self.next = whole[:half], whole[half:]

    def turn(self) -> None:
        self.now, self.next = self.next, self.now

    def give_back(self) -> None:
        """Another body may overwrite every piece from now on."""
        large, self.large = self.large, None
        if large is not None:
            _rooms.append(large)


class _Direct:
    """Reads gunicorn's socket after what gunicorn had read ahead; keeps its count right."""

    def __init__(self, stream: Any, sock: Any, key: str, room: Room) -> None:
        self.stream = stream
        self.sock = sock
        self.key = key
        self.room = room
        self.bell: Bell | None = None
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)

    def _cut(self) -> None:
        """The connection cannot carry another request."""
        self.stream.failed = True

    def plain(self, reader: Any) -> Generator[Piece]:
        _begin(reader)
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
                yield self.room.now[:size]
        finally:
            if reader.length:
                self._cut()

    def _arrivals(self, wanted: Any) -> Iterator[int]:
        """Sizes of what was read into `room`; 0 for a moment to look around."""
        self.room.take(wanted())
        quiet_since = listened = time.monotonic()
        wait = FIRST_WAIT
        try:
            while most := min(len(self.room.now), wanted()):
                size = self._receive(most)
                if size == 0:
                    return
                now = time.monotonic()
                if size:
                    quiet_since, wait = now, FIRST_WAIT if self.bell is None else TICK
                    yield size
                    self.room.turn()
                    if now - listened > LISTEN_EVERY:
                        listened = now
                        if self._rang():
                            yield 0
                    continue
                if now - quiet_since > IDLE_LIMIT:
                    return
                if self._quiet(wait):
                    wait = TICK
                    yield 0
        finally:
            if self.bell is not None:
                self.bell.close()

    def _receive(self, most: int) -> int | None:
        """Bytes read; 0 at the end or the cut, None when nothing is there."""
        try:
            return self.sock.recv_into(self.room.now, most, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return 0

    def _rang(self) -> bool:
        if self.key and self.bell is None:
            self.bell = Bell(self.key)
            if self.bell.fileno() >= 0:
                self.poll.register(self.bell, select.POLLIN)
        return self.bell is not None and self.bell.rang()

    def _quiet(self, wait: float) -> bool:
        """Wait for a byte; True when none came and it is time to look around."""
        if self.poll.poll(wait * 1000) and (self.bell is None or not self.bell.rang()):
            return False
        self._rang()
        return True

    def chunked(self, reader: Any) -> Generator[bytes]:
        _begin(reader)
        unreader = reader.req.unreader
        frames = Frames()
        try:
            yield from frames.feed(unreader.take_buffered())
            for size in self._arrivals(lambda: 0 if frames.done else PIECE):
                yield from frames.feed(bytes(self.room.now[:size])) if size else (b"",)
        finally:
            reader.parser = None
            if frames.done:
                unreader.unread(frames.rest)
            else:
                self._cut()


def _begin(reader: Any) -> None:
    """The portal's server tells a client that asks for it to go on (portal.server.bodies)."""
    if begin := getattr(reader, "begin", None):
        begin()


def _joined(parts: list[bytes]) -> Iterator[bytes]:
    """One piece of all parts; none when there is no byte, as an empty piece means a pause."""
    if whole := b"".join(parts):
        yield whole


def _check_line(line: bytes) -> None:
    """Whoever passes the request on may have seen another end of the line."""
    if b"\r" in line or b"\n" in line:
        raise BadFraming("A line of the chunked body does not end with CR and LF.")


class Frames:
    """Takes chunked framing (RFC 9112, 7.1) off bytes as they come.

    The buffer is read through by a position and cut once for each feed, and what a feed holds is
    handed out as one piece: a client that sends chunks of one byte costs no more for each than its
    line does.
    """

    def __init__(self) -> None:
        self.buffer = b""
        self.at = 0  # the next byte of the buffer
        self.left = -1  # bytes left of the open chunk; -1 before a size line
        self.done = False
        self.in_trailer = False
        self.trailer_lines = self.trailer_bytes = 0

    @property
    def rest(self) -> bytes:
        """What came after the end of the body, or is not a whole line yet."""
        return self.buffer[self.at :]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Payload in `data`. Raises BadFraming; what was handed out before it stands."""
        self.buffer, self.at = self.rest + data, 0
        parts: list[bytes] = []
        try:
            while (part := self._step()) is not None:
                parts.append(part)
        except BadFraming:
            yield from _joined(parts)
            raise
        yield from _joined(parts)

    def _step(self) -> bytes | None:
        """The payload up to the end of the buffer or of a chunk; a line's is empty. None when there
        is nothing to go on with."""
        if self.done:
            return None
        if self.left > 0:
            piece = self.buffer[self.at : self.at + self.left]
            self.at += len(piece)
            self.left -= len(piece)
            return piece or None
        ends = self.left == 0 and not self.in_trailer
        if ends and not b"\r\n".startswith(self.buffer[self.at : self.at + 2]):
            raise BadFraming("A chunk does not end where it should.")
        line = self._line()
        if line is None:
            return None
        self._take(line)
        return b""

    def _line(self) -> bytes | None:
        end = self.buffer.find(b"\r\n", self.at, self.at + LONGEST_LINE + 2)
        if end < 0:
            if len(self.buffer) - self.at > LONGEST_LINE + 1:
                raise BadFraming("A line of the chunked body is too long.")
            _check_line(self.rest.removesuffix(b"\r"))
            return None
        line, self.at = self.buffer[self.at : end], end + 2
        _check_line(line)
        return line

    def _take(self, line: bytes) -> None:
        if self.in_trailer:
            self._count_trailer(line)
            self.done = not line
        elif self.left == 0:
            self.left = -1  # the line was the end of a chunk
        else:
            self._begin(line)

    def _count_trailer(self, line: bytes) -> None:
        """Trailers are dropped; nobody needs many of them."""
        self.trailer_lines += bool(line)
        self.trailer_bytes += len(line)
        if self.trailer_lines > MOST_TRAILERS or self.trailer_bytes > LONGEST_TRAILER:
            raise BadFraming("The trailer of the chunked body is too long.")

    def _begin(self, line: bytes) -> None:
        digits, extended, _ = line.partition(b";")
        if extended:
            digits = digits.rstrip(b" \t")
        if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
            raise BadFraming("A chunk's size is not a hexadecimal number.")
        self.left = int(digits, 16)
        if not self.left:
            self.in_trailer = True

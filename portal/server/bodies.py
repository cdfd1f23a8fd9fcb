"""Bodies that do not end early: a cut one must never be taken for a whole one.

gunicorn hands out what came before the client hung up as if it were all. A form that lost its end
would be a form with fewer fields.

And who asks before the body (Expect: 100-continue) is told to go on once somebody reads it: a
refusal costs such a client nothing.
"""

import socket
from contextlib import suppress
from typing import Any

from gunicorn.http import message
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import ParseException
from gunicorn.http.parser import RequestParser

GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class CutBody(OSError):
    """The body ended before its announced end, or its framing is broken. An OSError is what a WSGI
    application expects here: Django makes an UnreadablePostError of it."""


def go_on(sock: socket.socket) -> None:
    """Where there is no room for so little, it has been gone for long."""
    with suppress(OSError):
        sock.send(GO_ON, socket.MSG_DONTWAIT)


class Awaited:
    """A body whose client may wait for a word before it sends it."""

    asked_by: Any = None  # that client's socket, until it is told

    def begin(self) -> None:
        """The body is wanted."""
        if self.asked_by is not None:
            sock, self.asked_by = self.asked_by, None
            go_on(sock)


class WholeLength(Awaited, LengthReader):
    """A body with Content-Length; `length` is what was not read of it."""

    def read(self, size: int) -> bytes:
        self.begin()
        wanted = min(self.length, size)
        data = super().read(size)
        if len(data) < wanted:
            raise CutBody("The body ended before its Content-Length.")
        return data


class WholeChunks(Awaited, ChunkedReader):
    """A chunked body; `parser` is None once its last chunk was read."""

    def read(self, size: int) -> bytes:
        self.begin()
        try:
            return super().read(size)
        except ParseException as error:
            raise CutBody(f"The chunked body is broken: {error}") from error


class Request(message.Request):
    """A request whose body is whole or raises CutBody."""

    def set_body_reader(self) -> None:
        super().set_body_reader()
        reader: Any = self.body.reader  # type: ignore[has-type]
        if isinstance(reader, ChunkedReader):
            self.body = Body(WholeChunks(self, self.unreader))
        elif reader.length:
            self.body = Body(WholeLength(self.unreader, reader.length))
        if self._expected_100_continue:  # type: ignore[has-type]
            self._expected_100_continue = False  # gunicorn would tell it at once
            self.body.reader.asked_by = self.unreader.sock

    def should_close(self) -> bool:
        """Nobody knows whether the body still comes of a client that was not told."""
        asks = getattr(self.body.reader, "asked_by", None) is not None
        return (asks and is_unread(self.body)) or bool(super().should_close())


class Parser(RequestParser):
    mesg_class = Request


def is_unread(body: Any) -> bool:
    """Whether there is more of a body than was read."""
    reader = body.reader
    return bool(reader.length) if hasattr(reader, "length") else reader.parser is not None

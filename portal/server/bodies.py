"""Bodies that do not end early: a cut one must never be taken for a whole one.

gunicorn hands out what came before the client hung up as if it were all. A form that lost its end
would be a form with fewer fields.
"""

from typing import Any

from gunicorn.http import message
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import ParseException
from gunicorn.http.parser import RequestParser


class CutBody(OSError):
    """The body ended before its announced end, or its framing is broken. An OSError is what a WSGI
    application expects here: Django makes an UnreadablePostError of it."""


class WholeLength(LengthReader):
    """A body with Content-Length; `length` is what was not read of it."""

    def read(self, size: int) -> bytes:
        wanted = min(self.length, size)
        data = super().read(size)
        if len(data) < wanted:
            raise CutBody("The body ended before its Content-Length.")
        return data


class WholeChunks(ChunkedReader):
    """A chunked body; `parser` is None once its last chunk was read."""

    def read(self, size: int) -> bytes:
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


class Parser(RequestParser):
    mesg_class = Request


def is_unread(body: Any) -> bool:
    """Whether there is more of a body than was read."""
    reader = body.reader
    return bool(reader.length) if hasattr(reader, "length") else reader.parser is not None

"""A connection between its requests: the head is collected here, and takes no thread before it is
whole."""

import re
import socket
import struct
import time
from contextlib import suppress
from typing import Any

from gunicorn.http.errors import LimitRequestHeaders, ParseException

from portal.server import limits
from portal.server.bodies import Parser, is_unread
from portal.server.pace import Pace

PIECE = 8192  # bytes; what a body needs is read by its reader, in larger pieces
END = b"\r\n\r\n"
BARE = re.compile(rb"(?<!\r)\n")  # ends no line


class Connection:
    """`until` is when the wait for a head ends; None while a thread has the connection, or soon
    will. Whoever changes `until` is the only one who may: the thread that answers, then the one
    that waits."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        self.sock, self.client, self.server = sock, client, server
        self.fd = sock.fileno()
        self.parser = Parser(cfg, sock, client)
        self.head = bytearray()
        self.since = 0.0
        self.until: float | None = None
        self.request: Any = None  # that a thread answers
        self.pace: Pace | None = None
        self.cut = False
        for option, seconds in (
            (socket.SO_RCVTIMEO, limits.READ_LIMIT_S),
            (socket.SO_SNDTIMEO, limits.SEND_LIMIT_S),
        ):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
        self.wait(limits.FIRST_BYTE_S)

    def wait(self, seconds: float) -> None:
        self.since = time.monotonic()
        self.until = self.since + seconds

    def arrive(self) -> bool:
        """Take what is there of a head; whether a thread should have a look at it.

        Raises OSError when the client has gone.
        """
        try:
            data = self.sock.recv(PIECE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionError("The client hung up.")
        return self.add(data)

    def add(self, data: bytes) -> bool:
        """A head's clock starts with its first byte."""
        searched = len(self.head) - len(END) + 1
        self.head += data
        if self._is_whole(max(0, searched)):
            self.until = None
            return True
        if len(self.head) == len(data):
            self.wait(limits.HEAD_LIMIT_S)
        return False

    def _is_whole(self, searched: int) -> bool:
        """Or cannot become so: a thread says why."""
        head = self.head
        if head.find(END, searched) >= 0 or len(head) > limits.LONGEST_HEAD:
            return True
        return BARE.search(head, searched) is not None

    def next_request(self) -> Any:
        """The request whose head was collected. Raises what gunicorn's parser raises."""
        self.pace, self.cut = None, False
        if len(self.head) > limits.LONGEST_HEAD and END not in self.head:
            raise LimitRequestHeaders("the head is too large")
        self.parser.unreader.unread(bytes(self.head))
        self.head.clear()
        self.request = next(self.parser)
        return self.request

    def finish(self) -> bool:
        """Whether another request may follow. What is left of the body is thrown away, if it is
        here: its end is where the next one starts."""
        body = self.request.body
        whole = not body.failed and (not is_unread(body) or self._drain())
        self.parser.mesg = None  # it need not be looked at again
        return whole

    def _drain(self) -> bool:
        try:
            return bool(self.parser.finish_body(deadline=time.monotonic() + limits.DRAIN_S))
        except (OSError, ParseException):
            return False

    def rest(self) -> bytes:
        """What came of the next request already."""
        return bytes(self.parser.unreader.take_buffered())

    def cut_if_slow(self, now: float) -> None:
        """Of one that a thread answers. Where the body comes too slowly, an answer may still be
        sent; where that is not taken, nothing is."""
        request = self.request
        if request is None:
            return
        if self.pace is None:
            self.pace = Pace(self.sock, now)
            return
        sends, takes = self.pace.look(now, unread=is_unread(request.body))
        with suppress(OSError):  # it ended meanwhile
            if takes:
                self.cut = True
                self.sock.shutdown(socket.SHUT_RDWR)
            elif sends:
                self.sock.shutdown(socket.SHUT_RD)

    def drop(self) -> None:
        """What was sent and is not confirmed is forgotten: the kernel would try for minutes."""
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

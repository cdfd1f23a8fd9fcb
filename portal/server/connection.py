"""A connection between its requests: the head, and a small body after it, are collected here, and
take no thread before they are whole."""

import re
import socket
import struct
import time
from contextlib import suppress
from typing import Any

from gunicorn.http.errors import LimitRequestHeaders, ParseException

from portal.base.small import AS_THEY_ARRIVE, SMALL_BODY
from portal.server import limits
from portal.server.bodies import Parser, go_on, is_unread
from portal.server.pace import Pace

PIECE = 8192  # bytes; what a body needs is read by its reader, in larger pieces
END = b"\r\n\r\n"
BARE = re.compile(rb"(?<!\r)\n")  # ends no line
NO_BODY = (b"GET ", b"HEAD ", b"PATCH ")  # none that Django reads as a whole
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*0*(\d{1,6})[ \t]*\r\n", re.IGNORECASE)
SHOWN = re.compile(  # to the view as it arrives
    rb"\r\n(?:transfer-encoding:|content-type:[ \t]*(?:%s)[ \t]*[;\r])"
    % b"|".join(re.escape(kind.encode()) for kind in AS_THEY_ARRIVE),
    re.IGNORECASE,
)
EXPECT = re.compile(
    rb"[^\r]* HTTP/1\.1\r\n(?:[^\r]*\r\n)*?expect:[ \t]*100-continue[ \t]*\r\n", re.IGNORECASE
)


class Connection:
    """`until` is when the wait for a head ends; None while a thread has the connection, or soon
    will. Whoever changes `until` is the only one who may: the thread that answers, then the one
    that waits."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        self.sock, self.client, self.server = sock, client, server
        self.fd = sock.fileno()
        self.parser = Parser(cfg, sock, client)
        self.head = bytearray()  # and the small body after it
        self.wanted = 0  # bytes of both, once that is known
        self.told_to_go_on = False
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

        Raises OSError when the client has gone, but for one that sent a head: it gets an answer.
        """
        try:
            data = self.sock.recv(max(PIECE, self.wanted - len(self.head)), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        if not data and not self.wanted:
            raise ConnectionError("The client hung up.")
        return self.add(data)

    def add(self, data: bytes) -> bool:
        """A head's clock starts with its first byte, a small body's with the end of the head."""
        searched = max(0, len(self.head) - len(END) + 1)
        first = not self.head
        self.head += data
        if self.wanted:
            ready = not data or len(self.head) >= self.wanted
        elif (end := self.head.find(END, searched)) >= 0:
            ready = self.head.startswith(NO_BODY) or not self._awaits_body(end + len(END))
        else:
            ready = self._is_no_head(searched)
            if first and not ready:
                self.wait(limits.HEAD_LIMIT_S)
        if ready:
            self.until = None
        return ready

    def _is_no_head(self, searched: int) -> bool:
        """It cannot become one: a thread says why."""
        if len(self.head) > limits.LONGEST_HEAD:
            return True
        return BARE.search(self.head, searched) is not None

    def _awaits_body(self, end: int) -> bool:
        """Whether a small body is to come behind the head that ends here, and is not here yet."""
        head = self.head
        found = LENGTH.search(head, 0, end)
        length = int(found[1]) if found else 0
        if len(head) >= end + length or length > SMALL_BODY or SHOWN.search(head, 0, end):
            return False
        self.wanted = end + length
        self.wait(limits.HEAD_LIMIT_S)
        if EXPECT.match(head, 0, end):
            self.told_to_go_on = True
            go_on(self.sock)
        return True

    def give_up(self) -> bool:
        """Its time is over. Whether a thread should say so: it finds a body that is cut."""
        if not self.wanted:
            return False
        self.until = None
        with suppress(OSError):  # it ended meanwhile
            self.sock.shutdown(socket.SHUT_RD)
        return True

    def next_request(self) -> Any:
        """The request whose head was collected. Raises what gunicorn's parser raises."""
        self.pace, self.cut, self.wanted = None, False, 0
        if len(self.head) > limits.LONGEST_HEAD and END not in self.head:
            raise LimitRequestHeaders("the head is too large")
        self.parser.unreader.unread(bytes(self.head))
        self.head.clear()
        self.request = next(self.parser)
        if self.told_to_go_on:
            self.told_to_go_on, self.request.body.reader.asked_by = False, None
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

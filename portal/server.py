"""gunicorn's settings and worker: `gunicorn --config python:portal.server portal.wsgi:application`.

gunicorn 27.0.1 lets clients take the few threads that answer requests, and the one thread that all
connections of a process depend on: it waits for the first byte, for the rest of a head or body, for
room to send, and at the end for the client to hang up. A few clients that just stay connected would
hold up everybody. Here a new connection waits beside the others, another thread ends connections,
all at once, and whoever is too slow to send or to take bytes loses the connection.
"""

import contextlib
import logging
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

worker_class = "portal.server.Worker"
workers = 2
threads = 8
worker_connections = 400  # of a process; with those that end, below the usual 1,024 open files
keepalive = 75
timeout = 120
graceful_timeout = 8
loglevel = "warning"
limit_request_field_size = 16384  # an Upload-Metadata that is too long gets a reason
control_socket_disable = True

LINGER_S = 5.0  # that a client has for taking the answer and hanging up
# What it may send meanwhile; it is thrown away. Many read no answer before they have sent all.
LINGER_BYTES = 2**28
MOST_LINGERING = 256
DRAIN_S = 0.05  # for the rest of a body that nobody reads, so that the connection can be kept
READ_LIMIT_S = 30  # for the next byte of a head, or of a body that is read as a whole
SEND_LIMIT_S = 60  # for the client to take the next bytes
# For a whole head or body: so long, and a second more for each KiB that came. An upload slower than
# that is cut; what arrived of it is kept.
WHOLE_LIMIT_S = 60
LEAST_RATE = 1024  # bytes a second
BYTES_RECEIVED = 128  # where Linux has it in its struct tcp_info


class Lingering:
    """Ends connections in a thread of its own: says that no more comes, then waits for the other
    end to hang up, so that it can read the last answer even while it sends."""

    def __init__(self) -> None:
        self._arrivals: SimpleQueue[socket.socket] = SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._ends: dict[socket.socket, tuple[float, int]] = {}  # until when, how many bytes more
        threading.Thread(target=self._run, name="lingering", daemon=True).start()

    def take(self, sock: socket.socket) -> None:
        """`sock` is this object's from now on."""
        try:
            sock.shutdown(socket.SHUT_WR)
            sock.setblocking(False)
        except OSError:  # the other end is gone already
            sock.close()
            return
        self._arrivals.put(sock)
        with contextlib.suppress(BlockingIOError):  # it is awake already
            self._wake.send(b"w")

    def _run(self) -> None:
        while True:
            ready = [key.fileobj for key, _ in self._selector.select(self._patience())]
            now = time.monotonic()
            for sock in ready:
                if sock is self._woken:
                    self._woken.recv(4096)
                elif isinstance(sock, socket.socket):
                    self._read(sock)
            for sock in [sock for sock, (until, _) in self._ends.items() if until <= now]:
                self._end(sock)
            while not self._arrivals.empty():
                self._begin(self._arrivals.get())

    def _patience(self) -> float | None:
        first = min((until for until, _ in self._ends.values()), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _begin(self, sock: socket.socket) -> None:
        if len(self._ends) >= MOST_LINGERING:
            sock.close()
            return
        self._ends[sock] = (time.monotonic() + LINGER_S, LINGER_BYTES)
        self._selector.register(sock, selectors.EVENT_READ)

    def _read(self, sock: socket.socket) -> None:
        until, left = self._ends[sock]
        try:
            left -= len(sock.recv(2**16)) or left
        except BlockingIOError:
            return
        except OSError:
            left = 0
        self._ends[sock] = (until, left)
        if left <= 0:
            self._end(sock)

    def _end(self, sock: socket.socket) -> None:
        del self._ends[sock]
        self._selector.unregister(sock)
        sock.close()


class Connection(TConn):
    """A connection that ends without holding up others, and whose waits for the client end."""

    def __init__(self, *args: Any, lingering: Lingering) -> None:
        super().__init__(*args)
        self.lingering = lingering
        self.began, self.came = 0.0, 0  # when a thread took its present request; bytes until then
        self.unread: Callable[[], int] | None = None  # bytes of the body; None in the head

    def init(self) -> None:
        if not self.initialized and not self.cfg.is_ssl:
            for option, seconds in (
                (socket.SO_RCVTIMEO, READ_LIMIT_S),
                (socket.SO_SNDTIMEO, SEND_LIMIT_S),
            ):
                self.sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
        super().init()

    def close(self, graceful: bool = False) -> None:
        if graceful and not self.cfg.is_ssl:
            self.lingering.take(self.sock)
        else:
            super().close()

    def begin(self) -> None:
        self.began, self.came, self.unread = time.monotonic(), received(self.sock), None

    def cut_if_slow(self, now: float) -> None:
        """End the reading of a head or body that comes too slowly; an answer may still be sent."""
        over = now - self.began - WHOLE_LIMIT_S
        if over <= 0 or (self.unread is not None and not self.unread()):
            return
        if 0 <= received(self.sock) - self.came < over * LEAST_RATE:
            with contextlib.suppress(OSError):  # it ended meanwhile
                self.sock.shutdown(socket.SHUT_RD)


def received(sock: socket.socket) -> int:
    """Bytes that have come on this connection, read or not; less than 0 where nobody counts."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        return int(struct.unpack_from("Q", info, BYTES_RECEIVED)[0])
    except (OSError, struct.error):  # no TCP, or an older system
        return -(2**63)


class Worker(ThreadWorker):
    """gunicorn's worker of threads, without the waits that others would have to wait for."""

    def init_process(self) -> None:
        self.lingering = Lingering()
        self.answering: set[Connection] = set()
        # A client that does not go on is no fault of ours; gunicorn logs a traceback for it.
        self.log.error_log.addFilter(_is_fault)
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        """A new connection waits for its first byte beside the others, and takes no thread yet."""
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # another process was first, or the client is gone again
        self.nr_conns += 1
        conn = Connection(self.cfg, sock, client, listener.getsockname(), lingering=self.lingering)
        conn.set_timeout()
        self.pending_conns.append(conn)
        readable = partial(self.on_pending_socket_readable, conn)
        self.poller.register(sock, selectors.EVENT_READ, readable)

    def handle(self, conn: Any) -> Any:
        conn.begin()
        self.answering.add(conn)
        try:
            return super().handle(conn)
        finally:
            self.answering.discard(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """The head is here. Of a body with a length it is known how much was not read yet."""
        reader: Any = getattr(req.body, "reader", None)
        conn.unread = (lambda: reader.length) if hasattr(reader, "length") else int
        return super().handle_request(req, conn)

    def murder_pending(self) -> None:
        """Called every second and after each event, on the thread that all depend on."""
        super().murder_pending()
        now = time.monotonic()
        for conn in list(self.answering):
            conn.cut_if_slow(now)

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        if not keepalive:
            return False
        return bool(conn.parser.finish_body(deadline=time.monotonic() + DRAIN_S))


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], BlockingIOError))

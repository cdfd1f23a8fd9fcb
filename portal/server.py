"""gunicorn's settings and worker: `gunicorn --config python:portal.server portal.wsgi:application`.

gunicorn 27.0.1 ends a connection on the one thread that all connections of a process depend on,
and waits up to 2 s there until the client hangs up; and it reads for 5 s, on a thread of the few
that answer requests, what a client may still send of a body that nobody wants. So a few clients
that just stay connected would hold up everybody. Here another thread ends connections, all at
once; what is not there already of an unwanted body ends its connection too.
"""

import contextlib
import logging
import selectors
import socket
import struct
import threading
import time
from queue import SimpleQueue
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

worker_class = "portal.server.Worker"
workers = 2
threads = 8
keepalive = 75
timeout = 120
graceful_timeout = 8
loglevel = "warning"
limit_request_field_size = 16384  # an Upload-Metadata that is too long gets a reason
control_socket_disable = True

LINGER_S = 5.0  # that a client has for taking the answer and hanging up
# What it may send meanwhile; it is thrown away. Many read no answer before they have sent all.
LINGER_BYTES = 2**28
MOST_LINGERING = 512
DRAIN_S = 0.05  # for the rest of a body that nobody reads, so that the connection can be kept
READ_LIMIT_S = 30  # for the next byte of a head, or of a body that is read as a whole


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
    """A connection that ends without holding up others, and whose reads end."""

    def __init__(self, *args: Any, lingering: Lingering) -> None:
        super().__init__(*args)
        self.lingering = lingering

    def init(self) -> None:
        if not self.initialized and not self.cfg.is_ssl:
            limit = struct.pack("ll", READ_LIMIT_S, 0)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        super().init()

    def close(self, graceful: bool = False) -> None:
        if graceful and not self.cfg.is_ssl:
            self.lingering.take(self.sock)
        else:
            super().close()


class Worker(ThreadWorker):
    """gunicorn's worker of threads, without the waits that others would have to wait for."""

    def init_process(self) -> None:
        self.lingering = Lingering()
        # A client that does not go on is no fault of ours; gunicorn logs a traceback for it.
        self.log.error_log.addFilter(_is_fault)
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # another process was first, or the client is gone again
        self.nr_conns += 1
        address = listener.getsockname()
        self.enqueue_req(Connection(self.cfg, sock, client, address, lingering=self.lingering))

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        if not keepalive:
            return False
        return bool(conn.parser.finish_body(deadline=time.monotonic() + DRAIN_S))


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], BlockingIOError))

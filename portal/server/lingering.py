"""The end of connections, where nobody else has to wait for it."""

import contextlib
import selectors
import socket
import threading
import time
from queue import SimpleQueue

from portal.server import limits


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
        if len(self._ends) >= limits.MOST_LINGERING:
            sock.close()
            return
        self._ends[sock] = (time.monotonic() + limits.LINGER_S, limits.LINGER_BYTES)
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

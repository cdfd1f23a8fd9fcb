"""A TCP relay in front of a store that a test can slow down, cut, or make deaf."""

import contextlib
import socket
import threading
import time


class Relay:
    """Passes bytes to `port` on this machine. `rate` is bytes a second for all answers together,
    0 for no limit; `deaf` takes connections and says nothing; `cut_after` breaks each connection
    after so many bytes of answers."""

    piece = 2**16  # bytes passed at once at most
    buffer = 0  # bytes that may lie in the kernel on either side; 0: as many as it likes

    def __init__(self, port: int) -> None:
        self.target = port
        self.rate = 0.0
        self.deaf = False
        self.cut_after = 0
        self.connections = 0
        self.passed = 0
        self._lock = threading.Lock()
        self._due = time.monotonic()
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._limit(client, socket.SO_SNDBUF)
                self.connections += 1
                self._open.append(client)
                if not self.deaf:
                    self._join(client)

    def _join(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self.target))
        self._limit(server, socket.SO_RCVBUF)
        self._open.append(server)
        for source, sink, slow in ((client, server, False), (server, client, True)):
            threading.Thread(target=self._pass, args=(source, sink, slow), daemon=True).start()

    def _limit(self, sock: socket.socket, option: int) -> None:
        if self.buffer:
            sock.setsockopt(socket.SOL_SOCKET, option, self.buffer)

    def _pass(self, source: socket.socket, sink: socket.socket, slow: bool) -> None:
        count = 0
        with contextlib.suppress(OSError):
            while piece := source.recv(self.piece):
                if slow:
                    self._wait(len(piece))
                    count += len(piece)
                    if self.cut_after and count >= self.cut_after:
                        break
                    self.passed += len(piece)
                sink.sendall(piece)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _wait(self, size: int) -> None:
        """Sleep until the rate allows `size` bytes more; one clock for all connections."""
        if not self.rate:
            return
        with self._lock:
            self._due = max(self._due, time.monotonic()) + size / self.rate
            left = self._due - time.monotonic()
        time.sleep(max(0, left))

    def drop(self) -> None:
        """Break every connection that is open."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.drop()

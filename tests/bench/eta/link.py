"""A TCP proxy in front of the store whose speed follows a plan: the link of the benchmark."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator

PIECE = 2**14  # small, so that a change of speed is felt at once
# What lies in the kernel has left the link as far as the proxy knows: little may lie there.
BUFFER = 2**16


class Link:
    """Passes bytes to a port of this machine, all answers together at `rate` bytes a second."""

    def __init__(self, port: int, rate: float) -> None:
        self.target, self.rate = port, rate
        self._lock = threading.Lock()
        self._due = time.monotonic()
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
                server = socket.create_connection(("127.0.0.1", self.target))
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
                self._open += [client, server]
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, slow: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE):
                if slow:
                    self._wait(len(piece))
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _wait(self, size: int) -> None:
        """One clock for all connections; time that nobody used is not saved up."""
        with self._lock:
            self._due = max(self._due, time.monotonic()) + size / self.rate
            due = self._due
        time.sleep(max(0.0, due - time.monotonic()))

    @contextlib.contextmanager
    def changing(self, rates: list[float], mean_s: float, seed: int) -> Iterator[None]:
        """Inside, the speed jumps between rates, at times that nobody can foresee."""
        ended = threading.Event()

        def change() -> None:
            chance = random.Random(seed)  # noqa: S311  the same link in each run
            while not ended.wait(chance.expovariate(1 / mean_s)):
                self.rate = chance.choice([rate for rate in rates if rate != self.rate])

        thread = threading.Thread(target=change, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.close()

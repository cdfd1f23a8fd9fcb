"""A network that tests can slow down, cut and mend: a TCP proxy in front of the server."""

import contextlib
import socket
import struct
import threading
import time

PIECE = 16 * 1024
FIRST_PIECE = 4 * 2**20  # of a large file, as upload-tus.js begins; the next ones are larger
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST at once


class Wire:
    """Listens on `port` and carries bytes to `target`. `up` counts bytes on their way there."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.most = float("inf")  # bytes up to one address, after which it stands still
        self.sent: dict[bytes, int] = {}  # bytes up to each address of an upload
        self.rate = 0.0  # bytes a second from the client; 0 for no limit
        self.up = 0
        self.whole = True
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks at whatever byte it is; new ones break at once."""
        self.whole = False
        with self.lock:
            broken, self.open = self.open, set()
        for sock in broken:
            reset(sock)

    def mend(self) -> None:
        self.most = float("inf")
        self.whole = True

    def stall(self) -> None:
        """Large files come to a stand after their first piece, until `mend`; the rest goes on."""
        self.sent.clear()
        self.most = FIRST_PIECE + 500_000

    def stands_still(self, limit: float = 60) -> None:
        """Wait until next to nothing goes up for a second."""
        deadline = time.monotonic() + limit
        before = -1
        while self.up - before > 20_000 or before < 0:
            if time.monotonic() > deadline:
                raise AssertionError(f"it still moves: {self.up} bytes went up")
            before = self.up
            time.sleep(1)

    def close(self) -> None:
        self.cut()
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if not self.whole:
                reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                reset(client)
                continue
            server.settimeout(None)
            with self.lock:
                self.open |= {client, server}
            asked: list[bytes] = []  # the address that a request under way sends bytes to
            for way in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._carry, args=(*way, asked), daemon=True).start()

    def _carry(
        self, source: socket.socket, sink: socket.socket, up: bool, asked: list[bytes]
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE):
                if up:
                    to = self._count(piece, asked)
                    while self.sent.get(to, 0) > self.most and source in self.open:
                        time.sleep(0.02)
                else:
                    asked.clear()  # with the answer the request is over
                sink.sendall(piece)
                if up:
                    self.up += len(piece)
                    if self.rate:
                        time.sleep(len(piece) / self.rate)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            with self.lock:
                self.open.discard(sock)

    def _count(self, piece: bytes, asked: list[bytes]) -> bytes:
        """The address that a piece goes to, once counted; empty where it is no part of a file."""
        line = piece.split(b"\r\n", 1)[0]
        to = asked[0] if asked else line if line.startswith(b"PATCH ") else b""
        asked[:] = [to]
        if to:
            self.sent[to] = self.sent.get(to, 0) + len(piece)
        return to


def reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()

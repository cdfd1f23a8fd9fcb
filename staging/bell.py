"""A bell per upload: whoever takes an upload over wakes the one who writes, in any process.

It is a datagram socket under a name of the kernel's own (Linux), so nothing stays behind when its
process is killed. It carries no meaning: the one who is woken looks at the row. Where there is no
such socket, the one who writes looks several times a second by itself.
"""

import hashlib
import socket


def _name(key: str) -> bytes:
    return b"\0e31-upload-" + hashlib.sha256(key.encode()).hexdigest()[:40].encode()


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


class Bell:
    """The ear of the one who writes. Open it only while holding the upload's lock."""

    def __init__(self, key: str) -> None:
        self.socket: socket.socket | None = _socket()
        try:
            self.socket.bind(_name(key))
        except OSError:
            self.close()

    def fileno(self) -> int:
        """-1 where there is no bell: poll ignores it."""
        return -1 if self.socket is None else self.socket.fileno()

    def rang(self) -> bool:
        """Whether it rang since the last look."""
        try:
            return self.socket is not None and bool(self.socket.recv(16))
        except OSError:
            return False

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def ring(key: str) -> None:
    """Wake the one who writes under this key; nobody there is fine."""
    with _socket() as sock:
        try:
            sock.sendto(b"!", _name(key))
        except OSError:
            return

"""How fast a client sends a body and takes an answer, as the kernel counts it.

Only time in which the client alone is waited for counts: nothing that it sent lies unread, or
something that was sent to it is not confirmed. So a portal that is slow itself cuts nobody.
"""

import fcntl
import socket
import struct
import termios

from portal.server import limits

CONFIRMED = 120  # where Linux has bytes_acked in its struct tcp_info; bytes_received comes next


class Pace:
    """One request's, looked at every second while a thread has it."""

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock = sock
        self.looked = now
        self.began = counts(sock)
        self.waited_to_take = self.waited_to_send = 0.0  # seconds

    def look(self, now: float, *, unread: bool) -> tuple[bool, bool]:
        """(whether it sends too slowly, whether it takes too slowly); `unread` says that a body is
        still awaited."""
        passed = min(now - self.looked, limits.STOOD_STILL_S)
        self.looked = now
        if unread and not waiting(self.sock, termios.FIONREAD):
            self.waited_to_send += passed
        if waiting(self.sock, termios.TIOCOUTQ):
            self.waited_to_take += passed
        if max(self.waited_to_send, self.waited_to_take) <= limits.WHOLE_LIMIT_S:
            return False, False
        present = counts(self.sock)
        if self.began is None or present is None:
            return False, False
        confirmed, received = (now - then for now, then in zip(present, self.began, strict=True))
        return (
            unread and is_slow(self.waited_to_send, received),
            is_slow(self.waited_to_take, confirmed),
        )


def is_slow(seconds: float, moved: int) -> bool:
    return moved < (seconds - limits.WHOLE_LIMIT_S) * limits.LEAST_RATE


def counts(sock: socket.socket) -> tuple[int, int] | None:
    """Bytes that the client confirmed, and that came from it, since it connected; None where nobody
    counts: no TCP, or an older system."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        confirmed, received = struct.unpack_from("QQ", info, CONFIRMED)
    except (OSError, struct.error):
        return None
    return confirmed, received


def waiting(sock: socket.socket, queue: int) -> int:
    """Bytes in a queue of the kernel: FIONREAD has what came and was not read, TIOCOUTQ what was
    sent and is not confirmed."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock, queue, b"\0\0\0\0"))[0])
    except OSError:  # it ended meanwhile
        return 0

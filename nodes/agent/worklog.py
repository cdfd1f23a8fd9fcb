"""The log of a lease: what the work wrote on standard output and error, within its limit."""

from pathlib import Path

MARK = "[portal] "
MOST_TAIL = 64 * 1024
ROOM_FOR_NOTES = 4 * 1024


class WorkLog:
    """Keeps the head of what is written and the last bytes; says how much is missing between."""

    def __init__(self, path: Path, limit: int) -> None:
        self._out = path.open("ab", buffering=0)
        tail = min(MOST_TAIL, limit // 4)
        self._room = max(0, limit - tail - ROOM_FOR_NOTES)
        self._most_tail = tail
        self._tail = b""
        self._lost = 0
        self._at_line_start = True

    def write(self, data: bytes) -> None:
        head, rest = data[: self._room], data[self._room :]
        self._put(head)
        self._room -= len(head)
        if rest:
            kept = self._tail + rest
            self._tail = kept[-self._most_tail :] if self._most_tail else b""
            self._lost += len(kept) - len(self._tail)

    def note(self, sentence: str) -> None:
        """One line of the portal's own, marked as such."""
        self._put(b"" if self._at_line_start else b"\n")
        self._put(f"{MARK}{sentence}\n".encode(errors="replace"))

    def close(self) -> None:
        """Write the tail behind a line that says how much was left out."""
        if self._lost:
            self.note(f"{self._lost:,} bytes were left out here: the log is at its limit.")
        self._put(self._tail)
        self._tail = b""

    def clear(self) -> bytes:
        """Take back what was written: it came from the sandbox, not from the work."""
        text = Path(self._out.name).read_bytes()
        self._out.truncate(0)
        return text

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._out.write(view) or 0 :]
        if data:
            self._at_line_start = data.endswith(b"\n")

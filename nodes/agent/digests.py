"""The digests of docs/agent-protocol.md: a chunk is the unit that is hashed and sent again."""

import hashlib
from collections.abc import Iterable

CHUNK = 8 * 1024 * 1024
MOST_CHUNKS = 9_500
BLOCK = 1024 * 1024


def chunk_size(size: int) -> int:
    """8 MiB x 2^k with the least k that gives at most 9,500 chunks."""
    chunk = CHUNK
    while size > chunk * MOST_CHUNKS:
        chunk *= 2
    return chunk


class FileHash:
    """Hashes a file of a known size as its bytes come by."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.chunk = chunk_size(size)
        self.seen = 0
        self._open = hashlib.sha256()
        self._done: list[bytes] = []

    def update(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self.chunk - self.seen % self.chunk
            part, view = view[:room], view[room:]
            self._open.update(part)
            self.seen += len(part)
            if self.seen % self.chunk == 0:
                self._done.append(self._open.digest())
                self._open = hashlib.sha256()

    def digest(self) -> str:
        chunks = list(self._done)
        if not chunks or self.seen % self.chunk:
            chunks.append(self._open.digest())
        if len(chunks) == 1:
            return chunks[0].hex()
        return f"{hashlib.sha256(b''.join(chunks)).hexdigest()}-{len(chunks)}"


def manifest_digest(files: Iterable[tuple[str, int, bool, str]]) -> str:
    """SHA-256 over `digest size x|- path NUL` of (digest, size, executable, path) by path bytes."""
    total = hashlib.sha256()
    for digest, size, executable, path in sorted(files, key=lambda file: file[3].encode()):
        total.update(f"{digest} {size} {'x' if executable else '-'} {path}\0".encode())
    return total.hexdigest()

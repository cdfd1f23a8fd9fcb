"""Digests of files and manifests (docs/agent-protocol.md, "Digests").

A chunk is 8 MiB x 2^k with the least k that gives at most 9,500 chunks. A file of one chunk has its
plain SHA-256; one of N chunks the SHA-256 over their concatenated raw SHA-256, with "-N".
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

SMALLEST_CHUNK = 8 * 2**20
MOST_CHUNKS = 9500
RAW = 32  # bytes of one SHA-256
EMPTY = hashlib.sha256(b"").hexdigest()

_FORM = re.compile(r"[0-9a-f]{64}(-[1-9][0-9]{0,3})?", re.ASCII)


def chunk_size_of(size: int) -> int:
    """The size of a chunk in bytes for a file of `size` bytes."""
    chunk = SMALLEST_CHUNK
    while size > chunk * MOST_CHUNKS:
        chunk *= 2
    return chunk


def chunk_count(size: int) -> int:
    """How many chunks a file of `size` bytes has; an empty one has one."""
    return max(1, -(-size // chunk_size_of(size)))


def is_digest(text: str, size: int) -> bool:
    """Whether `text` has the form of a digest of a file of `size` bytes."""
    if not _FORM.fullmatch(text):
        return False
    _, _, count = text.partition("-")
    chunks = chunk_count(size)
    return count == ("" if chunks == 1 else str(chunks))


def combine(chunks: bytes) -> str:
    """The digest of a file from the raw SHA-256 of all its chunks."""
    count = len(chunks) // RAW
    if count == 1:
        return chunks.hex()
    return f"{hashlib.sha256(chunks).hexdigest()}-{count}"


@dataclass
class OpenChunk:
    """A chunk that is not whole: the hash of its first `filled` bytes."""

    hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    filled: int = 0


class Hasher:
    """Hashes a file as it arrives, chunk by chunk.

    `chunks` holds the raw digests of complete chunks. To go on after a restart, begin with those
    and feed again what had arrived of the open chunk (from `resume_at` to the offset), or set
    `open_chunk` to what another hasher had of it.
    """

    def __init__(self, size: int, chunks: bytes = b"") -> None:
        """`size` of the file in bytes, which sets the size of a chunk."""
        self.chunk_size = chunk_size_of(size)
        self.chunks = bytearray(chunks)
        self.open_chunk = OpenChunk()

    @property
    def resume_at(self) -> int:
        """The offset of the first byte that the complete chunks do not cover."""
        return len(self.chunks) // RAW * self.chunk_size

    def update(self, piece: bytes | memoryview) -> None:
        view = memoryview(piece)
        while view:
            part = view[: self.chunk_size - self.open_chunk.filled]
            self.open_chunk.hash.update(part)
            self.open_chunk.filled += len(part)
            view = view[len(part) :]
            if self.open_chunk.filled == self.chunk_size:
                self._close_chunk()

    def _close_chunk(self) -> None:
        self.chunks += self.open_chunk.hash.digest()
        self.open_chunk = OpenChunk()

    def finish(self) -> tuple[str, bytes]:
        """(digest of the file, raw digests of all its chunks); call it once, at the end."""
        if self.open_chunk.filled or not self.chunks:
            self._close_chunk()
        return combine(bytes(self.chunks)), bytes(self.chunks)


def manifest_digest(files: Iterable[tuple[str, int, bool, str]]) -> str:
    """SHA-256 in hex over `digest size x|- path NUL`, sorted by the bytes of the paths.

    Files are (digest, size in bytes, executable, path).
    """
    whole = hashlib.sha256()
    for digest, size, executable, path in sorted(files, key=lambda f: f[3].encode()):
        whole.update(f"{digest} {size} {'x' if executable else '-'} {path}\0".encode())
    return whole.hexdigest()

"""Files that leases have read, kept per team by digest.

The link count is the pin: a cached file with a second link is some lease's data. What has only
the cache's own link may be evicted, least recently used first.
"""

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nodes.agent import clock
from nodes.agent.digests import BLOCK, FileHash

SAFE_DIGEST = re.compile(r"[0-9a-f]{64}(-[0-9]{1,5})?")
PART = ".part"
LOCKS = 256  # shared by all files: one for each would be kept for as long as the agent lives
SAFE_TEAM = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Cache:
    """The cache below `root`; one file is fetched once at a time, whoever wants it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._started_at = clock.started_at()

    def place(self, team: str, digest: str, executable: bool) -> Path:
        """Where such a file lies. The mode is the inode's, so executables lie apart."""
        if not SAFE_TEAM.fullmatch(team) or not SAFE_DIGEST.fullmatch(digest):
            raise ValueError(f"No cache place for {team!r} and {digest!r}.")
        return self.root / team / digest[:2] / (digest + (".x" if executable else ""))

    def _lock(self, place: Path) -> threading.Lock:
        return self._locks[hash(whole_of(place)) % LOCKS]

    @contextmanager
    def alone(self, place: Path) -> Iterator[None]:
        """Nobody else fetches or evicts `place` meanwhile; nor, now and then, another file."""
        with self._lock(place):
            yield

    def has(self, place: Path, size: int, digest: str) -> bool:
        """True for a whole file. One that was written before the last start is read again once:
        a power cut can leave a file without its bytes."""
        try:
            facts = place.stat()
        except FileNotFoundError:
            return False
        whole = facts.st_size == size
        if whole and facts.st_mtime < self._started_at:
            whole = hash_file(place, size) == digest
        if not whole:
            place.unlink()
            return False
        os.utime(place)  # used now: the newest are evicted last
        return True

    def free(self, wanted: int) -> int:
        """Evict unpinned files until `wanted` bytes are gone; the bytes that went."""
        gone = 0
        for _, size, place in sorted(self._unpinned()):
            if gone >= wanted:
                break
            busy = self._lock(place)
            if busy.acquire(blocking=False):  # what is being fetched now is no candidate
                try:
                    gone += _evict(place, size)
                finally:
                    busy.release()
        return gone

    def bytes_held(self) -> tuple[int, int]:
        """Bytes in all, and bytes that could be evicted."""
        total = sum(facts.st_size for _, facts in self._entries())
        return total, sum(size for _, size, _ in self._unpinned())

    def _unpinned(self) -> Iterator[tuple[float, int, Path]]:
        for place, facts in self._entries():
            if facts.st_nlink == 1:
                yield facts.st_mtime, facts.st_size, place

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder, _, names in os.walk(self.root):
            for name in names:
                place = Path(folder, name)
                try:
                    yield place, place.stat()
                except FileNotFoundError:
                    continue  # renamed or evicted meanwhile


def whole_of(place: Path) -> Path:
    """The place of a file of which `place` may be the part that has arrived."""
    return place.with_name(place.name.removesuffix(PART))


def _evict(place: Path, size: int) -> int:
    try:
        if place.stat().st_nlink > 1:
            return 0
        place.unlink()
    except FileNotFoundError:
        return 0
    return size


def hash_file(path: Path, size: int) -> str:
    """The digest of a file as docs/agent-protocol.md defines it."""
    total = FileHash(size)
    with path.open("rb") as source:
        read_into(source, total)
    return total.digest()


def read_into(source: IO[bytes], total: FileHash) -> None:
    while block := source.read(BLOCK):
        total.update(block)


def give(place: Path, target: Path, link: bool) -> None:
    """`target` becomes the cached file: a hard link under isolation, else a copy of its own."""
    target.unlink(missing_ok=True)
    if not (link and _linked(place, target)):
        shutil.copy(place, target)


def _linked(place: Path, target: Path) -> bool:
    """False where one file may not have so many links: its content is copied then."""
    try:
        os.link(place, target)
    except OSError:
        return False
    return True

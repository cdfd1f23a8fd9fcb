"""Choosing what comes back from /output, which is hostile.

Runs after the last process of the work is gone. Every path is opened below the output's own
descriptor, part by part, without following links and without blocking. Only regular files count;
their sizes are the apparent ones (a sparse file of 1 TB is 1 TB); what a file was when it was
hashed is compared with what it is when it is sent.
"""

import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodes.agent.digests import BLOCK, FileHash

MOST_DEPTH = 64
MOST_PATH_BYTES = 1024
MOST_FILES = 1_000_000  # with folders, links and all else: a link takes no room on the disk
MOST_SKIPPED = 1000  # that are told by name
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What the portal takes in no name either (portal/base/unseen.py): it makes one look like another.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
KINDS = ((stat.S_ISLNK, "link"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"))


class Changed(Exception):
    """A file is no longer what it was when it was looked at."""


@dataclass(frozen=True)
class Found:
    """A regular file below /output. `identity` holds what may not change until it is sent."""

    path: str
    size: int
    executable: bool
    identity: tuple[int, ...]


@dataclass
class Harvest:
    """What was found, what was left out and why, and what is wrong with the whole."""

    files: list[Found] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # (path, why) of the first
    left_out: int = 0
    problem: dict[str, str] | None = None

    def skip(self, path: str, why: str) -> None:
        self.left_out += 1
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append((path, why))


def open_beneath(root: int, path: str, flags: int) -> int:
    """Open `path` below the folder `root`, following no link in any part. Raises OSError."""
    *folders, name = path.split("/")
    here = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


def _identity(facts: os.stat_result) -> tuple[int, ...]:
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


class Walk:
    """One walk over the output in `root`, a descriptor of the folder."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.harvest = Harvest()
        self._seen = 0
        self._links: Counter[tuple[int, ...]] = Counter()
        self._linked: list[tuple[Found, int]] = []

    def run(self) -> Harvest:
        folders = [""]
        while folders:
            folders += self._folder(folders.pop())
            if self._seen > MOST_FILES:
                self.harvest.problem = _too_much(f"more than {MOST_FILES:,} files")
                break
        self._judge_links()
        self.harvest.files.sort(key=lambda found: found.path.encode())
        return self.harvest

    def _folder(self, path: str) -> list[str]:
        """Look at one folder; the folders in it that are to be looked at."""
        try:
            fd = open_beneath(self.root, path, DIRECTORY) if path else os.dup(self.root)
        except OSError as error:
            self.harvest.skip(path, f"cannot be read ({error.strerror})")
            return []
        below = []
        try:
            for name in self._names(fd):
                full = f"{path}/{name}" if path else name
                if why := _bad_name(full):
                    self.harvest.skip(full, why)
                elif self._entry(fd, name, full):
                    below.append(full)
        finally:
            os.close(fd)
        return below

    def _names(self, fd: int) -> Iterator[str]:
        """Names in a folder, one at a time: how many there are is the work's doing."""
        with os.scandir(fd) as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > MOST_FILES:
                    return
                yield entry.name

    def _entry(self, fd: int, name: str, path: str) -> bool:
        """Note a file; True for a folder."""
        facts = _readable(fd, name)
        if stat.S_ISDIR(facts.st_mode):
            return True
        if not stat.S_ISREG(facts.st_mode):
            kind = next((word for test, word in KINDS if test(facts.st_mode)), "device")
            self.harvest.skip(path, f"is a {kind}")
            return False
        found = Found(path, facts.st_size, bool(facts.st_mode & 0o100), _identity(facts))
        self.harvest.files.append(found)
        if facts.st_nlink > 1:
            self._links[facts.st_dev, facts.st_ino] += 1
            self._linked.append((found, facts.st_nlink))
        return False

    def _judge_links(self) -> None:
        """A file with more names than were met here has one elsewhere: it may be anybody's."""
        foreign = {f for f, count in self._linked if self._links[f.identity[:2]] != count}
        for found in foreign:
            self.harvest.skip(found.path, "has a name outside of the output")
        if foreign:
            self.harvest.files = [f for f in self.harvest.files if f not in foreign]


def _readable(fd: int, name: str) -> os.stat_result:
    """What an entry is. What the work has closed to its owner is opened: it is returned too."""
    facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
    needed = 0o700 if stat.S_ISDIR(facts.st_mode) else 0o400
    ours = stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode)
    if ours and facts.st_mode & needed != needed:
        os.chmod(name, stat.S_IMODE(facts.st_mode) | needed, dir_fd=fd)
        facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
    return facts


def _bad_name(path: str) -> str:
    """Why a path cannot be returned, or ""."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is no UTF-8"
    if found := CONTROLS.search(path):
        return f"holds the control character U+{ord(found[0]):04X}"
    if "\\" in path:
        return "holds a backslash"
    if size > MOST_PATH_BYTES or path.count("/") >= MOST_DEPTH:
        return f"is longer than {MOST_PATH_BYTES} bytes or deeper than {MOST_DEPTH} folders"
    return ""


def matches(path: str, pattern: str) -> bool:
    """`**` is everything; `stats/` and `stats/**` are a folder; else shell patterns."""
    pattern = pattern.removeprefix("/output/").removeprefix("./").lstrip("/")
    if pattern in ("", "**", "*"):
        return True
    if pattern.endswith("/**"):
        pattern = pattern[:-2]
    if pattern.endswith("/"):
        folder = pattern[:-1]
        parts = path.split("/")[: folder.count("/") + 1]
        return len(parts) < path.count("/") + 1 and fnmatch.fnmatchcase("/".join(parts), folder)
    if fnmatch.fnmatchcase(path, pattern) or path.startswith(pattern + "/"):
        return True
    return pattern.startswith("**/") and fnmatch.fnmatchcase(path, pattern[3:])


def harvest(folder: Path, outputs: list[dict[str, Any]], most_bytes: int) -> Harvest:
    """What is declared among what lies in `folder`. Raises OSError when it cannot be opened."""
    root = os.open(folder, DIRECTORY)
    try:
        found = Walk(root).run()
    finally:
        os.close(root)
    missing = []
    chosen: set[Found] = set()
    for output in outputs:
        these = [file for file in found.files if matches(file.path, output["pattern"])]
        chosen.update(these)
        if not these and not output.get("optional"):
            missing.append(output["pattern"])
    found.files = [file for file in found.files if file in chosen]
    _keep_budget(found, most_bytes)
    if missing and not found.problem:
        names = ", ".join(missing)
        detail = f"Nothing in the output matches {names}."
        found.problem = {"code": "output_missing", "detail": detail[:500]}
    return found


def _keep_budget(found: Harvest, most_bytes: int) -> None:
    total, kept = 0, []
    for file in found.files:
        if total + file.size > most_bytes:
            found.skip(file.path, f"does not fit: {file.size:,} bytes")
            found.problem = found.problem or _too_much(f"more than {most_bytes:,} bytes")
            continue
        total += file.size
        kept.append(file)
    found.files = kept


def _too_much(what: str) -> dict[str, str]:
    return {"code": "output_limit", "detail": f"The output holds {what}."}


def open_found(folder: Path, found: Found) -> int:
    """A descriptor of the file as it was found. Raises Changed."""
    root = os.open(folder, DIRECTORY)
    try:
        fd = open_beneath(root, found.path, FILE)
    except OSError as error:
        raise Changed(f"{found.path}: {error.strerror}") from error
    finally:
        os.close(root)
    if _identity(os.fstat(fd)) != found.identity:
        os.close(fd)
        raise Changed(found.path)
    return fd


def hash_found(folder: Path, found: Found, pause: Callable[[], None]) -> str:
    """The digest; `pause` is called between blocks and may raise. Raises Changed."""
    total = FileHash(found.size)
    with os.fdopen(open_found(folder, found), "rb") as source:
        for block in blocks(source.fileno(), found.size):
            total.update(block)
            pause()
        if total.seen != found.size or _identity(os.fstat(source.fileno())) != found.identity:
            raise Changed(found.path)
    return total.digest()


def blocks(fd: int, size: int) -> Iterator[bytes]:
    """At most `size` bytes of a file, so that a growing one ends too."""
    while size > 0 and (block := os.read(fd, min(BLOCK, size))):
        size -= len(block)
        yield block

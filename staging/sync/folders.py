"""Server folders: files below a root that the operator named, read beneath it and nowhere else.

Every part of a path is opened without following links, from the root down, so what is swapped for
a link in the meantime is not followed either. A link to a file inside the root stands for that
file. Path, size, times and inode pin a file; they are compared before and after each read.
"""

import base64
import errno
import os
import stat
import time
from collections.abc import Iterator

from staging import names
from staging.sync.errors import Changed, SourceAway, Trouble, Unreadable
from staging.sync.readers import PAGE, Found, Page, Pinned

DEEPEST = 200
LONGEST = 4000  # bytes of the path that a link leads to
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
SETTLED_S = 2.0  # a change that follows another this soon may leave the times as they are
TICK_S = 0.05  # the same, for file systems that note times by the kernel's clock
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def etag_of(facts: os.stat_result) -> str:
    """Times and inode: another file under the name, or another content, has others."""
    return f"{facts.st_mtime_ns}-{facts.st_ctime_ns}-{facts.st_ino}"


class FolderReader:
    def __init__(self, root: str, prefix: str = "") -> None:
        """`prefix`: a folder below the root that ends in a slash, "" for the root itself."""
        self.root, self.prefix = root, prefix

    def _open_root(self) -> int:
        try:
            return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SourceAway(
                f"The server folder cannot be opened here: {error.strerror}.", kind="folder"
            ) from error

    def _open(self, path: str, flags: int) -> int:
        """Open a path beneath the root, following no link. OSError."""
        here = self._open_root()
        *above, last = path.split("/")
        try:
            for part in above:
                below = os.open(part, FOLDER, dir_fd=here)
                os.close(here)
                here = below
            return os.open(last, flags, dir_fd=here)
        finally:
            os.close(here)

    # -- listing

    def pages(self, cursor: dict) -> Iterator[Page]:
        after = base64.b64decode(cursor.get("after", "")).split(b"/")
        page, last = Page(), b""
        for path, found in self._walk(after):
            last = os.fsencode(path)
            if isinstance(found, Found):
                page.found.append(found)
            else:
                page.skipped.append((path, found))
            if len(page.found) + len(page.skipped) >= PAGE:
                page.cursor = {"after": base64.b64encode(last).decode()}
                yield page
                page = Page()
        yield page

    def _walk(self, after: list[bytes]) -> Iterator[tuple[str, Found | str]]:
        """(path below the prefix, what it is or why it is not taken), in the order of bytes."""
        top = self._open_top()
        stack: list[tuple[int, str, Iterator[str]]] = []
        resume: list[bytes] | None = after if after != [b""] else None
        try:
            stack.append((top, "", self._names(top, resume, 0)))
            while stack:
                here, folder, names = stack[-1]
                name = next(names, None)
                if name is None:
                    os.close(stack.pop()[0])
                    continue
                path = folder + name
                depth = len(stack)
                if resume and os.fsencode(path) != b"/".join(resume[:depth]):
                    resume = None  # past the place where the last page ended
                elif resume and depth == len(resume):
                    continue  # that very place
                found = self._look(here, name, path)
                if isinstance(found, int):
                    stack.append((found, f"{path}/", self._names(found, resume, depth)))
                    if depth >= DEEPEST:
                        os.close(stack.pop()[0])
                        yield path, "It lies too deep."
                elif found is not None:
                    yield path, found
        finally:
            for here, _, _ in stack:
                os.close(here)

    def _open_top(self) -> int:
        if not self.prefix:
            return self._open_root()
        try:
            return self._open(self.prefix.rstrip("/"), FOLDER)
        except OSError as error:
            raise SourceAway(
                f"The folder “{self.prefix}” cannot be opened: {error.strerror}.", kind="folder"
            ) from error

    def _names(self, fd: int, resume: list[bytes] | None, depth: int) -> Iterator[str]:
        names = sorted(os.listdir(fd), key=os.fsencode)
        if resume and depth < len(resume):
            names = [name for name in names if os.fsencode(name) >= resume[depth]]
        return iter(names)

    def _look(self, here: int, name: str, path: str) -> Found | str | int | None:
        """A file, why it is not taken, an open folder, or None for what has just gone."""
        try:
            facts = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                return os.open(name, FOLDER, dir_fd=here)
        except PermissionError:
            return "The portal may not read it."
        except OSError as error:
            if error.errno in GONE:
                return None
            raise Trouble(f"The server folder cannot be read: {error.strerror}.") from error
        if stat.S_ISLNK(facts.st_mode):
            return self._follow(path)
        if not stat.S_ISREG(facts.st_mode):
            return "It is neither a file nor a folder."
        return _found(f"{self.prefix}{path}", path, facts)

    def _follow(self, path: str) -> Found | str:
        root = os.path.realpath(self.root)
        target = os.path.realpath(os.path.join(root, self.prefix + path))
        if not target.startswith(f"{root.rstrip('/')}/"):
            return "It is a link that leaves the server folder."
        if len(os.fsencode(target)) > LONGEST or names.problem(path) or not _is_text(target):
            return "It is a link to a name that cannot be kept."
        try:
            facts = os.stat(target, follow_symlinks=False)
        except OSError:
            return "It is a link to nothing that can be read."
        if stat.S_ISDIR(facts.st_mode):
            return "It is a link to a folder; links to folders are not followed."
        if not stat.S_ISREG(facts.st_mode):
            return "It is a link to something that is no file."
        return _found(target[len(root.rstrip("/")) + 1 :], path, facts)

    # -- reading

    def fetch(self, pinned: Pinned, start: int, stop: int, until: float) -> "FolderBody":
        fd = self._open_pinned(pinned)
        try:
            _still(fd, pinned)
            return FolderBody(fd, pinned, start, stop)
        except BaseException:
            os.close(fd)
            raise

    def _open_pinned(self, pinned: Pinned) -> int:
        try:
            return self._open(pinned.key, FILE)
        except PermissionError as error:
            raise Unreadable("The portal may not read it.") from error
        except OSError as error:
            if error.errno in GONE:
                raise Changed("It is no longer there, or was replaced by a link.") from error
            raise Trouble(f"It cannot be opened: {error.strerror}.") from error

    def sums(self, pinned: Pinned) -> dict[str, str]:
        fd = self._open_pinned(pinned)
        try:
            _still(fd, pinned)
        finally:
            os.close(fd)
        return {}


def _found(key: str, path: str, facts: os.stat_result) -> Found:
    return Found(
        key=key,
        path=path,
        size=facts.st_size,
        etag=etag_of(facts),
        modified=facts.st_mtime_ns // 10**6,
        settled=time.time() - max(facts.st_mtime, facts.st_ctime) > SETTLED_S,
    )


def _still(fd: int, pinned: Pinned) -> os.stat_result:
    """Raises Changed where an open file is no longer what was listed."""
    facts = os.fstat(fd)
    same = stat.S_ISREG(facts.st_mode) and facts.st_size == pinned.size
    if not same or etag_of(facts) != pinned.etag:
        raise Changed("It changed in the server folder after it was listed.")
    return facts


class FolderBody:
    """Bytes [start, stop) of an open file; it is looked at again once the last were read."""

    def __init__(self, fd: int, pinned: Pinned, start: int, stop: int) -> None:
        self.fd, self.pinned, self.at, self.stop = fd, pinned, start, stop
        self.sums: dict[str, str] = {}
        self.began = time.time()
        if 0 <= self.began - os.fstat(fd).st_ctime < TICK_S:
            raise Trouble("It changed a moment ago; it is read once it is still.")

    def __enter__(self) -> "FolderBody":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def read_into(self, view: memoryview, until: float) -> int:
        if self.at >= self.stop:
            return 0
        try:
            count = os.preadv(self.fd, [view[: self.stop - self.at]], self.at)
        except OSError as error:
            raise Trouble(f"It cannot be read: {error.strerror}.") from error
        self.at += count
        if not count or self.at >= self.stop:
            _still(self.fd, self.pinned)
        return count

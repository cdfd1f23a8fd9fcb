"""The state folder: where things lie, writes that survive a power cut, removal of anything."""

import ctypes
import fcntl
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any


class Busy(Exception):
    """Another process holds this lock."""


def fsync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync(path: Path) -> None:
    """Everything on the file system of `path` survives a power cut from here on."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), "The disk could not be synchronized.")
    finally:
        os.close(fd)


def write_atomic(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Readers see the old bytes or the new ones, after a power cut too."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value).encode())


def read_json(path: Path) -> Any:
    """The value in a file that `write_json` wrote, or None where there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def lock(path: Path) -> int:
    """Hold `path` until the process ends or the descriptor is closed. Raises Busy."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise Busy(str(path)) from error
    return fd


def is_locked(path: Path) -> bool:
    """True while some process holds `path`; the kernel drops the lock when that process ends."""
    try:
        os.close(lock(path))
    except Busy:
        return True
    return False


def remove_tree(path: Path) -> bool:
    """Remove what the work left, however deep or closed; True when nothing is left.

    Folders are emptied from the top: a folder inside is first moved up beside the others, so
    neither the depth of a path nor its length matters. Links are removed, never followed.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return True
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(root, 0o700)
        waiting = _empty(root, root)
        while waiting:
            name = waiting.pop()
            waiting += _empty_below(root, name)
            os.rmdir(name, dir_fd=root)
    except OSError:
        return False
    finally:
        os.close(root)
    path.rmdir()
    return True


def _empty_below(root: int, name: bytes) -> list[bytes]:
    os.chmod(name, 0o700, dir_fd=root)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
    try:
        return _empty(root, fd)
    finally:
        os.close(fd)


def _empty(root: int, fd: int) -> list[bytes]:
    """Unlink the files of `fd`, move its folders to `root` under new names; those names."""
    moved = []
    for entry in os.listdir(fd):
        name = os.fsencode(entry)
        if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=fd)
            continue
        new = b".gone-" + secrets.token_hex(12).encode()
        os.chmod(name, 0o700, dir_fd=fd)  # moving a folder rewrites its "..": it must be writable
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=root)
        moved.append(new)
    return moved


def tree_bytes(path: Path) -> int:
    """Bytes that a tree takes on the disk. What vanishes meanwhile counts nothing."""
    total, folders = 0, [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    total += _entry_bytes(entry)
        except OSError:  # gone, or closed by the work itself
            continue
    return total


def _entry_bytes(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0

"""The store: a folder of files under random keys. It knows nothing of datasets or digests.

A key is "ab/<38 hex digits>"; it is never reused, so whoever deletes one can hit no other bytes.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from django.conf import settings

from portal.base.errors import NotFound
from staging.errors import StoreAway

log = structlog.get_logger(__name__)
READ_PIECE = 2**20
MODE = 0o600


def new_key() -> str:
    name = secrets.token_hex(20)
    return f"{name[:2]}/{name[2:]}"


def path_of(key: str) -> Path:
    return settings.STORE_ROOT / key


def ensure_root() -> Path:
    settings.STORE_ROOT.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.STORE_ROOT


def free_bytes() -> int:
    """Bytes that may still be written: what is free less the floor kept for the database."""
    stat = os.statvfs(ensure_root())
    return stat.f_bavail * stat.f_frsize - settings.DISK_FLOOR_BYTES


def open_to_write(key: str) -> int:
    """A file descriptor to read and write a key; the file is made when it is not there.

    Raises StoreAway."""
    path = path_of(key)
    with _or_away():
        try:
            return _open(path)
        except FileNotFoundError:
            ensure_root()
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(settings.STORE_ROOT)
            return _open(path)


@contextmanager
def _or_away() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.error("store_away", error=str(error))
        raise StoreAway("The store cannot be written just now. Try again in a moment.") from error


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)


def write_all(fd: int, piece: bytes | memoryview, offset: int) -> None:
    """Write every byte at `offset`. OSError (a full disk) may come after a part was written."""
    view = memoryview(piece)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def make_durable(fd: int, key: str) -> None:
    """Bytes and name are on stable storage when this returns. Raises StoreAway."""
    with _or_away():
        os.fsync(fd)
        _sync_folder(path_of(key).parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(key: str, start: int, stop: int) -> Iterator[bytes]:
    """Bytes [start, stop) in pieces. Raises NotFound at once when the key is gone.

    A file that is too short ends early; whoever must know compares what came with a digest.
    """
    if start >= stop:
        return iter(())
    try:
        fd = os.open(path_of(key), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound("These bytes are no longer in the store.") from None
    return _pieces(fd, start, stop)


def _pieces(fd: int, start: int, stop: int) -> Iterator[bytes]:
    try:
        while start < stop:
            piece = os.pread(fd, min(READ_PIECE, stop - start), start)
            if not piece:
                return
            start += len(piece)
            yield piece
    finally:
        os.close(fd)


def delete(key: str) -> None:
    """Remove the bytes of a key; a key that is gone already is fine."""
    path_of(key).unlink(missing_ok=True)

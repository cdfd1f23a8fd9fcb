"""The store: a folder of files under random keys. It knows nothing of datasets or digests.

A key is "ab/<38 hex digits>"; it is never reused, so whoever deletes one can hit no other bytes.
"""

import ctypes
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
# A larger write makes ext4 look for larger runs of free memory, which from 512 KiB on took up to
# ten times the work (Linux 6.18, measured); from 64 KiB to this the size made no difference.
WRITE_PIECE = 2**18
SYNC_ONE_BY_ONE = 8  # keys; more are written out together
MODE = 0o600


def new_key() -> str:
    name = secrets.token_hex(20)
    return f"{name[:2]}/{name[2:]}"


def path_of(key: str) -> Path:
    return settings.STORE_ROOT / key


def _place_of(key: str) -> str:
    """As `path_of`, for what is done with every small file."""
    return f"{settings.STORE_ROOT}/{key}"


def ensure_root() -> Path:
    settings.STORE_ROOT.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.STORE_ROOT


def free_bytes() -> int:
    """Bytes that may still be written: what is free less the floor kept for the database."""
    try:
        stat = os.statvfs(settings.STORE_ROOT)
    except FileNotFoundError:
        stat = os.statvfs(ensure_root())
    return stat.f_bavail * stat.f_frsize - settings.DISK_FLOOR_BYTES


def open_to_write(key: str) -> int:
    """A file descriptor to read and write a key; the file is made when it is not there.

    Raises StoreAway."""
    place = _place_of(key)
    with _or_away():
        try:
            return _open(place)
        except FileNotFoundError:
            ensure_root()
            path_of(key).parent.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(settings.STORE_ROOT)
            return _open(place)


@contextmanager
def _or_away() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.error("store_away", error=str(error))
        raise StoreAway("The store cannot be written just now. Try again in a moment.") from error


def write_new(key: str, content: bytes | memoryview) -> None:
    """A key with this content. Raises OSError when the disk is full, and leaves nothing then."""
    fd = open_to_write(key)
    try:
        write_all(fd, content, 0)
    except OSError:
        delete(key)
        raise
    finally:
        os.close(fd)


def _open(place: str) -> int:
    return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)


def write_all(fd: int, piece: bytes | memoryview, offset: int) -> None:
    """Write every byte at `offset`. OSError (a full disk) may come after a part was written."""
    view = memoryview(piece)
    while view:
        written = os.pwrite(fd, view[:WRITE_PIECE], offset)
        view, offset = view[written:], offset + written


def make_durable(fd: int, key: str) -> None:
    """Bytes and name are on stable storage when this returns. Raises StoreAway."""
    with _or_away():
        os.fsync(fd)
        _sync_folder(path_of(key).parent)


def sync(keys: list[str]) -> None:
    """Bytes and names of all keys are on stable storage when this returns.

    Many are written out with one call for the whole file system, where the system has it. A key
    whose bytes are gone is passed over.
    """
    if len(keys) > SYNC_ONE_BY_ONE and _sync_file_system():
        return
    for key in keys:
        try:
            fd = os.open(path_of(key), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            make_durable(fd, key)
        finally:
            os.close(fd)


def _sync_file_system() -> bool:
    """syncfs(2), which reports a failed write since Linux 5.8. False where there is none."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return False
    fd = os.open(ensure_root(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if call(fd):
            raise OSError(ctypes.get_errno(), "the store could not be written out")
    finally:
        os.close(fd)
    return True


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def length_of(key: str) -> int | None:
    """Bytes under a key; None where it is gone."""
    try:
        return os.stat(_place_of(key)).st_size
    except FileNotFoundError:
        return None


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

"""Bytes out of the store, and bytes into it from the server's own hand."""

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from portal.base.errors import DomainError, NotFound
from staging import store
from staging.entries import Entry
from staging.errors import BytesMissing
from staging.files import declare_files
from staging.models import Dataset, File
from staging.receive import receive

ZIP_YEAR_ZERO = (1980, 1, 1, 0, 0, 0)


def open_file(*, file: File, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Bytes [start, stop) of a file, in pieces. Raises NotFound at once when they are not there.

    Raises BytesMissing at the end of a store's file that is too short: who sends them has announced
    how many come, and must not let another answer follow in their place.
    """
    stop = file.size if stop is None else min(stop, file.size)
    if file.blob is None:
        raise NotFound("The bytes of this file are not in the store.")
    return _all_of(store.read(file.blob.key, start, stop), stop - start, file.blob.key)


def _all_of(pieces: Iterator[bytes], missing: int, key: str) -> Iterator[bytes]:
    for piece in pieces:
        missing -= len(piece)
        yield piece
    if missing > 0:
        raise BytesMissing(f"{key} is {missing} bytes shorter in the store than its row says")


def reader_of(file: File) -> Callable[[int, int], Iterator[bytes]]:
    """What reads [start, stop) of a file; see `open_file`."""
    return lambda start, stop: open_file(file=file, start=start, stop=stop)


def store_bytes(
    *,
    dataset: Dataset,
    path: str,
    content: IO[bytes],
    size: int,
    executable: bool = False,
    actor: str,
) -> File:
    """Write one file of exactly `size` bytes into a dataset that is still open.

    Raises RefusedName, NoRoom, Conflict, or DomainError when `content` has another length.
    """
    entry = Entry(path=path, size=size, executable=executable)
    (plan,) = declare_files(dataset=dataset, entries=[entry], actor=actor)
    file, upload = plan.file, plan.upload
    assert file is not None  # noqa: S101  strict plans carry a file
    if upload is not None:
        content.seek(upload.offset, io.SEEK_CUR)
        receive(upload=upload, offset=upload.offset, pieces=_read(content, size - upload.offset))
        if upload.offset != size:
            raise DomainError(f"{size} bytes were announced and {upload.offset} came.")
        file.refresh_from_db()
    return file


def _read(content: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0:
        piece = content.read(min(store.READ_PIECE, size))
        if not piece:
            return
        size -= len(piece)
        yield piece


class _Sink(io.RawIOBase):
    """A place that zipfile writes to and that is emptied after each piece; it cannot seek."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.parts.append(bytes(data))
        return len(data)

    def drain(self) -> bytes:
        whole = b"".join(self.parts)
        self.parts.clear()
        return whole


def zip_of(files: Iterable[File]) -> Iterator[bytes]:
    """A zip archive of files as it is made, uncompressed, ZIP64 where needed.

    Names were checked when they were declared: relative, no "..", so they unpack below one folder.
    """
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for file in files:
            info = zipfile.ZipInfo(file.path, ZIP_YEAR_ZERO)
            info.external_attr = (0o100755 if file.executable else 0o100644) << 16
            info.file_size = file.size
            with archive.open(info, "w", force_zip64=file.size >= 2**31) as member:
                for piece in open_file(file=file):
                    member.write(piece)
                    yield sink.drain()
            yield sink.drain()
    yield sink.drain()

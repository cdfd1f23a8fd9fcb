"""Code that people send: a zip or a folder, checked before a byte of it reaches the store.

Nothing is ever written under a name from an archive; names only become columns after the checks.
"""

import io
import stat
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile

from jobs.forms.fields import refuse_controls

MOST_ENTRIES = 10_000
LONGEST_PATH, LONGEST_PART = 1024, 255
READ_SIZE = 256 * 2**10
# The end record of a zip, and the mark of the ZIP64 form, which 64 MiB never need.
_END, _END_SIZE, _ZIP64 = b"PK\5\6", 22, b"PK\6\7"
_LARGEST_INDEX = MOST_ENTRIES * 512


@dataclass(frozen=True)
class CodeFile:
    """One file of code: its path in the folder, size in bytes, and a way to read it."""

    path: str
    size: int
    executable: bool
    open: Callable[[], IO[bytes]]


def safe_path(name: str) -> str:
    """`name` as a relative path with plain parts, or ValidationError naming what is wrong."""
    shown = f"“{_short(name)}”"
    if not name or "\0" in name:
        raise ValidationError("The code holds a file without a usable name.")
    if name.startswith("/") or name[1:2] == ":" or "\\" in name:
        raise ValidationError(
            f"{shown} is an absolute or a Windows path; code needs relative ones."
        )
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise ValidationError(
            f"{shown} leads out of the folder of the code or is not a plain path."
        )
    if len(name.encode(errors="replace")) > LONGEST_PATH or any(
        len(part.encode(errors="replace")) > LONGEST_PART for part in parts
    ):
        raise ValidationError(f"{shown} is too long for a file name.")
    refuse_controls(name, "A file name in the code")
    return name


def _short(name: str) -> str:
    """A hostile name as a person may read it."""
    plain = "".join(c if c.isprintable() else "\ufffd" for c in name)
    return plain if len(plain) <= 80 else plain[:79] + "…"


def check_names(paths: Iterable[str]) -> None:
    """Refuse two files of one name (any case), and a file where another needs a folder."""
    files: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        folded = path.casefold()
        if folded in files:
            raise ValidationError(f"“{_short(path)}” is in the code twice.")
        files.add(folded)
        parts = folded.split("/")
        folders.update("/".join(parts[:n]) for n in range(1, len(parts)))
    if both := files & folders:
        raise ValidationError(f"“{_short(min(both))}” is both a file and a folder in the code.")


def check_total(count: int, size: int) -> None:
    if count == 0:
        raise ValidationError("There is no file in the code.")
    if count > MOST_ENTRIES:
        raise ValidationError(
            f"The code has {count:,} entries; at most {MOST_ENTRIES:,} are accepted."
        )
    if size > settings.LARGEST_CODE_BYTES:
        raise ValidationError(
            f"The code is {size:,} bytes; at most {settings.LARGEST_CODE_BYTES:,} are accepted."
        )


def read_folder(files: list[UploadedFile]) -> list[CodeFile]:
    """The files that a browser sent for a folder, without the folder's own name."""
    check_total(len(files), sum(file.size or 0 for file in files))
    named = [(safe_path(str(getattr(file, "sent_name", file.name))), file) for file in files]
    tops = {path.split("/")[0] for path, _ in named}
    strip = len(tops) == 1 and all("/" in path for path, _ in named)
    result = [
        CodeFile(
            path=path.split("/", 1)[1] if strip else path,
            size=file.size or 0,
            executable=_is_script(file),
            open=_opener(file),
        )
        for path, file in named
    ]
    check_names(file.path for file in result)
    return result


def _is_script(file: UploadedFile) -> bool:
    """A browser tells no modes: what begins with "#!" is meant to be run."""
    file.seek(0)
    return bool(file.read(2) == b"#!")


def _opener(file: UploadedFile) -> Callable[[], IO[bytes]]:
    def open_again() -> IO[bytes]:
        file.seek(0)
        return file.file  # type: ignore[return-value]

    return open_again


def read_zip(upload: UploadedFile) -> list[CodeFile]:
    """The files of a zip. Declared sizes are checked first, real ones by unpacking to the limit."""
    if (upload.size or 0) > settings.LARGEST_CODE_BYTES:
        check_total(1, upload.size or 0)
    _check_index(upload)
    try:
        upload.seek(0)
        archive = zipfile.ZipFile(upload)
        entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise ValidationError("This is not a zip file, or it is damaged.") from error
    if len(entries) > MOST_ENTRIES:
        check_total(len(entries), 0)
    files = [entry for entry in entries if not entry.is_dir()]
    for entry in entries:
        _check_entry(entry)
    check_total(len(files), sum(entry.file_size for entry in files))
    check_names(entry.filename for entry in files)
    return _unpacked(archive, files)


def _check_index(upload: UploadedFile) -> None:
    """Refuse an index that would take long to read, before it is read."""
    upload.seek(max(0, (upload.size or 0) - 65_557 - 20))
    tail = upload.read()
    at = len(tail) - _END_SIZE
    if tail[at : at + 4] != _END:
        at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_SIZE:
        raise ValidationError("This is not a zip file, or it is damaged.")
    if int.from_bytes(tail[at + 12 : at + 16], "little") > _LARGEST_INDEX or _ZIP64 in tail[:at]:
        raise ValidationError(f"This zip lists too many entries; at most {MOST_ENTRIES:,} fit.")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    # The name as the archive has it: zipfile itself cuts at NUL, which would hide a collision.
    if "\0" in entry.orig_filename:
        raise ValidationError("The code holds a file without a usable name.")
    if "\\" in entry.orig_filename:
        safe_path(entry.orig_filename)
    safe_path(entry.filename.rstrip("/") if entry.is_dir() else entry.filename)
    if entry.flag_bits & 0x1:
        raise ValidationError(
            f"“{_short(entry.filename)}” is encrypted. Send a zip without a password."
        )
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise ValidationError(
            f"“{_short(entry.filename)}” is a link or a special file; "
            "only plain files are accepted."
        )


def _unpacked(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> list[CodeFile]:
    room = settings.LARGEST_CODE_BYTES
    result = []
    for entry in entries:
        content = _unpack(archive, entry, room)
        room -= len(content)
        result.append(
            CodeFile(
                path=entry.filename,
                size=len(content),
                executable=bool((entry.external_attr >> 16) & 0o100) or content[:2] == b"#!",
                open=lambda content=content: io.BytesIO(content),  # type: ignore[misc]
            )
        )
    return result


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, room: int) -> bytes:
    """The entry's bytes, at most `room`: what an archive declares is not believed."""
    content = bytearray()
    try:
        with archive.open(entry) as source:
            while block := source.read(READ_SIZE):
                content += block
                if len(content) > room:
                    check_total(1, settings.LARGEST_CODE_BYTES + len(content) - room)
    except ValidationError:
        raise
    except Exception as error:  # zlib, lzma and bz2 each raise a class of their own
        raise ValidationError(f"“{_short(entry.filename)}” in the zip is damaged.") from error
    return bytes(content)

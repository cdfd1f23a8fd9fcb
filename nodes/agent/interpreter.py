"""The agent's own Python as the work sees it: at a neutral place, so that no home folder shows.

A CPython finds its library beside the program that was started, wherever that lies. Two things
remember where it was made: the first lines of its scripts, which are written anew for the work, and
the run path of one that was built with a shared library, which LD_LIBRARY_PATH stands in for.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

INSIDE = "/opt/python"
NEUTRAL = ("/usr", "/opt", "/nix")  # no user's: a Python there stays where it is
HEAD_BYTES = 4096  # as far as a script's line for the kernel, or for a shell that starts it, goes


def prefixes() -> tuple[str, ...]:
    """The prefix by its usual name and by its real one."""
    return tuple(dict.fromkeys((sys.base_prefix, os.path.realpath(sys.base_prefix))))


def moves() -> bool:
    return not all(is_below(prefix, NEUTRAL) for prefix in prefixes())


def is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def inside() -> str:
    """The prefix as the work sees it."""
    return INSIDE if moves() else sys.base_prefix


def binds() -> Iterator[str]:
    """How bwrap shows it; one below /usr is there already."""
    if moves():
        yield from ("--ro-bind", os.path.realpath(sys.base_prefix), INSIDE)
        return
    for prefix in prefixes():
        if not is_below(prefix, ("/usr",)):
            yield from ("--ro-bind", prefix, prefix)


def search_path(at: dict[str, str]) -> str:
    """PATH: scripts that were written anew, this Python, the system."""
    own = [f"{at['etc']}/bin"] if at["python"] == INSIDE else []
    system = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    return ":".join([*own, f"{at['python']}/bin", *system])


def libraries(given: str, system: Iterable[str]) -> list[str]:
    """LD_LIBRARY_PATH inside, of the one that the agent was `given`: what the work can see of it.

    `system` are the folders that the sandbox shows at their own place.
    """
    shown = [_as_seen(path, tuple(system)) for path in given.split(":") if path]
    if moves() and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        shown.append(f"{INSIDE}/lib")
    return list(dict.fromkeys(path for path in shown if path))


def _as_seen(path: str, system: tuple[str, ...]) -> str:
    """The path inside, or "" for one that is not there."""
    for prefix in prefixes():
        if is_below(path, (prefix,)):
            return inside() + path[len(prefix) :]
    return path if is_below(path, system) else ""


def write_scripts(folder: Path) -> None:
    """The prefix's scripts, for `folder`, starting the Python that the work sees."""
    if not moves():
        return
    folder.mkdir(exist_ok=True)
    for script in Path(sys.base_prefix, "bin").iterdir():
        if content := _moved(script):
            copy = folder / script.name
            copy.write_bytes(content)
            copy.chmod(0o755)


def _moved(script: Path) -> bytes:
    """A script's text with the new place in its head; empty for what needs none."""
    if not script.is_file():
        return b""
    with script.open("rb") as file:
        head = file.read(HEAD_BYTES)
        if not head.startswith(b"#!"):
            return b""
        moved = head
        for prefix in prefixes():
            moved = moved.replace(os.fsencode(f"{prefix}/bin/"), os.fsencode(f"{INSIDE}/bin/"))
        return moved + file.read() if moved != head else b""

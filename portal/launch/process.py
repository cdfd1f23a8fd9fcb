"""Child processes that end with their launcher, whatever ends it."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# A terminal sends these to every process of the foreground group at once. The children have them
# blocked, so that the launcher can stop them in order; it ends them with SIGTERM.
FROM_TERMINAL = {signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere an orderly stop is all there is."""
    if _libc is not None:
        _libc.prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Processes that detach from our children become our own children, so we can end them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


class Make:
    """The make that started this, if one did: its end is ours.

    GNU make hands SIGTERM on to its children, but neither SIGINT nor SIGHUP: it takes for granted
    that they came from a terminal, to every process of the group. `kill -INT` of make alone then
    leaves it waiting for us. Its handler for such a signal removes itself first, which shows.
    """

    def __init__(self) -> None:
        self.pid = os.getppid()
        if self._line("comm") not in ("make", "gmake"):
            self.pid = 0
        else:
            _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        self.caught = self._caught()

    def _line(self, name: str, start: str = "") -> str:
        try:
            lines = Path(f"/proc/{self.pid}/{name}").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line for line in lines if line.startswith(start)), "")

    def _caught(self) -> set[signal.Signals]:
        """Which of the terminal's signals make has a handler for."""
        mask = int(self._line("status", "SigCgt:").partition(":")[2].strip() or "0", 16)
        return {number for number in FROM_TERMINAL if mask >> (number - 1) & 1}

    def asked(self) -> signal.Signals | None:
        """The signal that ended make, or None while it goes on."""
        if not self.pid:
            return None
        return min(self.caught - self._caught(), default=None)


def spawn(
    argv: list[str], env: dict[str, str], pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a child whose output comes through one non-blocking pipe.

    The kernel sends it SIGTERM when the launcher dies. `preexec_fn` is safe here because the
    launcher has a single thread.
    """
    launcher = os.getpid()

    def in_child() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != launcher:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_BLOCK, FROM_TERMINAL)

    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        preexec_fn=in_child,
    )
    assert process.stdout is not None  # noqa: S101
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _parent(stat: str) -> int:
    """The parent in a /proc/PID/stat line; the command's name may hold spaces and brackets."""
    return int(stat.rpartition(")")[2].split()[1])


def _process_table() -> Iterator[tuple[int, int]]:
    """(pid, parent) of every process that can be seen; nothing where there is no /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), _parent((folder / "stat").read_text(errors="replace"))
        except (OSError, ValueError, IndexError):
            continue  # it has just ended


def children(pid: int) -> set[int]:
    return {child for child, parent in _process_table() if parent == pid}


def descendants(pid: int) -> set[int]:
    """Every process below `pid`, zombies among them."""
    children: dict[int, list[int]] = {}
    for child, parent in _process_table():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    pending = [pid]
    while pending:
        new = [child for child in children.get(pending.pop(), []) if child not in found]
        found.update(new)
        pending.extend(new)
    return found


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have ended in the meantime."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def reap(known: set[int]) -> None:
    """Collect adopted children that have ended; those in `known` belong to their Popen."""
    for pid in [p for p, parent in _process_table() if parent == os.getpid() and p not in known]:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)

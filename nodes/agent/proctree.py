"""Processes of this machine, read from /proc: who descends from whom, and what they take."""

import contextlib
import ctypes
import os
import signal
from collections import deque
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Identity:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    since: int  # clock ticks after the start of the machine

    def alive(self) -> bool:
        return identity(self.pid) == self


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold spaces and brackets."""
    text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(") ")[2].split()


def identity(pid: int) -> Identity | None:
    try:
        fields = _stat(pid)
    except (OSError, IndexError):
        return None
    return Identity(pid, int(fields[19]))


def is_zombie(pid: int) -> bool:
    try:
        return _stat(pid)[0] in "ZX"
    except (OSError, IndexError):
        return True


def children(pid: int) -> list[int]:
    """The direct children of a process, oldest first; none when it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(PROC / str(pid) / "task"):
            text = (PROC / str(pid) / "task" / task / "children").read_text(encoding="ascii")
            found += [int(word) for word in text.split()]
    except OSError:  # the process or one of its threads has just ended
        return found
    return found


def descendants(pid: int) -> list[int]:
    """All that descend from `pid`, itself not among them."""
    found: list[int] = []
    waiting = deque(children(pid))
    while waiting:
        found.append(waiting.popleft())
        waiting.extend(children(found[-1]))
    return found


def tasks(pids: list[int]) -> int:
    """How many threads these processes have together, the first one of each counted too."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended
            total += len(os.listdir(PROC / str(pid) / "task"))
    return total


def ancestors(pid: int) -> list[int]:
    """The parents of a process up to the first of the machine."""
    found: list[int] = []
    while pid > 1 and len(found) < 256:
        try:
            pid = int(_stat(pid)[1])
        except (OSError, IndexError):
            break
        found.append(pid)
    return found


def catches(pid: int, number: int) -> bool:
    """True when the process has a handler of its own for this signal."""
    for line in _lines(pid, "status"):
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _lines(pid: int, name: str) -> list[str]:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def resident_bytes(pids: list[int]) -> int:
    """Pages in memory, shared ones counted for each process: quick, and never too low."""
    total = 0
    for pid in pids:
        for line in _lines(pid, "statm"):
            total += int(line.split()[1]) * PAGE
    return total


def own_bytes(pids: list[int]) -> tuple[int, int] | None:
    """(anonymous, shared memory) bytes with shared pages divided among their users, slow.

    None where the kernel does not tell.
    """
    anonymous = shared = 0
    told = False
    for pid in pids:
        for line in _lines(pid, "smaps_rollup"):
            told = True
            if line.startswith("Pss_Anon:"):
                anonymous += int(line.split()[1]) * 1024
            elif line.startswith("Pss_Shmem:"):
                shared += int(line.split()[1]) * 1024
    return (anonymous, shared) if told else None


def die_with_parent() -> None:
    """This process ends with the thread that started it, even when it hangs in a driver."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def send(pid: int, number: int) -> bool:
    """Signal a process; False when it is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def namespace(pid: int) -> int | None:
    """The inode of a process's pid namespace, or None when it cannot be read."""
    try:
        return os.stat(PROC / str(pid) / "ns" / "pid").st_ino
    except OSError:
        return None


def in_namespace(inode: int) -> list[int]:
    """The processes, zombies apart, of this pid namespace that this user can see."""
    pids = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    return [pid for pid in pids if namespace(pid) == inode and not is_zombie(pid)]


def marked(lease: str) -> list[int]:
    """Processes that were started for this lease, by a variable of theirs."""
    mark = f"E31_LEASE={lease}".encode()
    found = []
    for name in os.listdir(PROC):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if mark in (PROC / name / "environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue  # gone, or another user's: none of ours
    return found

"""The limits of running work: time, memory, processes, disk; and how its processes are ended."""

import contextlib
import ctypes
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from nodes.agent import disk, proctree
from nodes.agent.proctree import Identity

PR_SET_CHILD_SUBREAPER = 36
DISK_SECONDS = 1.0
DISK_SHARE = 20  # a look at the disk takes at most a twentieth of the time
PRECISE_SECONDS = 1.0
LAUNCH_MS = 60_000
SHM_LEAST = 1024 * 1024


class Runtime:
    """The processes of the work. Everything below the supervisor is its: it is a subreaper."""

    def __init__(self, isolated: bool) -> None:
        self.isolated = isolated
        self.child = 0
        self.init: Identity | None = None
        self.inode: int | None = None
        self._facts = b""
        self._pin = self._init_fd = -1
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "The supervisor cannot adopt orphans.")

    def learn(self, data: bytes) -> bool:
        """Lines of bwrap's --json-status-fd; True when the sandbox's first process is known."""
        self._facts += data
        for line in self._facts.split(b"\n")[:-1]:
            if (pid := json.loads(line).get("child-pid")) and self.init is None:
                self._remember(pid)
        return self.init is not None

    def _remember(self, pid: int) -> None:
        try:
            self._init_fd = os.pidfd_open(pid)
            # An open namespace keeps its number: no later one can be taken for this one.
            self._pin = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
        except OSError:  # it has ended already
            return
        self.init, self.inode = proctree.identity(pid), os.fstat(self._pin).st_ino

    def pids(self) -> list[int]:
        """The processes of the work itself, oldest first."""
        if not self.isolated:
            return proctree.descendants(os.getpid())
        return proctree.descendants(self.init.pid) if self.init else []

    def kill(self) -> None:
        """SIGKILL to everything. The first process of a sandbox takes all others with it."""
        if self._init_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
        for pid in proctree.descendants(os.getpid()):
            proctree.send(pid, signal.SIGKILL)

    def empty(self) -> bool:
        """True when no process of the work exists any more."""
        if proctree.descendants(os.getpid()):
            return False
        if self.init and self.init.alive():
            return False
        return not (self.inode and proctree.in_namespace(self.inode))


class Watch:
    """Looks at the work again and again; `reason` says which limit ended it, if one did."""

    def __init__(
        self, folder: Path, limits: dict[str, Any], runtime: Runtime, *, shell: bool
    ) -> None:
        self.folder, self.limits, self.runtime, self.shell = folder, limits, runtime, shell
        self.reason = ""
        self.fault: dict[str, str] | None = None
        self.peaks = {"memory_bytes": 0, "processes": 0, "scratch_bytes": 0, "output_bytes": 0}
        self.shm_bytes = max(SHM_LEAST, limits["memory_bytes"] // 2)
        self._launch_until = self._work_before = 0
        self._term_at: int | None = None
        self._kill_at: int | None = None
        self._softened: set[int] = set()
        self._disk_at = self._precise_at = 0.0

    @property
    def margin_ms(self) -> int:
        """Milliseconds from SIGTERM to SIGKILL: as declared, at most half of the time."""
        return 1000 * min(self.limits["term_margin_seconds"], self.limits["seconds"] // 2)

    def launched(self, now: int) -> None:
        """The sandbox is being made: that has a limit too."""
        self._launch_until = now + LAUNCH_MS
        self._work_before = disk.tree_bytes(self.folder / "work")

    def begin(self, now: int) -> None:
        """The work's time begins."""
        end = now + 1000 * self.limits["seconds"]
        self._term_at = end - self.margin_ms

    def look(self, now: int) -> str:
        """One look; a sentence for the log when the work's end begins."""
        if self._kill_at is not None:
            self._go_on_ending(now)
            return ""
        if (self.folder / "stop").exists():
            return self._stop(now)
        if self._term_at is None:
            if now >= self._launch_until:
                self.runtime.kill()
            return ""
        if now >= self._term_at:
            return self._end("time_limit", now, "The time limit is near")
        return self._measure()

    # -- ends

    def _stop(self, now: int) -> str:
        reason = (disk.read_json(self.folder / "stop") or {}).get("reason", "cancelled")
        if reason == "cancelled":
            return self._end(reason, now, "The job was cancelled")
        self.fault = {"code": "supervisor_died", "detail": "The agent was told to end its work."}
        return self._kill("cancelled", "The node ends its work.")

    def _end(self, reason: str, now: int, why: str) -> str:
        """SIGTERM now, SIGKILL after the margin."""
        self.reason = reason
        self._kill_at = now + self.margin_ms
        self._soften()
        return f"{why}: SIGTERM was sent, SIGKILL follows in {self.margin_ms // 1000} s."

    def _kill(self, reason: str, sentence: str) -> str:
        self.reason, self._kill_at = reason, 0
        self.runtime.kill()
        return sentence

    def _go_on_ending(self, now: int) -> None:
        if self._kill_at is not None and now >= self._kill_at:
            self.runtime.kill()
        elif (self.folder / "stop").exists() and self.reason == "time_limit":
            self.reason = "cancelled"
        else:
            self._soften()

    def _soften(self) -> None:
        """SIGTERM to every process once. A shell at the top without a handler gets it when the
        others have ended: at its death the sandbox goes, and they could save nothing."""
        pids = self.runtime.pids()
        top, others = pids[:1], pids[1:]
        for pid in top:
            patient = self.shell and others and not proctree.catches(pid, signal.SIGTERM)
            if not patient or (self._softened and not self._softened & set(others)):
                others.insert(0, pid)
        for pid in others:
            if pid not in self._softened:
                self._softened.add(pid)
                proctree.send(pid, signal.SIGTERM)

    # -- limits

    def _measure(self) -> str:
        pids = self.runtime.pids()
        tasks = proctree.tasks(pids)
        self._peak("processes", tasks)
        if tasks > self.limits["processes"]:
            return self._kill(
                "process_limit",
                f"More than {self.limits['processes']} processes and threads: ended.",
            )
        memory = self._memory(pids)
        if memory > self.limits["memory_bytes"]:
            return self._kill("memory_limit", _over("memory", memory, self.limits["memory_bytes"]))
        return self._disk()

    def _peak(self, name: str, value: int) -> None:
        self.peaks[name] = max(self.peaks[name], value)

    def _memory(self, pids: list[int]) -> int:
        """Bytes in use: the quick sum while it is below the limit, then the exact one."""
        limit = self.limits["memory_bytes"]
        shm = self._shm_used()
        quick = proctree.resident_bytes(pids) + shm
        if quick <= limit:
            self._peak("memory_bytes", quick)
            return quick
        if time.monotonic() < self._precise_at:
            return 0
        own = proctree.own_bytes(pids)
        self._precise_at = time.monotonic() + PRECISE_SECONDS
        exact = own[0] + max(own[1], shm) if own else quick
        self._peak("memory_bytes", exact)
        return exact

    def _shm_used(self) -> int:
        """Bytes in the sandbox's /dev/shm, which are memory whether mapped or not."""
        if not self.runtime.init:
            return 0
        try:
            facts = os.statvfs(f"/proc/{self.runtime.init.pid}/root/dev/shm")
        except OSError:
            return 0
        return (facts.f_blocks - facts.f_bfree) * facts.f_frsize

    def _disk(self) -> str:
        if time.monotonic() < self._disk_at:
            return ""
        begun = time.monotonic()
        scratch = sum(disk.tree_bytes(self.folder / name) for name in ("scratch", "work"))
        scratch = max(0, scratch - self._work_before)  # the job's own code is no scratch
        output = disk.tree_bytes(self.folder / "output")
        took = time.monotonic() - begun
        self._disk_at = time.monotonic() + max(DISK_SECONDS, took * DISK_SHARE)
        self._peak("scratch_bytes", scratch)
        self._peak("output_bytes", output)
        if scratch > self.limits["scratch_bytes"]:
            return self._kill("disk_limit", _over("scratch", scratch, self.limits["scratch_bytes"]))
        if output > self.limits["output_bytes"]:
            return self._kill("output_limit", _over("output", output, self.limits["output_bytes"]))
        return ""


def _over(what: str, used: int, limit: int) -> str:
    return f"{used:,} bytes of {what}, limit {limit:,}: ended."

"""`python -m nodes.agent.supervisor FOLDER`: watches the work of one lease until all of it is gone.

Detached from the agent, which may be killed, upgraded and started again meanwhile: the two meet
in the lease's folder only. `supervisor.lock` is held while this process lives, `status.json` says
what happened, `stop` (made by the agent) asks for the end.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodes.agent import cgroup, disk, sandbox
from nodes.agent.clock import boot_id, boottime_ms
from nodes.agent.watch import Runtime, Watch
from nodes.agent.worklog import WorkLog

TICK_SECONDS = 0.2
LOCK_SECONDS = 5
KILL_WAIT_MS = 60_000
LAST_WORDS_MS = 5_000
LOG_BLOCK = 64 * 1024
SPARE_TASKS = 16  # above the limit, so that it is seen to be passed; the sandbox's own among them
OOM_SCORE = 500  # the kernel takes the work before the agent
DEADLY = {1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 14, 15, 24, 25, 31}


class Supervisor:
    """Starts the work of the lease in `folder` and ends it by its limits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = disk.read_json(folder / "spec.json")
        self.run_plan = disk.read_json(folder / "run.json")
        limits = self.spec["limits"]
        self.log = WorkLog(folder / "log", limits["log_bytes"])
        self.runtime = Runtime(isolated=bool(self.run_plan["bwrap"]))
        self.watch = Watch(folder, limits, self.runtime, shell=self._is_shell())
        self.group = cgroup.Group.make(folder, limits["processes"] + SPARE_TASKS)
        self.selector = selectors.DefaultSelector()
        self.started = False
        self.returncode: int | None = None
        self.status: dict[str, Any] = {"phase": "starting", "boot": boot_id(), "pid": os.getpid()}
        self.status |= {"times": {}, "exit": None, "fault": None, "processes": "not checked"}
        self.status["group"] = str(self.group.path) if self.group.path else None

    def _is_shell(self) -> bool:
        work = self.spec["work"]
        return not (work["kind"] == "script" and work["language"] == "python")

    def tell(self, **values: Any) -> None:
        """Write the status and wake the agent, if there is one."""
        self.status |= values
        disk.write_json(self.folder / "status.json", self.status)
        try:
            fd = os.open(self.folder.parent.parent / "wake", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no agent runs now: the next one reads the status
            return
        with contextlib.suppress(BlockingIOError):  # many wakes wait already
            os.write(fd, b".")
        os.close(fd)

    def main(self) -> None:
        self.tell()
        try:
            self.start()
        except sandbox.CannotStart as error:
            self.log.note(str(error))
            self.never({"code": None, "signal": None, "reason": "could_not_start"}, None)
        except OSError as error:
            self.never(None, {"code": "launch_failed", "detail": str(error)[:500]})
        else:
            self.follow()
            self.finish()

    def never(self, end: dict[str, Any] | None, fault: dict[str, str] | None) -> None:
        """The end of what was never started: no process, no output."""
        self.group.remove()
        self.status["processes"] = "none"
        self.ended(end, fault)

    # -- start

    def start(self) -> None:
        """Start the work with its pipes. Raises CannotStart, OSError."""
        sandbox.prepare(self.folder)
        launch = sandbox.prepare_launch(self.folder, self.spec, self.run_plan["gpus"])
        sandbox.check(launch)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wake_on_signals()
        log, started = self._pipe(self.on_log), self._pipe(self.on_started)
        variables = sandbox.variables(launch, self._places())
        variables |= {"E31_LEASE": self.folder.name, "E31_STARTED": str(started)}
        command = sandbox.command(launch, self._places(), self._most_tasks())
        before = _oom_score(str(OOM_SCORE))
        try:
            if self.runtime.isolated:
                self._isolated(command, variables, log, started)
            else:
                self._popen(command, variables, self._places()["work"], log, [started])
        finally:
            _oom_score(before)
            os.close(log)
            os.close(started)

    def _most_tasks(self) -> int | None:
        if self.runtime.isolated and sandbox.counts_by_sandbox():
            return int(self.spec["limits"]["processes"]) + SPARE_TASKS
        return None

    def _places(self) -> dict[str, str]:
        return sandbox.places(self.folder, self.runtime.isolated)

    def _isolated(
        self, command: list[str], variables: dict[str, str], log: int, started: int
    ) -> None:
        arguments = sandbox.bwrap_arguments(
            self.folder, variables, self.run_plan["gpus"], self.watch.shm_bytes
        )
        facts, arguments_fd = self._pipe(self.on_facts), os.memfd_create("bwrap-arguments")
        os.write(arguments_fd, b"".join(os.fsencode(word) + b"\0" for word in arguments))
        os.lseek(arguments_fd, 0, os.SEEK_SET)
        bwrap = [self.run_plan["bwrap"], "--args", str(arguments_fd), "--json-status-fd"]
        try:
            fds = [started, facts, arguments_fd]
            self._popen([*bwrap, str(facts), "--", *command], {}, "/", log, fds)
        finally:
            os.close(facts)
            os.close(arguments_fd)

    def _popen(
        self, command: list[str], variables: dict[str, str], cwd: str, log: int, fds: list[int]
    ) -> None:
        self.child = subprocess.Popen(
            command, env=variables, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            pass_fds=fds, start_new_session=True, preexec_fn=self.group.join,
        )  # fmt: skip
        self.runtime.child = self.child.pid

    def _pipe(self, on_data: Callable[[bytes], None]) -> int:
        """A pipe whose reading end is followed; the writing end is for the child."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self.selector.register(reader, selectors.EVENT_READ, on_data)
        return writer

    def _wake_on_signals(self) -> None:
        writer = self._pipe(lambda data: None)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    # -- what happens

    def on_log(self, data: bytes) -> None:
        self.log.write(data)

    def on_facts(self, data: bytes) -> None:
        """bwrap says which process is the first of the sandbox."""
        if self.runtime.learn(data) and self.runtime.init:
            first, inode = self.runtime.init, self.runtime.inode
            self.status |= {"init": [first.pid, first.since], "pid_namespace": inode}

    def on_started(self, data: bytes) -> None:
        if data and not self.started:
            self.started = True
            now = boottime_ms()
            self.watch.begin(now)
            self.tell(phase="running", times={"running": now})

    def pump(self, seconds: float) -> None:
        """Read whatever has arrived, waiting at most `seconds` for the first of it."""
        for key, _ in self.selector.select(seconds):
            try:
                data = os.read(key.fd, LOG_BLOCK)
            except BlockingIOError:
                continue
            if data:
                key.data(data)
            else:
                self.selector.unregister(key.fd)
                os.close(key.fd)

    def reap(self) -> bool:
        """Collect ended children; True while there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child.pid:
                self.returncode = self.child.returncode = os.waitstatus_to_exitcode(status)

    def follow(self) -> None:
        """Until the work's first process has ended, by itself or by a limit."""
        look_at = 0.0
        self.watch.launched(boottime_ms())
        while self.returncode is None:
            self.pump(TICK_SECONDS)
            self.reap()
            if self.returncode is None and time.monotonic() >= look_at:
                look_at = time.monotonic() + TICK_SECONDS
                if sentence := self.watch.look(boottime_ms()):
                    self.log.note(sentence)

    # -- the end

    def finish(self) -> None:
        """Remove every process that is left, read the last of the log, write the end."""
        deadline = boottime_ms() + KILL_WAIT_MS
        while not (gone := self._gone()) and boottime_ms() < deadline:
            self.runtime.kill()
            self.pump(0.02)
        deadline = boottime_ms() + LAST_WORDS_MS
        while gone and self._log_is_open() and boottime_ms() < deadline:
            self.pump(1)
        self.status["processes"] = "none" if gone else "left"
        if self.started or self.watch.reason:
            self.ended(self._exit(), self.watch.fault)
        else:
            text = self.log.clear().decode(errors="replace").strip()
            self.ended(None, {"code": "launch_failed", "detail": text[-500:] or "no reason given"})

    def _gone(self) -> bool:
        return not self.reap() and self.runtime.empty() and self.group.remove()

    def _log_is_open(self) -> bool:
        return any(key.data == self.on_log for key in self.selector.get_map().values())

    def _exit(self) -> dict[str, Any]:
        """How the first process ended. A sandbox says 128 + n for signal n, and so do shells of
        their own accord: a signal is named where it was seen, or sent from here."""
        code = self.returncode if self.returncode is not None else -signal.SIGKILL
        seen, code = code < 0, (128 - code if code < 0 else code)
        number = code - 128 if (seen or self.watch.reason) and code - 128 in DEADLY else None
        reason = self.watch.reason or ("killed" if seen else "exited")
        return {"code": code, "signal": number, "reason": reason}

    def ended(self, end: dict[str, Any] | None, fault: dict[str, str] | None = None) -> None:
        self.log.close()
        times = {**self.status["times"], "ended": boottime_ms()}
        self.tell(phase="ended", times=times, exit=end, fault=fault, peaks=self.watch.peaks)


def _oom_score(value: str) -> str:
    """Set what children inherit; the value before. It only says who is killed first when the
    machine runs out of memory, so a kernel that refuses is no reason to stop."""
    path = Path("/proc/self/oom_score_adj")
    before = path.read_text(encoding="ascii").strip()
    with contextlib.suppress(OSError):
        path.write_text(value, encoding="ascii")
    return before


def take_lock(folder: Path) -> bool:
    """Be the one supervisor of this lease. Agents look at the lock, each for a moment."""
    for _ in range(LOCK_SECONDS * 50):
        try:
            disk.lock(folder / "supervisor.lock")
            return True
        except disk.Busy:
            time.sleep(0.02)
    return False


def main() -> None:
    folder = Path(sys.argv[1])
    if os.fork():
        os._exit(0)  # the agent's child ends here: what goes on belongs to nobody
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())  # work inherits no blocked signal
    if not take_lock(folder) or (folder / "status.json").exists():
        return  # this lease's work was started before: never twice
    Supervisor(folder).main()


if __name__ == "__main__":
    main()

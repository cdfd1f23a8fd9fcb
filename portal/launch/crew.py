"""A crew of child processes: their output, their deaths, their restarts, their orderly end."""

import contextlib
import os
import re
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from subprocess import Popen

from portal.launch.errors import Asked, CannotStart
from portal.launch.output import Lines, Printer
from portal.launch.process import Make, children, descendants, reap, send, spawn

MOST_RESTARTS = 5
STEADY_S = 60  # a process that ran this long has earned its restarts back
STOP_S = 12.0  # how long each process has for an orderly end; a celery task may take a while
ORPHAN_STOP_S = 8.0
LOOK_S = 0.1  # between two looks at a condition, however much is printed meanwhile


@dataclass
class Part:
    """One process of the crew. `restarts` says whether it comes back when it dies."""

    name: str
    argv: list[str]
    env: dict[str, str]
    pass_fds: tuple[int, ...] = ()
    restarts: bool = False
    mute: str = ""  # a pattern of lines that help nobody
    process: Popen[bytes] | None = None
    lines: Lines | None = None
    started_at: float = 0.0
    restart_at: float | None = None
    failures: int = 0
    codes: list[int] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.process is not None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


class Crew:
    """Starts parts, prints what they write, restarts those that may come back.

    Single-threaded: everything happens inside `pump`, which the waiting functions call.
    """

    def __init__(self, printer: Printer) -> None:
        self.printer = printer
        self.make = Make()
        self.parts: list[Part] = []
        self.selector = selectors.DefaultSelector()
        self.asked: signal.Signals | None = None
        self.stopping = False
        self._watch_signals()

    def _watch_signals(self) -> None:
        """A signal wakes the selector at once; the handler itself only takes a note."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.selector.register(reader, selectors.EVENT_READ, lambda: os.read(reader, 512))
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _note(self, number: int, _frame: object) -> None:
        """The first signal asks for an orderly end, the second for an immediate one."""
        if self.stopping:
            self.kill_all()
        self.asked = signal.Signals(number)

    def say(self, sentence: str) -> None:
        self.printer.line("run", sentence)

    def start(self, part: Part) -> Part:
        if part not in self.parts:
            self.parts.append(part)
        part.restart_at = None
        part.started_at = time.monotonic()
        try:
            part.process = spawn(part.argv, part.env, part.pass_fds)
        except OSError as error:
            raise CannotStart(f"{part.name} cannot be started: {error}.") from error
        part.lines = Lines(lambda text: self._print(part, text))
        assert part.process.stdout is not None  # noqa: S101
        self.selector.register(part.process.stdout, selectors.EVENT_READ, lambda: self._read(part))
        return part

    def _print(self, part: Part, text: str) -> None:
        if not (part.mute and re.search(part.mute, text)):
            self.printer.line(part.name, text)

    def _read(self, part: Part) -> None:
        process = part.process
        if process is None or process.stdout is None or part.lines is None:
            return
        try:
            data = os.read(process.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        if data:
            part.lines.feed(data)
        else:
            self._close_output(part)

    def _close_output(self, part: Part) -> None:
        """Its last words are printed; a grandchild that still holds the pipe is not waited for."""
        stdout = part.process.stdout if part.process else None
        if stdout is None or stdout.closed or part.lines is None:
            return
        part.lines.close()
        self.selector.unregister(stdout)
        stdout.close()

    def pump(self, seconds: float) -> None:
        """Handle what happens within `seconds`. Raises Asked after a signal, CannotStart when a
        part that is needed has died for good."""
        for key, _ in self.selector.select(min(seconds, self._next_restart())):
            key.data()
        self._bury()
        self.asked = self.asked or self.make.asked()
        if self.asked and not self.stopping:
            raise Asked(self.asked.name)
        if not self.stopping:
            self._restart_due()

    def _bury(self) -> None:
        for part in self.parts:
            if part.process is None or part.process.poll() is None:
                continue
            while part.process.stdout and not part.process.stdout.closed and self._has_more(part):
                self._read(part)
            self._close_output(part)
            part.codes.append(part.process.returncode)
            part.process = None
            if not self.stopping and not self.asked:
                self._after_death(part)
        reap({part.pid for part in self.parts if part.pid})

    def _has_more(self, part: Part) -> bool:
        stdout = part.process.stdout if part.process else None
        return any(key.fileobj is stdout for key, _ in self.selector.select(0))

    def _after_death(self, part: Part) -> None:
        """Say it, and set the time of the restart: 1, 2, 4 … seconds from now."""
        if not part.restarts:
            return
        self._end_strays()
        if time.monotonic() - part.started_at > STEADY_S:
            part.failures = 0
        part.failures += 1
        ending = how_it_ended(part.codes[-1])
        if part.failures > MOST_RESTARTS:
            raise CannotStart(f"{part.name} {ending}, {part.failures} times in a row; giving up.")
        delay = 2 ** (part.failures - 1)
        part.restart_at = time.monotonic() + delay
        self.say(f"{part.name} {ending}; starting it again in {delay} s.")

    def _end_strays(self) -> None:
        """End what a killed part left behind, such as a second beat beside the next worker's.
        Supervisors have a session of their own, and stay."""
        parts = {part.pid for part in self.parts}
        for pid in children(os.getpid()) - parts:
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == os.getsid(0):
                    send(pid, signal.SIGTERM)

    def _next_restart(self) -> float:
        """Seconds until a part is due to be started again."""
        due = [part.restart_at for part in self.parts if part.restart_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else 3600.0

    def _restart_due(self) -> None:
        for part in self.parts:
            if part.restart_at is not None and time.monotonic() >= part.restart_at:
                self.start(part)

    def wait_for(self, ready: Callable[[], bool], seconds: float, problem: str) -> None:
        """Pump until `ready`; raises CannotStart with `problem` after `seconds`."""
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                raise CannotStart(problem)
            looked = time.monotonic()
            while (rest := looked + LOOK_S - time.monotonic()) > 0:
                self.pump(rest)

    def finish(self, part: Part, seconds: float = 1e9) -> int:
        """Pump until `part` has ended; its exit code."""
        self.wait_for(lambda: not part.alive, seconds, f"{part.name} took too long.")
        return part.codes[-1]

    def stop(self) -> None:
        """End everything in the reverse order of its start, then what detached itself."""
        self.stopping = True
        for part in reversed(self.parts):
            if part.pid:
                send(part.pid, signal.SIGTERM)
                self._wait_gone(lambda part=part: not part.alive, STOP_S)  # type: ignore[misc]
            if part.pid:
                self.say(f"{part.name} did not end within {STOP_S:.0f} s; killing it.")
                send(part.pid, signal.SIGKILL)
                self._wait_gone(lambda part=part: not part.alive, STOP_S)  # type: ignore[misc]
        self._stop_orphans()

    def _wait_gone(self, gone: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not gone() and time.monotonic() < deadline:
            self.pump(0.1)

    def _stop_orphans(self) -> None:
        """Supervisors of running work outlive their agent by design; here they end with it.

        From the top down, so that a supervisor is gone before it could take the end of its work
        for the work's own failure: the next start finds a supervisor that died, and tries again.
        """
        told: set[int] = set()
        deadline = time.monotonic() + ORPHAN_STOP_S
        while (left := children(os.getpid())) and time.monotonic() < deadline:
            if not told:
                self.say("ending work that was still running; the next start tries it again")
            for pid in left - told:
                send(pid, signal.SIGTERM)
            told |= left
            self.pump(0.05)
        self.kill_all()
        self._wait_gone(lambda: not descendants(os.getpid()), ORPHAN_STOP_S)

    def kill_all(self) -> None:
        for pid in descendants(os.getpid()):
            send(pid, signal.SIGKILL)

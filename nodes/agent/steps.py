"""The life of a lease on this node: one step forward wherever one can be made.

Called by the main loop whenever something may have changed; everything slow runs in threads.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from nodes.agent import VERSION, disk, journal, release, sandbox
from nodes.agent.client import Portal, Refused, Stopped
from nodes.agent.clock import boot_id, boottime_ms
from nodes.agent.deliver import Courier
from nodes.agent.fetch import Fetcher, NodeFault
from nodes.agent.gpus import ROOT, Gpus
from nodes.agent.journal import Lease

LAUNCH_SECONDS = 30
AWAY_SECONDS = 5.0  # a portal or store that is silent for so long: the output is sealed at once
RELEASE_SECONDS = 30.0


class Steps:
    """Moves leases through their phases. `wake` makes the main loop look again."""

    def __init__(
        self, portal: Portal, fetcher: Fetcher, gpus: Gpus, bwrap: str, wake: Callable[[], None]
    ) -> None:
        self.portal, self.fetcher, self.gpus, self.bwrap = portal, fetcher, gpus, bwrap
        self.wake = wake
        self._going: dict[tuple[str, str], Future[Any]] = {}
        self._spawned: dict[str, float] = {}
        self._tried: dict[str, float] = {}  # when a start was first tried
        self.logs_away_since: float | None = None  # of time.monotonic()

    def look(self, lease: Lease) -> None:
        """Make the next step of a lease, if it can be made now."""
        if lease.dropped:
            return
        step = getattr(self, "_" + lease.record.phase, None)
        if step:
            step(lease)

    # -- work in threads

    def run(self, lease: Lease, what: str, action: Callable[[], Any]) -> Future[Any] | None:
        """The ended future of this errand, or None while it goes on; starts it the first time."""
        key = (lease.code, what)
        if key not in self._going:
            self._going[key] = self._thread(f"{what}-{lease.code}", action)
        future = self._going[key]
        return future if future.done() else None

    def _thread(self, name: str, action: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def body() -> None:
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)
            finally:
                self.wake()

        threading.Thread(target=body, name=name, daemon=True).start()
        return future

    def again(self, lease: Lease, what: str) -> None:
        self._going.pop((lease.code, what), None)

    def forget(self, lease: Lease) -> None:
        for key in [key for key in self._going if key[0] == lease.code]:
            del self._going[key]

    # -- before the grant

    def _fetching(self, lease: Lease) -> None:
        if lease.record.fault:
            return
        done = self.run(lease, "fetch", lambda: self.fetcher.fetch(lease))
        if done and not self._failed(lease, done, "fetch_failed"):
            lease.move(journal.READY)

    def _failed(self, lease: Lease, done: Future[Any], code: str) -> bool:
        """Handle the end of an errand that did not do what it should."""
        error = done.exception()
        if error is None or isinstance(error, Stopped):
            return error is not None
        if isinstance(error, Refused) and error.code == "stale_lease":
            self.drop(lease)
        elif isinstance(error, NodeFault):
            lease.change(fault=error.fault)
        else:
            detail = f"{type(error).__name__}: {error}"[:500]
            lease.change(fault={"code": code, "detail": detail})
        return True

    # -- at work

    def start(self, lease: Lease, gpus: list[str]) -> None:
        """The acknowledgement: from here on the meter runs."""
        lease.move(journal.ALLOCATED, gpus=gpus)
        self._spawn(lease)

    def _spawn(self, lease: Lease) -> None:
        """Start the supervisor; what the machine refuses is tried again for LAUNCH_SECONDS."""
        first = self._tried.setdefault(lease.code, time.monotonic())
        try:
            code = self._start_supervisor(lease)
        except OSError as error:
            if time.monotonic() > first + LAUNCH_SECONDS:
                self.fault(lease, "launch_failed", f"{type(error).__name__}: {error}")
            return
        self._spawned[lease.code] = time.monotonic()
        if code:
            self._stillborn(lease)

    def _start_supervisor(self, lease: Lease) -> int:
        """It belongs to nobody, and a second one ends by itself. The exit code of its start."""
        plan = {"bwrap": self.bwrap, "gpus": self.gpus.chosen(lease.record.gpus)}
        disk.write_json(lease.folder / "run.json", plan)
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "E31_AGENT": VERSION}
        environment |= sandbox.library_path()
        with (lease.folder / "supervisor.err").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "nodes.agent.supervisor", str(lease.folder)],
                cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                start_new_session=True,
            ).wait()  # fmt: skip

    def _allocated(self, lease: Lease) -> None:
        self._running(lease)

    def _running(self, lease: Lease) -> None:
        alive = lease.supervised()  # asked first: what it wrote last is read after its death
        status = lease.status()
        if status is None:
            self._unborn(lease, alive)
            return
        started = status["times"].get("running")
        if started and lease.record.phase == journal.ALLOCATED:
            lease.move(journal.RUNNING, started)
        if status["phase"] == "ended":
            self._ended(lease, status)
        elif not alive:
            self.fault(lease, "supervisor_died", "The process that watched the work is gone.")

    def _unborn(self, lease: Lease, alive: bool) -> None:
        if alive:
            return
        if lease.code not in self._spawned:
            self._spawn(lease)
        elif time.monotonic() > self._spawned[lease.code] + LAUNCH_SECONDS:
            self._stillborn(lease)

    def _stillborn(self, lease: Lease) -> None:
        text = (lease.folder / "supervisor.err").read_text(errors="replace")
        self.fault(lease, "launch_failed", text.strip()[-500:] or "no word of it")

    def _ended(self, lease: Lease, status: dict[str, Any]) -> None:
        end, at = status["exit"], status["times"]["ended"]
        broken = self.gpus.fault_of(lease.record.gpus) if end and end["code"] != 0 else ""
        if status["fault"]:
            self.fault(lease, status["fault"]["code"], status["fault"]["detail"])
        elif broken:
            self.fault(lease, "gpu_fault", broken)
        elif lease.record.discard or end["reason"] == "cancelled":
            lease.move(journal.RETURNING, at, exit=end, output="discarded")
        else:
            output = lease.folder / "output"
            if output.exists() and not lease.outbox.exists():
                output.rename(lease.outbox)
            lease.move(journal.RETURNING, at, exit=end, output="pending")

    def fault(self, lease: Lease, code: str, detail: str) -> None:
        """A fault of the node ends the lease here; its output is worth nothing."""
        fault = {"code": code, "detail": detail[:500]}
        lease.move(journal.RELEASING, fault=fault, output="discarded")

    # -- output

    def _returning(self, lease: Lease) -> None:
        if lease.record.output in journal.OPEN_OUTPUT:
            self.deliver(lease)
        record = lease.record
        if record.output in journal.SETTLED and self._log_is_sent(lease):
            lease.move(journal.RELEASING)
        elif self._window_is_over(lease):
            self.seal(lease)

    def deliver(self, lease: Lease) -> None:
        done = self.run(lease, "deliver", Courier(self.portal, lease).run)
        if done is None:
            if lease.record.output == "pending":
                lease.change(output="delivering")
        elif error := done.exception():
            self._undelivered(lease, error)
        else:
            lease.change(output=done.result())

    def _undelivered(self, lease: Lease, error: BaseException) -> None:
        if isinstance(error, Stopped):
            return
        if isinstance(error, Refused) and error.code == "stale_lease":
            self.drop(lease)
            return
        detail = f"{type(error).__name__}: {error}"[:500]
        problem = {"code": "output_refused", "detail": detail}
        lease.change(output="refused", output_problem=problem)

    def _log_is_sent(self, lease: Lease) -> bool:
        sent = lease.log_closed or lease.record.log_sent >= lease.log_size()
        return sent or _for_long(self.logs_away_since) or self._window_is_over(lease)

    def _window_is_over(self, lease: Lease) -> bool:
        """The output window has passed, its begin is not known, or nobody takes the output."""
        if _for_long(lease.errand.away_since):
            return True
        since = lease.record.times.get(journal.RETURNING)
        window = 1000 * int(lease.record.spec["limits"]["output_window_seconds"])
        return since is None or boottime_ms() >= since + window

    def seal(self, lease: Lease) -> None:
        """Keep what has not arrived on this disk, and release the compute."""
        if lease.record.output in journal.OPEN_OUTPUT:
            lease.move(journal.RELEASING, output="sealed")
        else:
            lease.move(journal.RELEASING)

    # -- release

    def _releasing(self, lease: Lease) -> None:
        done = self.run(lease, "release", lambda: self._release(lease))
        if done is None:
            return
        if error := done.exception():
            found = {"processes": "not checked", "gpus": {}, "scratch": "left", "output": "none"}
            detail = f"{type(error).__name__}: {error}"[:500]
            lease.released({**found, "detail": detail})
        else:
            lease.released(done.result())

    def _release(self, lease: Lease) -> dict[str, Any]:
        """Look for evidence until there is nothing left, or for RELEASE_SECONDS."""
        if lease.record.output == "sealed" and lease.outbox.exists():
            disk.sync(lease.outbox)
        until = time.monotonic() + RELEASE_SECONDS
        pids = self._pids(lease)
        while True:
            evidence = release.gather(lease, lambda one: self.gpus.evidence(one, pids))
            clean = evidence["processes"] == "none" and evidence["scratch"] == "wiped"
            if clean or time.monotonic() > until:
                return evidence
            release.end_by_force(lease)
            time.sleep(0.2)

    def _pids(self, lease: Lease) -> set[int]:
        status = lease.status() or {}
        return {status.get("pid", 0), *(status.get("init") or [])[:1]} - {0}

    def _released(self, lease: Lease) -> None:
        if lease.record.output in journal.OPEN_OUTPUT:
            self.deliver(lease)
            if lease.record.output == "delivered":
                disk.remove_tree(lease.outbox)

    # -- ends that the portal wants

    def cancel(self, lease: Lease) -> None:
        """End the work, discard its output, keep its log."""
        phase = lease.record.phase
        if phase in (journal.FETCHING, journal.READY):
            lease.errand.stopped.set()
            lease.move(journal.RELEASING)
        elif phase in journal.AT_WORK:
            if not lease.record.discard:
                lease.change(discard=True)
            self.ask_to_stop(lease, "cancelled")
        elif phase == journal.RETURNING and lease.record.output in journal.OPEN_OUTPUT:
            lease.errand.stopped.set()
            lease.move(journal.RELEASING, output="discarded")

    def ask_to_stop(self, lease: Lease, reason: str) -> None:
        if not (lease.folder / "stop").exists():
            disk.write_json(lease.folder / "stop", {"reason": reason})

    def drop(self, lease: Lease) -> None:
        """Fenced: kill, wipe, and say nothing more."""
        if not lease.dropped:
            lease.dropped = True
            lease.errand.stopped.set()
            self._thread(f"drop-{lease.code}", lambda: self._remove(lease))

    def _remove(self, lease: Lease) -> None:
        while release.processes(lease) == "left":
            self.ask_to_stop(lease, "dropped")
            release.end_by_force(lease)
            time.sleep(0.1)
        while not lease.forget():
            time.sleep(1)

    def adopt(self, lease: Lease) -> None:
        """A lease that an earlier agent has left. What ran before a start of the machine is gone,
        and so may be bytes that had not reached the disk."""
        record = lease.record
        if record.boot == boot_id():
            return
        lease.change(boot=boot_id(), times={})
        unsaved = record.phase == journal.RETURNING and record.output in journal.OPEN_OUTPUT
        if record.phase in journal.AT_WORK or unsaved:
            self.fault(lease, "node_rebooted", "The machine was started again during the work.")


def _for_long(away_since: float | None) -> bool:
    """Whether nobody has answered for so long that held compute waits no more."""
    return away_since is not None and time.monotonic() - away_since > AWAY_SECONDS

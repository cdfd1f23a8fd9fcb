"""The agent's main loop: report facts, take orders, reconcile. It never waits for the network."""

import contextlib
import logging
import os
import secrets
import select
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes.agent import PROTOCOL, VERSION, deliver, disk, facts, journal, sandbox
from nodes.agent.cache import Cache
from nodes.agent.client import Away, Backoff, Portal, Refused
from nodes.agent.clock import boot_id, boottime_ms
from nodes.agent.fetch import Fetcher
from nodes.agent.gpus import EVERY_SECONDS, Gpus, simulated
from nodes.agent.journal import Lease
from nodes.agent.steps import Steps

log = logging.getLogger("e31.agent")
TICK_SECONDS = 1.0
LOG_SECONDS = 0.7
UNKNOWN_SECONDS = 10.0  # between two tries with the log of a lease that the portal does not know
END_SECONDS = 60.0
OK, CANNOT, REVOKED, SECOND = 0, 1, 3, 4
FOLDERS = ("journal", "leases", "cache")


class Failure(Exception):
    """The agent cannot run; the text is the one sentence for the operator."""


@dataclass(frozen=True)
class Options:
    """The command line; see docs/agent.md."""

    portal: str
    state: Path
    token: str = ""
    simulate_gpus: int = 0
    isolation: str = "auto"
    name: str = ""
    disk_bytes: int = 0
    end_work_on_exit: bool = False


class Agent:
    """One agent process for one node. `run` returns the exit code."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.state = options.state.absolute()
        self._open_state()
        self.bwrap, self.isolation_reason = _isolation(options.isolation)
        self.portal = Portal(options.portal)
        self.leases: dict[str, Lease] = {}
        self.instance = secrets.token_hex(16)
        self._sequence = 0
        self.exit_code: int | None = None
        self._reported: Any = None
        self._poll: Future[Any] | None = None
        self._logs: Future[Any] | None = None
        self._next_poll = self._next_logs = self._next_facts = 0.0
        self._backoff, self._log_backoff = Backoff(), Backoff()
        self._threads = {
            name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("poll", "log", "look")
        }

    def _open_state(self) -> None:
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state = self.state.resolve()
        if sentence := sandbox.forbids(self.state):
            raise Failure(sentence)
        try:
            disk.lock(self.state / "agent.lock")
        except disk.Busy as error:
            raise Failure(f"Another agent uses the state folder {self.state}.") from error
        for name in FOLDERS:
            (self.state / name).mkdir(mode=0o700, exist_ok=True)
        wake = self.state / "wake"
        if not wake.exists():
            os.mkfifo(wake, 0o600)
        self._wake = os.open(wake, os.O_RDWR | os.O_NONBLOCK)

    # -- life

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        self._enrol()
        self._furnish()
        self._adopt_all()
        log.info("The agent runs: node %s, isolation %s.", self.node_name, self.isolation)
        if not self.bwrap:
            log.warning("Work is not kept apart from this machine: %s", self.isolation_reason)
        while self.exit_code is None:
            self.turn()
            self._sleep()
        if self.exit_code == REVOKED or (self.exit_code == OK and self.options.end_work_on_exit):
            self._end_work()
        return self.exit_code

    @property
    def isolation(self) -> str:
        return "bwrap" if self.bwrap else "process"

    def _on_signal(self, *_: Any) -> None:
        self.exit_code = OK
        self.wake()

    def wake(self) -> None:
        """Make the main loop turn at once; from any thread and from signal handlers."""
        with contextlib.suppress(BlockingIOError):  # many wakes wait already
            os.write(self._wake, b".")

    def turn(self) -> None:
        """One turn: what has ended, the next step of every lease, the next poll."""
        self._take_poll()
        for lease in list(self.leases.values()):
            if lease.dropped and not lease.path.exists():
                self.steps.forget(lease)
                del self.leases[lease.code]
            else:
                self._step(lease)
        self._ship_logs()
        self._look_at_machine()
        if self._poll is None and (self._due() or self._changed()):
            self._start_poll()

    def _step(self, lease: Lease) -> None:
        """One lease whose folder cannot be written (a full disk) stops no other."""
        try:
            self.steps.look(lease)
        except OSError as error:
            log.error("Lease %s cannot go on now: %s", lease.code, error)

    def _sleep(self) -> None:
        due = min(self._next_poll, self._next_logs if self._sendable() else self._next_poll)
        seconds = max(0.0, min(TICK_SECONDS, due - time.monotonic()))
        if self._poll is not None:
            seconds = TICK_SECONDS
        if select.select([self._wake], [], [], seconds)[0]:
            os.read(self._wake, 65536)

    # -- start

    def _enrol(self) -> None:
        path = self.state / "credential"
        known = disk.read_json(path)
        if known is None:
            known = self._first_contact()
            disk.write_json(path, known)
        self.portal.credential = known["credential"]
        self.node_name = str(self.options.name or known["name"])

    def _first_contact(self) -> dict[str, Any]:
        if not self.options.token:
            raise Failure(
                "This node is not enrolled: give the one-time token by --token or E31_ENROL_TOKEN."
            )
        body = {"token": self.options.token, "protocol": PROTOCOL, "agent_version": VERSION}
        body["hostname"] = facts.machine()["hostname"]
        while self.exit_code is None:
            try:
                return self.portal.call("POST", "enrol", body)
            except Away as error:
                log.warning("The portal cannot be reached: %s", error)
            except Refused as error:
                raise Failure(f"The portal refused the enrolment: {error}") from error
            pause = self._backoff.next()
            select.select([self._wake], [], [], pause)
        raise Failure("Ended before the enrolment.")

    def _furnish(self) -> None:
        """Make the parts that need the node's name."""
        made_up = simulated(self.node_name, self.options.simulate_gpus)
        self.gpus = Gpus(made_up)
        self.cache = Cache(self.state / "cache")
        self.room = facts.Room(self.state, self.cache, self.options.disk_bytes)
        fetcher = Fetcher(self.portal, self.cache, self._reserve, links=bool(self.bwrap))
        self.steps = Steps(self.portal, fetcher, self.gpus, self.bwrap, self.wake)
        self.machine = facts.machine()

    def _reserve(self, lease: Lease) -> None:
        self.room.measure()
        self.room.reserve(lease, list(self.leases.values()))

    def _adopt_all(self) -> None:
        for path in sorted((self.state / "journal").glob("*.json")):
            lease = Lease.load(self.state, path)
            self.leases[lease.code] = lease
            self.steps.adopt(lease)
        for folder in (self.state / "leases").iterdir():
            if folder.name not in self.leases:
                disk.remove_tree(folder)  # its journal is gone: nobody will ask for it

    # -- polls

    def _due(self) -> bool:
        return time.monotonic() >= self._next_poll

    def _changed(self) -> bool:
        """Something that the portal should know at once; not while it is away."""
        return self._backoff.tries == 0 and self._signature() != self._reported

    def _signature(self) -> Any:
        rows = [(one.record, one.output_waits()) for one in self.leases.values()]
        return [
            (r.lease, r.token, r.phase, r.exit, r.fault, r.output, r.output_problem, r.evidence, w)
            for r, w in rows
        ]

    def _start_poll(self) -> None:
        signature, body = self._signature(), self._body()
        self._reported = signature
        self._poll = self._submit("poll", lambda: self.portal.call("POST", "poll", body))

    def _submit(self, thread: str, action: Callable[[], Any]) -> Future[Any]:
        future = self._threads[thread].submit(action)
        future.add_done_callback(lambda _: self.wake())
        return future

    def _body(self) -> dict[str, Any]:
        now = boottime_ms()
        # A dropped lease is listed until it is gone: what is not listed has no process here.
        reports = [one.report(now) for one in self.leases.values()]
        self._sequence += 1
        process = {"instance": self.instance, "sequence": self._sequence, "boot": boot_id()}
        about = {"protocol": PROTOCOL, "agent_version": VERSION, **process}
        return {**about, "facts": self._facts(), "leases": reports}

    def _facts(self) -> dict[str, Any]:
        supervisors = {(one.status() or {}).get("pid", 0) for one in self._at_work()} - {0}
        gpus, reason = self.gpus.facts(supervisors)
        return {
            **self.machine,
            "disk_bytes": self.room.total,
            "disk_free_bytes": self.room.free(),
            "isolation": self.isolation,
            "isolation_reason": self.isolation_reason,
            "simulated": bool(self.options.simulate_gpus),
            "gpus": gpus,
            "gpu_reason": "" if gpus else reason,
        }

    def _at_work(self) -> list[Lease]:
        return [one for one in self.leases.values() if one.record.phase in journal.AT_WORK]

    def _take_poll(self) -> None:
        """The answer of the poll that was under way, if it is there."""
        if self._poll is None or not self._poll.done():
            return
        poll, self._poll = self._poll, None
        try:
            answer = poll.result()
            orders = list(answer["leases"])
            pause = int(answer["next_poll_ms"]) / 1000
            self._backoff.reset()
            self._obey_all(orders)
        except Away as error:
            pause = self._away(str(error))
        except Refused as error:
            pause = self._refused(error)
        except (KeyError, TypeError, ValueError) as error:
            pause = self._away(f"its answer cannot be read ({type(error).__name__}: {error})")
        self._next_poll = time.monotonic() + pause

    def _away(self, why: str) -> float:
        if self._backoff.tries == 0:
            log.warning("The portal is away, work goes on: %s", why)
        return self._backoff.next()

    def _refused(self, error: Refused) -> float:
        if error.code == "revoked":
            self.exit_code = REVOKED
        elif error.code == "second_agent":
            self.exit_code = SECOND
        elif error.code == "stale_poll":
            return 0.0  # the one before was applied, its answer got lost: the next tells all again
        log.error("The portal refused the poll: %s", error)
        return self._backoff.next()

    # -- orders

    def _obey_all(self, orders: list[dict[str, Any]]) -> None:
        """One order that cannot be read or carried out stops no other."""
        for order in orders:
            try:
                self._obey(order)
            except (KeyError, TypeError, ValueError, OSError) as error:
                log.error("Not carried out: %.300r (%s)", order, error)

    def _obey(self, order: dict[str, Any]) -> None:
        code, token, wanted = str(order["lease"]), str(order["token"]), order["wanted"]
        lease = self.leases.get(code)
        if lease is None:
            if wanted == "fetch":
                self.leases[code] = Lease.begin(self.state, code, token)
            return
        if lease.dropped or wanted == "keep":
            return
        if lease.record.token != token:
            if wanted in ("drop", "forget"):
                return  # about another token than the one that is here
            lease.change(token=token)
        self._carry_out(lease, wanted, order)

    def _carry_out(self, lease: Lease, wanted: str, order: dict[str, Any]) -> None:
        phase = lease.record.phase
        if wanted == "run" and phase == journal.READY:
            self.steps.start(lease, [str(gpu) for gpu in order.get("gpus") or []])
        elif wanted == "stop":
            self.steps.cancel(lease)
        elif wanted == "release" and phase == journal.RETURNING:
            self.steps.seal(lease)
        elif wanted == "drop" or (wanted == "forget" and self._may_forget(lease)):
            self.steps.drop(lease)

    def _may_forget(self, lease: Lease) -> bool:
        """Not before the log has arrived, unless the portal takes none of it."""
        return lease.record.phase != journal.RELEASED or lease not in self._unsent()

    # -- logs and facts

    def _unsent(self) -> list[Lease]:
        return [one for one in self.leases.values() if not one.dropped and _has_log(one)]

    def _sendable(self) -> list[Lease]:
        now = time.monotonic()
        return [one for one in self._unsent() if one.log_after <= now]

    def _ship_logs(self) -> None:
        if self._logs is not None and self._logs.done():
            self._finish_logs()
        unsent = self._sendable()
        due = time.monotonic() >= self._next_logs
        # What holds compute does not wait for the next turn of the logs.
        held = self._log_backoff.tries == 0 and any(
            one.record.phase == journal.RETURNING for one in unsent
        )
        if self._logs is None and unsent and (due or held):
            self._logs = self._submit("log", lambda: self._send_logs(unsent))

    def _finish_logs(self) -> None:
        logs, self._logs = self._logs, None
        error = logs.exception() if logs else None
        if error is None:
            self._log_backoff.reset()
            self.steps.logs_away_since = None
        elif isinstance(error, Away):
            self.steps.logs_away_since = self.steps.logs_away_since or time.monotonic()
        else:
            log.warning("A log could not be sent: %s", error)
        pause = LOG_SECONDS if error is None else self._log_backoff.next()
        self._next_logs = time.monotonic() + pause

    def _send_logs(self, leases: list[Lease]) -> None:
        for lease in leases:
            try:
                deliver.send_log(self.portal, lease)
            except Refused as error:
                if error.code == "stale_lease":
                    self.steps.drop(lease)
                elif error.code == "unknown_lease":  # an operator may give it back
                    lease.log_after = time.monotonic() + UNKNOWN_SECONDS
                elif error.code not in ("unknown_credential", "revoked"):
                    lease.log_closed = True
                    log.warning("The log of %s was refused: %s", lease.code, error)

    def _look_at_machine(self) -> None:
        if time.monotonic() >= self._next_facts:
            self._next_facts = time.monotonic() + EVERY_SECONDS
            self._submit("look", self._look)

    def _look(self) -> None:
        self.gpus.refresh()
        self.room.measure()

    # -- the end

    def _end_work(self) -> None:
        """End all work and wait for it: the node is revoked, or the operator wants it so."""
        for lease in self._at_work():
            self.steps.ask_to_stop(lease, "node_stopped")
        until = time.monotonic() + END_SECONDS
        while time.monotonic() < until and any(one.supervised() for one in self._at_work()):
            select.select([self._wake], [], [], 0.1)
        if self.exit_code == REVOKED:
            for lease in self.leases.values():
                lease.errand.stopped.set()
                lease.forget()


def _has_log(lease: Lease) -> bool:
    return not lease.log_closed and lease.record.log_sent < lease.log_size()


def _isolation(wanted: str) -> tuple[str, str]:
    """(bwrap or "", why it is not used). Raises Failure where it is demanded and does not work."""
    if wanted == "process":
        return "", "The operator chose the runtime process."
    bwrap, reason = sandbox.probe()
    if wanted == "bwrap" and not bwrap:
        raise Failure(f"No sandbox works on this machine: {reason}")
    return bwrap, reason

"""What this node knows of each lease, on disk before it is acted upon.

One file per lease in `journal/`, apart from the lease's folder, which goes when the lease is
released: the journal stays until the portal has confirmed the end.
"""

import dataclasses
import re
import threading
from pathlib import Path
from typing import Any

from nodes.agent import disk
from nodes.agent.client import Errand
from nodes.agent.clock import boot_id, boottime_ms

FETCHING, READY, ALLOCATED, RUNNING = "fetching", "ready", "allocated", "running"
RETURNING, RELEASING, RELEASED = "returning", "releasing", "released"
HOLDING = (ALLOCATED, RUNNING, RETURNING, RELEASING)
AT_WORK = (ALLOCATED, RUNNING)
OPEN_OUTPUT = ("pending", "delivering", "sealed")
SETTLED = ("none", "delivered", "refused", "discarded")
SAFE_CODE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclasses.dataclass
class Record:
    """The lines of one lease's journal. Times are CLOCK_BOOTTIME milliseconds of `boot`."""

    lease: str
    token: str
    phase: str = FETCHING
    boot: str = ""
    times: dict[str, int] = dataclasses.field(default_factory=dict)
    gpus: list[str] = dataclasses.field(default_factory=list)
    spec: dict[str, Any] = dataclasses.field(default_factory=dict)  # no secrets: see PUBLIC
    fetched_files: int = 0
    fetched_bytes: int = 0
    moved_bytes: int = 0  # of those: what was not in the cache
    exit: dict[str, Any] | None = None
    fault: dict[str, str] | None = None
    output: str = "none"
    output_problem: dict[str, str] | None = None
    discard: bool = False  # cancelled: the output is not wanted
    evidence: dict[str, Any] | None = None
    log_sent: int = 0
    log_bytes: int | None = None  # how long the log is at the release, and stays


PUBLIC = (
    *("job", "team", "kind", "index", "count", "attempt"),
    *("limits", "gpus", "disk_bytes", "outputs", "files", "bytes"),
)
REPORTED = (
    *("lease", "token", "phase", "gpus", "fetched_files", "fetched_bytes", "exit", "fault"),
    *("moved_bytes", "output", "output_problem", "evidence", "log_bytes"),
)


class Lease:
    """A journal with its folder. `change()` is the one door for writes, from any thread."""

    def __init__(self, state: Path, record: Record) -> None:
        self.record = record
        self.path = state / "journal" / f"{record.lease}.json"
        self.folder = state / "leases" / record.lease
        self.errand = Errand()  # fetching or delivering
        self.dropped = False  # fenced: killed and wiped, reported no more
        self.log_closed = False  # the portal takes no more of the log
        self.log_after = 0.0  # of time.monotonic(): no more of the log is sent before
        self._lock = threading.RLock()

    @classmethod
    def begin(cls, state: Path, code: str, token: str) -> "Lease":
        """A lease that the portal has just placed here. Raises ValueError for a hostile code."""
        if not SAFE_CODE.fullmatch(code):
            raise ValueError(f"{code!r} is no lease code.")
        lease = cls(state, Record(lease=code, token=token, boot=boot_id()))
        lease.folder.mkdir(mode=0o700, exist_ok=True)
        lease.change()
        return lease

    @classmethod
    def load(cls, state: Path, path: Path) -> "Lease":
        return cls(state, Record(**disk.read_json(path)))

    @property
    def code(self) -> str:
        return self.record.lease

    @property
    def key(self) -> tuple[str, str]:
        """Code and token, which every request about the lease carries."""
        return self.record.lease, self.record.token

    @property
    def outbox(self) -> Path:
        return self.folder / "outbox"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def change(self, **values: Any) -> None:
        """Set values of the record and write it; nothing is reported before it is on disk."""
        with self._lock:
            self.record = dataclasses.replace(self.record, **values)
            disk.write_json(self.path, dataclasses.asdict(self.record))

    def note(self, **values: Any) -> None:
        """Set values that need not survive a restart, such as counts of what was fetched."""
        with self._lock:
            self.record = dataclasses.replace(self.record, **values)

    def move(self, phase: str, at: int | None = None, **values: Any) -> None:
        """Enter `phase` at `at` (now by default)."""
        times = {**self.record.times, phase: boottime_ms() if at is None else at}
        self.change(phase=phase, times=times, **values)

    def released(self, evidence: dict[str, Any]) -> None:
        """The last step. The log ends here: the portal accepts so much of it and no more."""
        with self._lock:
            self.move(RELEASED, evidence=evidence, log_bytes=self.log_size())

    def log_size(self) -> int:
        """Bytes of the log that the portal is to have."""
        size = self.log.stat().st_size if self.log.exists() else 0
        told = self.record.log_bytes
        return size if told is None else min(size, told)

    def say(self, lines: str) -> None:
        """Add lines of the agent's own to the log, unless it has ended."""
        with self._lock:
            if self.record.log_bytes is None:
                with self.log.open("ab") as log:
                    log.write(lines.encode())

    def status(self) -> dict[str, Any] | None:
        """What the supervisor wrote last, or None before it began."""
        status: dict[str, Any] | None = disk.read_json(self.folder / "status.json")
        return status

    def supervised(self) -> bool:
        """True while the supervisor of this lease is alive."""
        return disk.is_locked(self.folder / "supervisor.lock")

    def report(self, now: int) -> dict[str, Any]:
        """This lease in the poll: see docs/agent-protocol.md."""
        record = self.record
        steps = (READY, ALLOCATED, RUNNING, RETURNING, RELEASING, RELEASED)
        known = record.times if record.boot == boot_id() else {}
        ages = {step: max(0, now - known[step]) if step in known else None for step in steps}
        about = {name: record.spec.get(name) for name in ("job", "kind", "index")}
        about["output_waits"] = self.output_waits()
        return {**{name: getattr(record, name) for name in REPORTED}, **about, "ages": ages}

    def output_waits(self) -> str | None:
        """Why the portal did not take the output when it was sent last; None where it did."""
        return (self.errand.trouble or None) if self.record.output in OPEN_OUTPUT else None

    def forget(self) -> bool:
        """Remove the folder and then the journal; False when something could not be removed."""
        gone = disk.remove_tree(self.folder)
        if gone:
            self.path.unlink(missing_ok=True)
        return gone

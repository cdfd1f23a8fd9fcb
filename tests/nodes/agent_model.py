"""A model of an agent's state for tests of the portal's side: it polls for real, runs nothing.

Used where every order of events is tried; the real agent is tested in tests/agent and tests/launch.
"""

import time
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import F

from nodes import polls, results
from nodes.models import Lease, Node
from portal.base.clock import db_now

GIB = 2**30
NEXT = {
    "fetching": "ready",
    "allocated": "running",
    "running": "returning",
    "returning": "releasing",
    "releasing": "released",
}
STEPS = ("ready", "allocated", "running", "returning", "releasing", "released")
_passed_ms = 0


def node_ms() -> int:
    """The clock of every node here: it goes on with `time_passes`."""
    return time.monotonic_ns() // 1_000_000 + _passed_ms


def time_passes(length: timedelta) -> None:
    """For the nodes and for the portal: what is recorded of leases is longer ago."""
    global _passed_ms
    _passed_ms += length // timedelta(milliseconds=1)
    columns = ("placed_at", "granted_at", "last_report_at", *(f"{step}_at" for step in STEPS))
    Lease.objects.update(**{column: F(column) - length for column in columns})


def spec_of(code: str) -> dict:
    """What the lease's spec says of its piece."""
    shard = Lease.objects.select_related("shard__job").get(code=code).shard
    return {"job": shard.job.code, "kind": shard.kind, "index": shard.index}


@dataclass
class ModelLease:
    code: str
    token: str
    phase: str = "fetching"
    wanted: str = "fetch"
    gpus: list[str] = field(default_factory=list)
    exit: dict | None = None
    fault: dict | None = None
    output: str = "none"
    problem: dict | None = None
    waits: str | None = None  # why its output was not taken
    evidence: dict | None = None
    reached: set[str] = field(default_factory=set)
    about: dict = field(default_factory=dict)  # job, kind and index, of its spec

    def __post_init__(self) -> None:
        self.stamps = dict.fromkeys(self.reached, node_ms())

    def item(self, age: int | None = None) -> dict:
        """Of `age` milliseconds for every step, by default of its own."""
        now = node_ms()
        return {
            "lease": self.code,
            "token": self.token,
            "phase": self.phase,
            "ages": {step: now - at if age is None else age for step, at in self.stamps.items()},
            "exit": self.exit,
            "fault": self.fault,
            "output": self.output,
            "output_problem": self.problem,
            "output_waits": self.waits,
            "evidence": self.evidence,
            "gpus": self.gpus,
            **self.about,
        }

    def go(self, phase: str) -> None:
        self.phase = phase
        self.stamps[phase] = node_ms()


class ModelAgent:
    """Speaks for one node. `gpus` are reported as simulated."""

    def __init__(self, node: Node, gpus: int, instance: str = "a" * 16) -> None:
        self.node = node
        self.gpus = gpus
        self.instance = instance
        self.sequence = 0
        self.boot = f"boot-{node.name}"
        self.isolation = "bwrap"
        self.leases: dict[str, ModelLease] = {}
        self.lives: list[ModelLease] = []  # every lease that it ever had

    def body(self, age: int | None = None) -> dict:
        self.sequence += 1
        return {
            "protocol": 1,
            "agent_version": "test",
            "instance": self.instance,
            "sequence": self.sequence,
            "boot": self.boot,
            "facts": {
                "cpus": 8,
                "memory_bytes": 64 * GIB,
                "disk_bytes": 400 * GIB,
                "isolation": self.isolation,
                "gpus": [
                    {
                        "uuid": f"GPU-{self.node.name}-{i}",
                        "index": i,
                        "model": "Simulated GPU",
                        "memory_bytes": 24 * GIB,
                        "usable": True,
                        "simulated": True,
                    }
                    for i in range(self.gpus)
                ],
            },
            "leases": [lease.item(age) for lease in self.leases.values()],
        }

    def poll(self, body: dict | None = None, heed: bool = True) -> dict:
        """Send a poll; `heed=False` is an answer that never arrived."""
        self.node.refresh_from_db()
        answer = polls.take_poll(node=self.node, body=body or self.body())
        if heed:
            self.heed(answer)
        return answer

    def heed(self, answer: dict) -> None:
        for item in answer["leases"]:
            code, wanted = item["lease"], item["wanted"]
            lease = self.leases.get(code)
            if wanted in ("drop", "forget"):
                self.leases.pop(code, None)
            elif lease is None:
                if wanted in ("fetch", "run"):
                    self.leases[code] = ModelLease(code, item["token"], about=spec_of(code))
                    self.lives.append(self.leases[code])
            elif lease.token == item["token"]:
                lease.wanted = wanted
                self._obey(lease, item)

    def _obey(self, lease: ModelLease, item: dict) -> None:
        if lease.wanted == "run" and lease.phase == "ready":
            lease.gpus = item["gpus"]
            lease.go("allocated")
        elif lease.wanted == "stop" and lease.phase in ("allocated", "running", "returning"):
            lease.exit = lease.exit or {"code": None, "signal": 15, "reason": "cancelled"}
            lease.output = "discarded"
            lease.go("releasing")
        elif lease.wanted == "stop" and lease.phase == "ready":
            lease.phase = "released"
            lease.evidence = self.evidence(lease)
        elif lease.wanted == "release" and lease.phase == "returning":
            lease.output = "sealed"
            lease.go("releasing")

    def evidence(self, lease: ModelLease, processes: str = "none") -> dict:
        return {
            "processes": processes,
            "gpus": dict.fromkeys(lease.gpus, "simulated"),
            "scratch": "wiped",
            "output": lease.output if lease.output != "pending" else "none",
        }

    def advance(self, lease: ModelLease, *, exit_code: int = 0) -> None:
        """One step of the node's own: what happens there without the portal."""
        if lease.phase not in NEXT:
            return
        following = NEXT[lease.phase]
        if following == "returning":
            lease.exit = lease.exit or {"code": exit_code, "signal": None, "reason": "exited"}
            lease.output = "pending"
        if following == "releasing" and lease.output == "pending":
            self.deliver(lease)
        if following == "released":
            lease.evidence = self.evidence(lease)
        lease.go(following)

    def deliver(self, lease: ModelLease) -> None:
        """The output arrives and is verified; here it is empty."""
        row = Lease.objects.get(code=lease.code)
        results.accept_output(lease=row, files=0, byte_count=0, at=db_now())
        lease.output = "delivered"

    def fail(self, lease: ModelLease, code: str = "supervisor_died") -> None:
        """A fault of the node ends the lease there."""
        if lease.phase in ("fetching", "ready"):
            lease.fault = {"code": "fetch_failed", "detail": "test"}
        elif lease.phase in ("allocated", "running"):
            lease.fault = {"code": code, "detail": "test"}
            lease.output = "discarded"
            lease.go("releasing")

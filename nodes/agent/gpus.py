"""The GPUs of this node, looked at by a child with a deadline, so that heartbeats never wait."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodes.agent import proctree
from nodes.agent.journal import Lease

DEADLINE_SECONDS = 20.0
EVERY_SECONDS = 20.0
BUSY_SECONDS = 15.0
SILENT = "not answering"
ROOT = Path(__file__).resolve().parents[2]


def simulated(node: str, count: int, memory_bytes: int = 80 * 10**9) -> list[dict[str, Any]]:
    """GPUs that do not exist, with names that stay the same, for demos and tests."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", node).strip("-") or "node"
    common = {"model": "Simulated GPU", "memory_bytes": memory_bytes, "simulated": True}
    common |= {"usable": True, "reason": "", "processes": [], "minor": None}
    return [{"uuid": f"GPU-SIM-{name}-{n}", "index": n, **common} for n in range(count)]


class Gpus:
    """The last look at the GPUs. `refresh` looks again; everything else only reads."""

    def __init__(self, made_up: list[dict[str, Any]], deadline: float = DEADLINE_SECONDS) -> None:
        self.made_up = made_up
        self.deadline = deadline
        self._known: list[dict[str, Any]] = []
        self._reason = "" if made_up else "The GPUs have not been looked at yet."
        self._looking = threading.Lock()

    def refresh(self) -> None:
        """Look through NVML; a child that does not answer in time is left to its driver."""
        if self.made_up:
            return
        with self._looking:
            seen = self._ask()
            if seen is None:
                self._reason = f"The NVIDIA driver is {SILENT}."
                self._known = [{**gpu, "usable": False, "reason": SILENT} for gpu in self._known]
            else:
                self._known, self._reason = seen["gpus"], seen["reason"]

    def _ask(self) -> dict[str, Any] | None:
        child = subprocess.Popen(
            [sys.executable, "-m", "nodes.agent.nvml"],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            out, _ = child.communicate(timeout=self.deadline)
        except subprocess.TimeoutExpired:
            child.kill()  # it may be stuck in the driver: nobody waits for it
            if child.stdout:
                child.stdout.close()
            return None
        try:
            seen: dict[str, Any] = json.loads(out)
        except ValueError:
            return {"gpus": [], "reason": f"The look at the GPUs ended with {child.returncode}."}
        return seen

    def facts(self, supervisors: set[int]) -> tuple[list[dict[str, Any]], str]:
        """(GPUs as the poll reports them, why there are none). Processes of leases, which descend
        from their supervisors, are left out: what remains is use outside of the portal."""
        if self.made_up:
            return [_reported(gpu, supervisors) for gpu in self.made_up], ""
        return [_reported(gpu, supervisors) for gpu in self._known], self._reason

    def chosen(self, uuids: list[str]) -> list[dict[str, Any]]:
        """The leased GPUs with what the sandbox needs to know of them."""
        known = {gpu["uuid"]: gpu for gpu in (*self.made_up, *self._known)}
        return [{"uuid": uuid, "minor": known.get(uuid, {}).get("minor")} for uuid in uuids]

    def fault_of(self, uuids: list[str]) -> str:
        """What is wrong with one of these GPUs, or ""."""
        for gpu in self._known:
            if gpu["uuid"] in uuids and not gpu["usable"] and gpu["reason"] != SILENT:
                return f"{gpu['uuid']}: {gpu['reason']}"
        return ""

    def evidence(
        self, lease: Lease, pids: set[int], wait: Callable[[float], None] = time.sleep
    ) -> dict[str, str]:
        """For each of the lease's GPUs: `clear`, `busy` with what the lease has left, ..."""
        uuids = lease.record.gpus
        if self.made_up or not uuids:
            return dict.fromkeys(uuids, "simulated")
        until = time.monotonic() + BUSY_SECONDS
        while True:
            self.refresh()
            found = {uuid: self._state(uuid, pids) for uuid in uuids}
            if "busy" not in found.values() or time.monotonic() > until:
                return found
            wait(1.0)

    def _state(self, uuid: str, pids: set[int]) -> str:
        for gpu in self._known:
            if gpu["uuid"] == uuid:
                if gpu["reason"]:
                    return "not checked"
                return "busy" if any(_left(one, pids) for one in gpu["processes"]) else "clear"
        return "not checked"


def _left(process: dict[str, Any], pids: set[int]) -> bool:
    """True for a process that descends from the lease's, or one that is gone and still holds the
    GPU. Somebody else's process is not the lease's affair."""
    gone = proctree.identity(process["pid"]) is None
    return gone or bool(pids & {process["pid"], *process["ancestors"]})


def _reported(gpu: dict[str, Any], supervisors: set[int]) -> dict[str, Any]:
    foreign = [
        {"pid": one["pid"], "user": one["user"], "since_ms": one["since_ms"]}
        for one in gpu["processes"]
        if not supervisors & set(one["ancestors"])
    ]
    kept = {name: value for name, value in gpu.items() if name != "minor"}
    return {**kept, "processes": foreign}

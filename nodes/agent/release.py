"""What proves that a lease holds nothing any more: no process, clear GPUs, wiped scratch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodes.agent import disk, proctree
from nodes.agent.cgroup import Group
from nodes.agent.journal import Lease
from nodes.agent.proctree import Identity

SCRATCH = ("data", "work", "scratch", "etc", "output", "spec.json", "run.json")
KEPT_OUTPUT = ("pending", "delivering", "sealed")


def processes(lease: Lease) -> str:
    """`none`, `left` or `not checked`: what is known of the lease's processes now."""
    status = lease.status()
    if status is None:  # nothing was started, or its supervisor is about to say so
        return "left" if lease.folder.exists() and lease.supervised() else "none"
    if lease.record.boot != status["boot"]:
        return "none"  # the machine was started again since
    if lease.supervised() or not _group(status).remove():
        return "left"
    if "init" in status:
        first = Identity(*status["init"])
        # The kernel ends a pid namespace with its first process, and that one as the last of it.
        return "left" if first.alive() else "none"
    return str(status["processes"])


def _group(status: dict[str, Any]) -> Group:
    return Group(Path(status["group"]) if status.get("group") else None)


def gather(lease: Lease, gpu_evidence: Callable[[Lease], dict[str, str]]) -> dict[str, Any]:
    """Remove the lease's files and look for what is left."""
    record = lease.record
    names = SCRATCH if record.output in KEPT_OUTPUT else (*SCRATCH, "outbox")
    wiped = [disk.remove_tree(lease.folder / name) for name in names]
    return {
        "processes": processes(lease),
        "gpus": gpu_evidence(lease),
        "scratch": "wiped" if all(wiped) else "left",
        "output": _output(record.output),
    }


def _output(output: str) -> str:
    if output in KEPT_OUTPUT:
        return "sealed"
    return {"refused": "discarded"}.get(output, output)


def end_by_force(lease: Lease) -> None:
    """Kill what a lease still runs, without its supervisor's help."""
    status = lease.status()
    if not status or status["boot"] != lease.record.boot:
        return
    for pid in {*proctree.marked(lease.code), *_group(status).pids()}:
        proctree.send(pid, 9)
    if "init" in status and (first := Identity(*status["init"])).alive():
        proctree.send(first.pid, 9)

"""What this node is and has: the facts of a poll."""

import os
import platform
import shutil
import socket
from pathlib import Path
from typing import Any

from nodes.agent import disk
from nodes.agent.cache import Cache
from nodes.agent.fetch import NodeFault
from nodes.agent.journal import RELEASED, Lease

FLOOR_BYTES = 512 * 1024 * 1024  # kept free for the machine itself


def machine() -> dict[str, Any]:
    """What does not change while the agent runs."""
    return {
        "hostname": socket.gethostname()[:200],
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "python": platform.python_version(),
    }


class Room:
    """The disk that leases may use. `most` is the operator's limit in bytes, 0 for none."""

    def __init__(self, state: Path, cache: Cache, most: int) -> None:
        self.state, self.cache, self.most = state, cache, most
        self.total = 0
        self.measure()

    def measure(self) -> None:
        """Free now plus what leases and the cache hold; walks the state folder."""
        total = self.free() - FLOOR_BYTES + disk.tree_bytes(self.state)
        self.total = max(0, min(total, self.most) if self.most else total)

    def free(self) -> int:
        """Free bytes on its disk, as an ordinary user sees them."""
        return shutil.disk_usage(self.state).free

    def reserve(self, lease: Lease, others: list[Lease]) -> None:
        """Raises NodeFault with numbers where the lease's disk is not to be had."""
        needed = int(lease.record.spec["disk_bytes"])
        promised = sum(_promised(other) for other in others if other is not lease)
        if promised + needed > self.total:
            raise _full(needed, max(0, self.total - promised))
        held = self.cache.bytes_held()[1]
        self.cache.free(promised + needed + held - self.total)
        short = needed - (self.free() - FLOOR_BYTES)
        # What this lease has fetched already is in both sums: evicting too much does no harm.
        if short > 0 and self.cache.free(short) < short:
            raise _full(needed, max(0, self.free() - FLOOR_BYTES))


def _promised(lease: Lease) -> int:
    if lease.record.phase == RELEASED:
        return disk.tree_bytes(lease.outbox) if lease.outbox.exists() else 0
    return int(lease.record.spec.get("disk_bytes", 0))


def _full(needed: int, left: int) -> NodeFault:
    sentence = f"The lease needs {needed:,} bytes of disk; this node has {left:,} left."
    return NodeFault("node_disk_full", sentence)

"""The node's own clock: CLOCK_BOOTTIME runs through suspend and nobody can set it."""

import time
from pathlib import Path


def boottime_ms() -> int:
    """Milliseconds since the machine was started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def boot_id() -> str:
    """Changes with every start of the machine; ages from another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_at() -> float:
    """When the machine was started, as a time of the files' clock (seconds)."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

"""Held time, derived from a lease's timestamps and never counted up.

Slices are whole milliseconds and add up: launch (allocated to running), run (to the end of the
work), output (to the start of the release), release (to the evidence).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from jobs.cap import most_gpu_ms
from jobs.models import Job
from nodes.models import Lease
from nodes.states import LeaseReason, LeaseState
from portal.base.clock import milliseconds

# The node's or the portal's fault, not the work's: held, and counted against nobody.
FAULTS = frozenset(
    {
        LeaseReason.LAUNCH_FAILED,
        LeaseReason.SUPERVISOR_DIED,
        LeaseReason.NOT_THERE,
        LeaseReason.NODE_REBOOTED,
        LeaseReason.GPU_FAULT,
        LeaseReason.SILENT,
        LeaseReason.NOT_ACKNOWLEDGED,
        LeaseReason.FETCH_FAILED,
        LeaseReason.NODE_DISK_FULL,
        LeaseReason.FENCED,
        LeaseReason.OUTPUT_LOST,
    }
)


@dataclass(frozen=True)
class Slices:
    """Milliseconds of one lease."""

    launch_ms: int = 0
    run_ms: int = 0
    output_ms: int = 0
    release_ms: int = 0

    @property
    def held_ms(self) -> int:
        return self.launch_ms + self.run_ms + self.output_ms + self.release_ms


@dataclass(frozen=True)
class JobMeter:
    """Sums over a job's leases; `cap_gpu_ms` is the most GPU time that can be counted."""

    held_ms: int
    gpu_ms: int
    counted_ms: int
    counted_gpu_ms: int
    cap_gpu_ms: int
    running: bool


def held_until(lease: Lease, at: datetime) -> datetime:
    """When the lease's hold ended, or `at` while it goes on."""
    if lease.released_at is not None:
        return lease.released_at
    if lease.state == LeaseState.LOST:
        return max(lease.allocated_at or at, lease.last_report_at or lease.allocated_at or at)
    return at


def slices(lease: Lease, at: datetime) -> Slices:
    """The lease's held time up to `at`; all zero before it was allocated."""
    if lease.allocated_at is None:
        return Slices()
    start = lease.allocated_at
    marks = [max(start, held_until(lease, at))]
    for step in (lease.releasing_at, lease.returning_at, lease.running_at):
        # A step that never came takes no time: the slice before it reaches to the next one.
        marks.append(max(start, min(step or marks[-1], marks[-1])))
    running, returning, releasing, end = reversed(marks)
    return Slices(
        milliseconds(running - start),
        milliseconds(returning - running),
        milliseconds(releasing - returning),
        milliseconds(end - releasing),
    )


def counted(lease: Lease, at: datetime) -> tuple[int, str]:
    """Milliseconds that the team's hours are charged with, and why the rest is not.

    Counting ends at the first of: released, end of the output window, last report of a lost
    lease, declared hours plus output window. A fault of the node counts nothing.
    """
    held = slices(lease, at).held_ms
    if lease.allocated_at is None:
        return 0, ""
    if lease.reason in FAULTS:
        return 0, lease.reason
    if held == 0:
        return 0, ""
    until = min(held_until(lease, at), lease.allocated_at + lease.time_limit + lease.output_window)
    if lease.returning_at is not None:
        until = min(until, lease.returning_at + lease.output_window)
    ms = min(held, milliseconds(until - lease.allocated_at))
    return ms, "" if ms == held else "past_the_window"


def declared_cap(job: Job) -> int:
    """The most GPU-milliseconds that can be counted for this job."""
    return most_gpu_ms(
        gpus=job.gpus,
        shards=job.shard_count,
        hours=job.time_limit,
        finish_gpus=job.finish_gpus if job.finish_command else 0,
        retries=job.work_retries,
    )


def job_meter(leases: Iterable[Lease], cap_gpu_ms: int, at: datetime) -> JobMeter:
    """The sums over a job's leases at `at`."""
    held = gpu = counted_ms = counted_gpu = 0
    running = False
    for lease in leases:
        length = slices(lease, at).held_ms
        charged, _ = counted(lease, at)
        held += length
        gpu += length * lease.gpu_count
        counted_ms += charged
        counted_gpu += charged * lease.gpu_count
        running |= lease.allocated_at is not None and lease.ended_at is None
    return JobMeter(held, gpu, counted_ms, counted_gpu, cap_gpu_ms, running)

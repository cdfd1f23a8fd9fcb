"""The typed report that an agent makes of one lease."""

from dataclasses import dataclass, field

from nodes.states import LeaseReason

PHASES = ["fetching", "ready", "allocated", "running", "returning", "releasing", "released"]
FAULTS = {
    "launch_failed": LeaseReason.LAUNCH_FAILED,
    "supervisor_died": LeaseReason.SUPERVISOR_DIED,
    "node_rebooted": LeaseReason.NODE_REBOOTED,
    "gpu_fault": LeaseReason.GPU_FAULT,
    "fetch_failed": LeaseReason.FETCH_FAILED,
    "node_disk_full": LeaseReason.NODE_DISK_FULL,
}


def reason_of(work_reason: str) -> LeaseReason:
    """Why a lease ended whose work ended so; nothing while it has not."""
    if not work_reason:
        return LeaseReason.NONE
    reasons = {"time_limit": LeaseReason.TIME_LIMIT, "cancelled": LeaseReason.CANCELLED}
    return reasons.get(work_reason, LeaseReason.EXITED)


@dataclass(frozen=True)
class Report:
    """What an agent says of one lease; ages are milliseconds since each step, or None."""

    phase: str
    ages: dict[str, int | None]
    fetched_files: int = 0
    fetched_bytes: int = 0
    exit_code: int | None = None
    exit_reason: str = ""
    fault: str = ""
    fault_detail: str = ""
    output: str = "none"
    output_problem: str = ""
    output_detail: str = ""
    evidence: dict = field(default_factory=dict)

    def reached(self, step: str) -> bool:
        """Whether this step came and its age is known; a reboot loses the ages."""
        return self.ages.get(step) is not None

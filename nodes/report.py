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
    moved_bytes: int = 0
    exit_code: int | None = None
    exit_reason: str = ""
    fault: str = ""
    fault_detail: str = ""
    output: str = "none"
    output_problem: str = ""
    output_detail: str = ""
    output_waits: str = ""  # why the portal did not take it when it was sent last
    evidence: dict = field(default_factory=dict)
    log_bytes: int | None = None  # how long the log is, with phase `released`

    @classmethod
    def of(cls, item: dict) -> "Report":
        """The typed report in one lease item of a poll."""
        ended = item.get("exit") or {}
        fault = item.get("fault") or {}
        problem = item.get("output_problem") or {}
        code = ended.get("code")
        if code is None and ended.get("signal"):
            code = 128 + ended["signal"]
        return cls(
            phase=item["phase"],
            ages=item.get("ages") or {},
            fetched_files=item.get("fetched_files", 0),
            fetched_bytes=item.get("fetched_bytes", 0),
            moved_bytes=item.get("moved_bytes", item.get("fetched_bytes", 0)),
            exit_code=code,
            exit_reason=ended.get("reason", ""),
            fault=fault.get("code", ""),
            fault_detail=fault.get("detail", "")[:500],
            output=item.get("output", "none"),
            output_problem=problem.get("code", ""),
            output_detail=problem.get("detail", ""),
            output_waits=item.get("output_waits") or "",
            evidence=item.get("evidence") or {},
            log_bytes=item.get("log_bytes"),
        )

    def reached(self, step: str) -> bool:
        """Whether this step came and its age is known; a reboot loses the ages."""
        return self.ages.get(step) is not None

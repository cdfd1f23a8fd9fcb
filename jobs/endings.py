"""How a job ended, as one sentence. Pure."""

from jobs.states import Reason


def ending(reason: str, *, exit_code: int | None = None, detail: str = "") -> str:
    """`exit_code` and `detail` are those of the piece where the job has only one."""
    if reason == Reason.EXIT_CODE and exit_code is not None:
        return f"The work ended with exit code {exit_code}."
    if reason == Reason.TOLD_TO_STOP and detail:
        return detail
    return Reason(reason).label if reason in Reason.values else ""

"""How a job ended, as one sentence. Pure."""

import signal

from jobs.states import Reason


def ending(reason: str, *, exit_code: int | None = None, detail: str = "") -> str:
    """`exit_code` and `detail` are those of the piece where the job has only one."""
    if reason == Reason.EXIT_CODE and exit_code is not None:
        return f"The work ended with exit code {exit_code}.{_by_signal(exit_code)}"
    if reason == Reason.TOLD_TO_STOP and detail:
        return detail
    return Reason(reason).label if reason in Reason.values else ""


def _by_signal(code: int) -> str:
    """What an exit code above 128 may mean: shells and sandboxes say 128 + n for signal n."""
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return ""
    return f" It gave that code itself, or signal {code - 128} ({name}) ended a program of it."

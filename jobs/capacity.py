"""Whether any node could ever run a request. The nodes app registers who knows."""

from collections.abc import Callable

from jobs.models import Job

_judges: list[Callable[[Job], str]] = []


def register(judge: Callable[[Job], str]) -> None:
    """`judge(job)` returns the sentence that names the limit, or an empty string."""
    if judge not in _judges:
        _judges.append(judge)


def capacity_problem(job: Job) -> str:
    return next((sentence for judge in _judges if (sentence := judge(job))), "")

"""Whether any node could ever run a request. The nodes app registers who knows."""

from collections.abc import Callable

from jobs.models import Job

_judges: list[Callable[[Job, int], str]] = []


def register(judge: Callable[[Job, int], str]) -> None:
    """`judge(job, input_bytes)` returns the sentence that names the limit, or an empty string.

    `input_bytes` are those that the largest shard reads, as far as they are known.
    """
    if judge not in _judges:
        _judges.append(judge)


def capacity_problem(job: Job, input_bytes: int) -> str:
    return next((sentence for judge in _judges if (sentence := judge(job, input_bytes))), "")

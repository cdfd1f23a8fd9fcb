"""Why jobs wait. The nodes app, which keeps the scheduler's sentences, registers who knows."""

from collections.abc import Callable

from jobs.models import Job

_readers: list[Callable[[list[Job]], dict[int, str]]] = []


def register(reader: Callable[[list[Job]], dict[int, str]]) -> None:
    """`reader(jobs)` returns the newest sentence by the job's primary key; absent: none yet."""
    if reader not in _readers:
        _readers.append(reader)


def wait_sentences(jobs: list[Job]) -> dict[int, str]:
    return _readers[0](jobs) if _readers and jobs else {}

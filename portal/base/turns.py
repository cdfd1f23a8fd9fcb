"""A pump's turn: when it is over, by its time or because its worker is to end.

On SIGTERM Celery waits for tasks that run, and tells them nothing. Rows are the queue, so a pump
may stop between any two steps; it looks here at each. The flag lies in memory that the worker
shares with the processes that it forks.
"""

import mmap
import time

_ending = mmap.mmap(-1, 1)


def ask_to_end() -> None:
    """In a worker's main process: every pump of the worker stops at its next step."""
    _ending[0] = 1


def go_on() -> None:
    _ending[0] = 0


def is_ending() -> bool:
    return _ending[0] != 0


def is_over(until: float) -> bool:
    """Whether a turn that lasts until a time.monotonic() value is over."""
    return is_ending() or time.monotonic() >= until

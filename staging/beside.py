"""One call at a time in another thread: a large piece is hashed while the next one arrives.

Receiving, writing and SHA-256 all let go of the interpreter's lock, so they run on two cores.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

LARGE = 2**20  # bytes; a piece beyond that is worth another thread
MOST = 4  # threads of a process; a further call waits for one of them


@cache
def _threads() -> ThreadPoolExecutor:
    """Made when first wanted: never before the server has forked its workers."""
    return ThreadPoolExecutor(MOST, thread_name_prefix="beside")


class Beside:
    """At most one call is under way. What it works on must not change before `settle` returns."""

    def __init__(self) -> None:
        self._call: Future[None] | None = None

    def run(self, call: Callable[..., None], *args: object) -> None:
        """Begin `call`, once the one before has ended. Raises what that one raised."""
        self.settle()
        self._call = _threads().submit(call, *args)

    def settle(self) -> None:
        """Wait for the call under way. Raises what it raised."""
        under_way, self._call = self._call, None
        if under_way is not None:
            under_way.result()

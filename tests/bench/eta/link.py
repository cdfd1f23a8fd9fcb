"""A relay in front of the store whose speed follows a plan: the link of the benchmark."""

import contextlib
import random
import threading
from collections.abc import Iterator

from tests.staging.sync.slow import Relay


class Link(Relay):
    """Passes bytes to a port of this machine, all answers together at `rate` bytes a second."""

    piece = 2**14  # small, so that a change of speed is felt at once
    # What lies in the kernel has left the link as far as the relay knows: little may lie there.
    buffer = 2**16

    def __init__(self, port: int, rate: float) -> None:
        super().__init__(port)
        self.rate = rate

    @contextlib.contextmanager
    def changing(self, rates: list[float], mean_s: float, seed: int) -> Iterator[None]:
        """Inside, the speed jumps between rates, at times that nobody can foresee."""
        ended = threading.Event()

        def change() -> None:
            chance = random.Random(seed)  # noqa: S311  the same link in each run
            while not ended.wait(chance.expovariate(1 / mean_s)):
                self.rate = chance.choice([rate for rate in rates if rate != self.rate])

        thread = threading.Thread(target=change, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

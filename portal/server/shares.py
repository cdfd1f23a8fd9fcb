"""How many connections each process has, for all of them to see.

A process that is awake anyway takes every new connection before one that sleeps has woken up, and
a client's few connections would all wait for one processor. So the one that has more gives way.
"""

import mmap
import struct
import time

PLACES = 64  # more processes than that are told apart no longer, which does no harm
COUNT = struct.Struct("i")
NOBODY = -1
GIVE_WAY_S = 0.001  # as long as another process may take to wake up


class Shares:
    """Made before the processes are forked, which then all see the same memory."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, PLACES * COUNT.size)
        for number in range(PLACES):
            self.put(number, NOBODY)

    def put(self, number: int, count: int) -> None:
        """The process with this number has that many; NOBODY once it has ended."""
        COUNT.pack_into(self.memory, number % PLACES * COUNT.size, count)

    def is_ahead(self, number: int, count: int) -> bool:
        """Whether another process has fewer than this one's `count`."""
        mine = number % PLACES
        return any(
            place != mine and NOBODY < other < count
            for place, (other,) in enumerate(COUNT.iter_unpack(self.memory))
        )

    def give_way(self, number: int, count: int) -> None:
        """Leave a new connection to a process that has fewer, for the moment it needs."""
        if self.is_ahead(number, count):
            time.sleep(GIVE_WAY_S)


shares = Shares()

"""Who gives way when a connection comes."""

import contextlib
import os
import select
from pathlib import Path

import pytest

from portal.server.shares import NOBODY, PLACES, Shares
from tests.staging.live import Answer, Server, head, serving, until


@pytest.mark.parametrize(
    ("counts", "mine", "ahead"),
    [
        ({}, 0, False),
        ({1: 5}, 5, False),  # alone, however many it has
        ({1: 3, 2: 3}, 3, False),
        ({1: 3, 2: 4}, 3, False),
        ({1: 3, 2: 2}, 3, True),
        ({1: 3, 2: NOBODY}, 3, False),  # it has ended
        ({1: 3, PLACES + 2: 0}, 3, True),
    ],
)
def test_the_one_with_more_connections_is_ahead(counts, mine, ahead):
    shares = Shares()
    for number, count in counts.items():
        shares.put(number, count)
    assert shares.is_ahead(1, mine) is ahead


def connections_of(pid: int) -> int:
    """TCP connections that a process holds and that both ends keep open."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = {f"socket:[{row[9]}]" for row in rows if row[3] == "01"}
    return sum(os.readlink(entry) in established for entry in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.stalls
@pytest.mark.skipif(not hasattr(select, "epoll"), reason="needs Linux: this server waits by epoll")
def test_connections_that_come_at_once_are_spread_over_the_processes(tmp_path):
    server = Server(tmp_path)
    with serving(server), contextlib.ExitStack() as stack:
        assert server.process is not None
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        until(lambda: len(children.read_text().split()) == 2, "two processes")
        workers = [int(pid) for pid in children.read_text().split()]
        until(lambda: not any(connections_of(pid) for pid in workers), "they are idle")
        open_ones = [stack.enter_context(server.connect()) for _ in range(40)]
        for sock in open_ones:
            sock.sendall(head("GET", "/healthz", {}))
        assert {Answer.read(sock).status for sock in open_ones} == {200}
        each = [connections_of(pid) for pid in workers]
        assert sum(each) == 40
        assert min(each) > 0

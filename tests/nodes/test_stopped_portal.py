"""M1, R6, R10 with a real agent: a portal that stands still, or starts anew, lengthens no slice.

The node's journal has the steps on the node's own clock; the ledger is compared with it.
"""

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from nodes.agent import disk
from nodes.agent.clock import boottime_ms
from tests.nodes.test_two_agents import JOB, LIMIT_S, Agents
from tests.staging.live import Server, serving, until

STEPS = ("allocated", "running", "returning", "releasing", "released")
STANDS_MS = 4000
SCRIPT = """
cut -d. -f1 /proc/uptime > "$E31_OUTPUT/begun"
sleep 6
cut -d. -f1 /proc/uptime > "$E31_OUTPUT/done"
"""

pytestmark = [pytest.mark.sandbox, pytest.mark.stalls, pytest.mark.xdist_group("demo")]


class Stopped:
    """A portal, one agent and one job; the portal can stand still while the agent goes on."""

    def __init__(self, agents: Agents) -> None:
        self.agents, self.server = agents, agents.server
        agents.agent("n1")
        until(lambda: agents.rows("SELECT 1 FROM nodes_gpu"), "the node is there", LIMIT_S)

    def journal(self) -> dict:
        """The one lease as its node has it; {} where there is none."""
        for path in (self.server.folder / "n1" / "journal").glob("*.json"):
            return disk.read_json(path) or {}
        return {}

    def reaches(self, phase: str) -> int:
        """Wait for a step on the node; when it came there, in milliseconds of its clock."""
        what = f"{phase} on the node"
        return int(until(lambda: self.journal().get("times", {}).get(phase), what, LIMIT_S))

    def stop(self) -> None:
        os.killpg(self.server.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self.server.process.pid, signal.SIGCONT)

    def stand_until(self, phase: str) -> None:
        """The step has come on the node, and the portal has heard nothing for long since."""
        end = max(self.reaches(phase), boottime_ms()) + STANDS_MS
        until(lambda: boottime_ms() > end, f"the portal stands still after {phase}", LIMIT_S)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Stopped]:
    server = Server(tmp_path)
    server.env |= {"AGENT_POLL_S": "1", "ALLOW_PROCESS_ISOLATION": "1", "OUTPUT_WINDOW_S": "1"}
    with serving(server):
        agents = Agents(server)
        try:
            yield Stopped(agents)
        finally:
            agents.end()


@pytest.mark.parametrize("restarts", [False, True], ids=["stands still", "is started anew"])
@pytest.mark.parametrize("late_begin", [False, True], ids=["in time", "late"])
def test_the_ledger_has_no_slice_that_is_longer_than_the_nodes(stopped, restarts, late_begin):
    stopped.server.shell(JOB.format(script=SCRIPT))
    if late_begin:
        stopped.reaches("ready")
        stopped.stop()
        stopped.stand_until("ready")
        stopped.go_on()
    running = "SELECT 1 FROM nodes_lease WHERE running_at IS NOT NULL"
    until(lambda: stopped.agents.rows(running), "the portal knows that it runs", LIMIT_S)
    if restarts:
        stopped.server.kill()
    else:
        stopped.stop()
    stopped.stand_until("released")
    node = stopped.journal()["times"]
    if restarts:
        stopped.server.start()
    else:
        stopped.go_on()
    columns = "launch_ms, run_ms, output_ms, release_ms FROM nodes_ledgerrow"
    (row,) = until(lambda: stopped.agents.rows(f"SELECT {columns}"), "the ledger", LIMIT_S)
    own = tuple(node[then] - node[first] for first, then in pairwise(STEPS))
    assert all(found <= length for found, length in zip(row, own, strict=True)), (row, own)
    assert row[1:] == own[1:]  # the portal knew the begin before it stood still
    assert row[1] >= 6000  # what the work itself took
    ended = "SELECT state, outcome FROM jobs_shard"
    until(lambda: stopped.agents.rows(ended) == [("ended", "succeeded")], "the end", LIMIT_S)

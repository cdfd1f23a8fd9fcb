"""R4 and R11 with real agents against a real server: a long silence, and a restored backup."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nodes.agent import disk
from tests.staging.live import Server, serving, until

ADOPT = """
from nodes import incidents
from nodes.models import Incident
incidents.adopt(incident=Incident.objects.get(), actor="operator", reason="it goes on")
"""
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120  # each agent and each command is a process that has to start
PASSES = """
import time
from nodes import scheduler, watch
while True:
    scheduler.run_pass(); watch.watch(); time.sleep(0.5)
"""
JOB = """
from tests.factories import make_job
from portal.teams.models import Team
make_job(Team.objects.create(name="Climate"), language="bash", script={script!r}, gpus=1,
         scratch_bytes=2**20, output_limit_bytes=2**20, memory_bytes=2**28)
"""

pytestmark = [pytest.mark.sandbox, pytest.mark.stalls, pytest.mark.xdist_group("demo")]


class Agents:
    """A portal with its passes, and agents that are ended with all that they run."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.processes: list[subprocess.Popen] = []
        self.pass_on()

    def pass_on(self) -> subprocess.Popen:
        """What the worker does all the time."""
        return self.start(sys.executable, "manage.py", "shell", "--verbosity", "0", "-c", PASSES)

    def start(self, *argv: str, **env: str) -> subprocess.Popen:
        process = subprocess.Popen(
            argv, cwd=ROOT, env=self.server.env | env, start_new_session=True
        )
        self.processes.append(process)
        return process

    def agent(self, name: str) -> subprocess.Popen:
        token = self.server.manage("create_node", name, "--simulated").strip()
        return self.start(
            *(sys.executable, "-m", "nodes.agent", "--portal", self.server.env["PUBLIC_URL"]),
            *("--state-dir", str(self.server.folder / name), "--simulate-gpus", "1"),
            E31_ENROL_TOKEN=token,
        )

    def rows(self, query: str) -> list[tuple]:
        with closing(self._database()) as database:
            return database.execute(query).fetchall()

    def leases(self) -> list[tuple]:
        return self.rows("SELECT state, in_doubt, reason FROM nodes_lease ORDER BY number")

    def stop(self, process: subprocess.Popen) -> None:
        process.kill()
        process.wait(10)

    def dump(self) -> Path:
        copy = self.server.folder / "dump.sqlite3"
        with closing(self._database()) as database, closing(sqlite3.connect(copy)) as target:
            database.backup(target)
        return copy

    def restore(self, dump: Path) -> None:
        """The portal as it was, started anew; agents go on meanwhile."""
        self.server.kill()
        for path in self.server.folder.glob("portal.sqlite3*"):
            path.unlink()
        dump.rename(self.server.folder / "portal.sqlite3")
        self.server.manage("after_restore")
        self.server.start()

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.server.folder / "portal.sqlite3", timeout=30)

    def end(self) -> None:
        for process in self.processes:
            self.stop(process)
        for path in self.server.folder.glob("*/leases/*/status.json"):
            status = disk.read_json(path)
            if status and disk.is_locked(path.with_name("supervisor.lock")):
                os.kill(int(status["pid"]), signal.SIGKILL)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    server = Server(tmp_path)
    server.env |= {"SILENCE_LIMIT_S": "20", "AGENT_POLL_S": "1", "ALLOW_PROCESS_ISOLATION": "1"}
    with serving(server):
        running = Agents(server)
        try:
            yield running
        finally:
            running.end()


@pytest.mark.parametrize(("came_back", "work_s"), [("running", 45), ("finished", 5)])
def test_a_stopped_agent_goes_on_and_its_attempt_is_kept(agents, came_back, work_s):
    first = agents.agent("n1")
    until(lambda: agents.rows("SELECT 1 FROM nodes_gpu"), "the first node is there", LIMIT_S)
    script = f'[ "$E31_ATTEMPT" = 1 ] && sleep {work_s} || sleep 120; '
    script += 'echo "$E31_ATTEMPT" > "$E31_OUTPUT/attempt"'
    agents.server.shell(JOB.format(script=script))
    until(lambda: agents.leases() == [("running", 0, "")], "the work runs", LIMIT_S)
    first.send_signal(signal.SIGSTOP)
    agents.agent("n2")
    until(lambda: agents.leases()[:1] == [("lost", 1, "silent")], "it is lost", LIMIT_S)
    assert agents.rows("SELECT 1 FROM nodes_ledgerrow") == []
    until(lambda: agents.leases()[1:] == [("running", 0, "")], "the second runs", LIMIT_S)
    first.send_signal(signal.SIGCONT)
    until(lambda: agents.leases()[1:] == [("lost", 0, "fenced")], "it is fenced", LIMIT_S)
    ended = "SELECT state, outcome FROM jobs_shard"
    until(lambda: agents.rows(ended) == [("ended", "succeeded")], "the piece ends", 2 * LIMIT_S)
    assert agents.leases()[0] == ("released", 0, "exited")
    kept = "SELECT lease.number, row.uncounted_reason FROM nodes_ledgerrow row"
    kept += " JOIN nodes_lease lease ON lease.id = row.lease_id ORDER BY lease.number"
    assert agents.rows(kept) == [(1, ""), (2, "fenced")]
    verified = "SELECT COUNT(*) FROM nodes_leaseevent WHERE verb = 'output_verified'"
    assert agents.rows(verified) == [(1,)]
    assert agents.rows("SELECT COUNT(*) FROM jobs_jobrecord") == [(1,)]
    files = "SELECT file.path, file.size FROM staging_file file"
    assert agents.rows(files) == [("attempt", 2)]
    held = "SELECT COUNT(*) FROM nodes_leasegpu WHERE until IS NULL"
    until(lambda: agents.rows(held) == [(0,)], "both nodes have let go", LIMIT_S)


def test_work_goes_on_through_a_restore_and_is_adopted(agents):
    agents.agent("n1")
    until(lambda: agents.rows("SELECT 1 FROM nodes_gpu"), "the node is there", LIMIT_S)
    agents.stop(agents.processes[0])  # the passes: the dump holds a job that waits
    script = 'sleep 20; echo "$E31_ATTEMPT" > "$E31_OUTPUT/attempt"'
    agents.server.shell(JOB.format(script=script))
    dump = agents.dump()
    passes = agents.pass_on()
    until(lambda: agents.leases() == [("running", 0, "")], "the work runs", LIMIT_S)
    code = agents.rows("SELECT code FROM nodes_lease")
    agents.stop(passes)
    agents.restore(dump)
    agents.pass_on()
    found = "SELECT lease, state, cause, token FROM nodes_incident"
    expected = [(*code[0], "open", "unknown", "1.1")]
    until(lambda: agents.rows(found) == expected, "an incident", LIMIT_S)
    granted = "SELECT COUNT(*) FROM nodes_lease WHERE granted_at IS NOT NULL"
    assert agents.rows(granted) == [(0,)]
    assert agents.rows('SELECT gpus, job, kind, "index" FROM nodes_incident') == [
        ('["GPU-SIM-n1-0"]', *agents.rows("SELECT code FROM jobs_job")[0], "main", 0)
    ]
    agents.server.shell(ADOPT)
    ended = "SELECT state, outcome, kept_lease FROM jobs_shard"
    until(lambda: agents.rows(ended) == [("ended", "succeeded", *code[0])], "the end", 2 * LIMIT_S)
    rows = "SELECT lease.code, row.uncounted_reason, row.run_ms > 15000 FROM nodes_ledgerrow row"
    rows += " JOIN nodes_lease lease ON lease.id = row.lease_id"
    assert agents.rows(rows) == [(*code[0], "", 1)]
    assert agents.rows("SELECT path, size FROM staging_file") == [("attempt", 2)]

"""The whole product, started as `make run` and `make demo` start it."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# One at a time: each starts a portal, a worker and two agents.
pytestmark = [pytest.mark.demo, pytest.mark.xdist_group("demo")]

WORKING = "The work is running."
SERVICES = {"DATABASE_URL", "REDIS_URL", "PUBLIC_URL"}
START_S, WORK_S, STOP_S = 90, 240, 90


class Product:
    """A launcher with its output; everything it started is in its session."""

    def __init__(self, command: str, data: Path) -> None:
        env = {name: value for name, value in os.environ.items() if name not in SERVICES}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "portal.launch", command],
            cwd=ROOT,
            env=env | {"E31_DATA_DIR": str(data), "E31_PORT": "0", "LOG_LEVEL": "INFO"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.said = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self.said:
                self.lines.append(line.rstrip("\n"))
                self.said.notify_all()

    def wait_for(self, text: str, seconds: float) -> None:
        """Until a line holds `text`; fails with everything that was said."""
        with self.said:
            found = self.said.wait_for(lambda: any(text in line for line in self.lines), seconds)
        assert found, f"never said {text!r}:\n" + "\n".join(self.lines)

    def ends(self, seconds: float) -> int:
        """The exit code; fails when it goes on."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail("it goes on:\n" + "\n".join(self.lines))
        self.reader.join(60)
        return code

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder with a short path: the broker's socket lies in it."""
    folder = Path(tempfile.mkdtemp(prefix="e31-whole-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(data) -> Iterator[Callable[[str], Product]]:
    products: list[Product] = []

    def begin(command: str) -> Product:
        products.append(Product(command, data))
        return products[-1]

    yield begin
    for product in products:
        if product.process.poll() is None:
            product.process.kill()
            product.process.wait()


def processes_of(data: Path) -> dict[int, str]:
    """Every process that has the data folder on its command line or in its environment."""
    found = {}
    mark = os.fsencode(data)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, env = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if (mark in command or mark in env) and int(folder.name) != os.getpid():
            found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def pid_of_agent(data: Path, name: str) -> int:
    wanted = "nodes.agent --portal http"
    pids = [
        pid
        for pid, command in processes_of(data).items()
        if wanted in command and f"--name {name} " in command + " "
    ]
    assert len(pids) == 1
    return pids[0]


def rows(data: Path, query: str) -> list[tuple]:
    with sqlite3.connect(data / "portal.sqlite3") as database:
        return database.execute(query).fetchall()


def manage(data: Path, *arguments: str) -> str:
    """What a command prints in another shell, which knows no more than the data folder."""
    env = {name: value for name, value in os.environ.items() if name not in SERVICES}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=env | {"E31_DATA_DIR": str(data)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    ).stdout


def assert_nothing_is_left(data: Path) -> None:
    deadline = time.monotonic() + 60
    while left := processes_of(data):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_an_agent_killed_in_the_middle_of_the_work(start, data):
    """kill -9, and the agent started again: one success, one ledger row for each lease."""
    product = start("demo")
    product.wait_for(WORKING, START_S + WORK_S)
    os.kill(pid_of_agent(data, "simulated"), signal.SIGKILL)
    assert product.ends(WORK_S) == 0, product.text
    assert "simulated was ended by SIGKILL; starting it again" in product.text
    assert "verified in the store" in product.text
    assert rows(data, "SELECT state, outcome FROM jobs_job") == [("ended", "succeeded")]
    held = rows(
        data,
        "SELECT lease.code, COUNT(ledger.id) FROM nodes_lease lease LEFT JOIN nodes_ledgerrow"
        " ledger ON ledger.lease_id = lease.id WHERE lease.allocated_at IS NOT NULL"
        " GROUP BY lease.code",
    )
    assert len(held) == 5, product.text
    assert {count for _, count in held} == {1}
    assert rows(data, "SELECT DISTINCT outcome FROM jobs_shard") == [("succeeded",)]
    assert_nothing_is_left(data)


def test_ctrl_c_in_the_middle_and_a_second_run(start, data):
    """Ctrl-C stops everything, running work too; the next run takes the job up and ends it."""
    first = start("run")
    first.wait_for(WORKING, START_S + WORK_S)
    assert any("nodes.agent.supervisor" in command for command in processes_of(data).values())
    os.killpg(first.process.pid, signal.SIGINT)
    assert first.ends(STOP_S) == 0, first.text
    assert "everything has stopped" in first.text
    assert_nothing_is_left(data)

    second = start("run")
    second.wait_for("of an earlier run is taken up", START_S)
    second.wait_for("stays up; press Ctrl-C", WORK_S)
    assert "verified in the store" in second.text
    assert "Traceback" not in second.text
    assert rows(data, "SELECT state, outcome FROM jobs_job") == [("ended", "succeeded")]
    address = re.search(r"the portal is at (\S+)", second.text)[1]
    assert manage(data, "signin_link", "demo@portal.example").startswith(f"{address}/sign-in/")
    assert f"The portal answers at {address}" in manage(data, "doctor")
    second.process.terminate()
    assert second.ends(STOP_S) == 0
    assert_nothing_is_left(data)
    assert not (data / "running.json").exists()


def test_two_runs_on_one_folder(start, data):
    first = start("run")
    first.wait_for("accounts and nodes are in place", START_S)
    second = start("run")
    assert second.ends(30) == 1
    assert "Another run (process" in second.text
    first.process.send_signal(signal.SIGHUP)
    assert first.ends(STOP_S) == 0
    assert_nothing_is_left(data)

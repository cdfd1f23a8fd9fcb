"""Real agents as processes of their own against a stub of the portal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodes.agent import disk, sandbox
from nodes.agent.cgroup import Group
from tests.agent.portal_stub import TOKEN, PortalStub

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def store_in_tmp() -> None:
    """The agent knows no Django settings: nothing to redirect."""


@pytest.fixture
def portal() -> Iterator[PortalStub]:
    with PortalStub() as stub:
        yield stub
        assert stub.failures == []


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """The condition's value as soon as it is true; fails after `seconds`."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, f"not in {seconds} s: {what}"
        time.sleep(0.02)
    return value


class RunningAgent:
    """An agent process; `kill()` is kill -9, `start()` starts another one on the same folder."""

    def __init__(self, portal: PortalStub, state: Path, *flags: str) -> None:
        self.portal, self.state, self.flags = portal, state, flags
        self.errors = state.with_name(state.name + ".err")
        self.environment = dict(os.environ)
        self.start()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "nodes.agent"]

    def folder(self) -> Path:
        return ROOT

    def start(self) -> "RunningAgent":
        argv = [*self.command(), "--portal", self.portal.url]
        argv += ["--state-dir", str(self.state), "--token", TOKEN, *self.flags]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                argv, cwd=self.folder(), stderr=errors, env=self.environment, start_new_session=True
            )
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def text(self) -> str:
        return self.errors.read_text()

    def supervisors(self) -> list[int]:
        """Supervisors of this agent's leases that live."""
        found = []
        for folder in (self.state / "leases").glob("*"):
            status = disk.read_json(folder / "status.json")
            if status and disk.is_locked(folder / "supervisor.lock"):
                found.append(int(status["pid"]))
        return found

    def end(self) -> None:
        """Nothing of this agent is left, whatever the test did."""
        self.kill()
        for pid in self.supervisors():
            os.kill(pid, signal.SIGKILL)
        for path in (self.state / "leases").glob("*/status.json"):
            if group := disk.read_json(path)["group"]:
                wait_until(Group(Path(group)).remove, "an empty control group")


@pytest.fixture
def agents(portal: PortalStub, tmp_path: Path) -> Iterator[Callable[..., RunningAgent]]:
    """`agents("--simulate-gpus", "2")` starts an agent with these flags."""
    running: list[RunningAgent] = []

    def start(*flags: str, state: str = "node") -> RunningAgent:
        running.append(RunningAgent(portal, tmp_path / state, *flags))
        return running[-1]

    yield start
    for agent in running:
        agent.end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `sandbox` need a bwrap that works; elsewhere they say why they are skipped."""
    marked = [i for i in items if i.path.is_relative_to(Path(__file__).parent)]
    marked = [i for i in marked if i.get_closest_marker("sandbox")]
    if not marked:
        return
    found, reason = sandbox.probe()
    for item in marked if not found else []:
        item.add_marker(pytest.mark.skip(reason=f"no sandbox on this machine: {reason}"))

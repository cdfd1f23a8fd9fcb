"""Crashes and outages in the middle of a lease: CASES.md R2, R5, R6, R10, O1, O3."""

import json
import os
import signal

import pytest

from nodes.agent import disk
from tests.agent.conftest import wait_until
from tests.agent.portal_stub import script

pytestmark = pytest.mark.sandbox
# Ends when the test makes it: by a file that it alone can put into the lease's scratch.
UNTIL_TOLD = (
    "echo begun >> /output/runs; echo begun; until test -e /scratch/go; do sleep 0.05; done"
)


def begun(portal, lease) -> None:
    portal.wait(lambda: b"begun" in lease.log, "the work has begun")


def go(agent, code: str) -> None:
    (agent.state / "leases" / code / "scratch" / "go").touch()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_work_outlives_its_agent_and_runs_once(portal, agents, how):
    lease = portal.place("live", work=script(UNTIL_TOLD))
    agent = agents()
    begun(portal, lease)
    getattr(agent, how)()
    assert len(agent.supervisors()) == 1
    agent.start()
    seen = len(portal.polls)
    portal.wait(lambda: len(portal.polls) > seen + 1, "the new agent polls")
    go(agent, "live")
    report = portal.wait_phase(lease, "released")
    assert report["exit"]["code"] == 0
    assert lease.outputs["runs"].content == b"begun\n"
    assert lease.log == b"begun\n"


def test_work_that_ends_without_an_agent_is_adopted(portal, agents):
    lease = portal.place("adop", work=script(UNTIL_TOLD))
    agent = agents()
    begun(portal, lease)
    agent.kill()
    go(agent, "adop")
    wait_until(lambda: agent.supervisors() == [], "the supervisor has ended")
    agent.start()
    report = portal.wait_phase(lease, "released")
    assert report["output"] == "delivered"
    assert lease.outputs["runs"].content == b"begun\n"


def test_kill_at_every_phase_still_gives_one_result(portal, agents):
    leases = [
        portal.place(f"many{n}", {"data/a": b"a" * 1000}, work=script("echo r >> /output/r"))
        for n in range(3)
    ]
    agent = agents()
    for phase in ("ready", "allocated", "returning", "releasing"):
        portal.wait(
            lambda phase=phase: any(
                phase in lease.phases or lease.phase == "released" for lease in leases
            ),
            phase,
        )
        agent.kill()
        agent.start()
    for lease in leases:
        report = portal.wait_phase(lease, "released")
        assert report["output"] == "delivered", report
        assert lease.outputs["r"].content == b"r\n"
        assert lease.completions == 1


def test_the_portal_is_away_as_the_work_ends(portal, agents):
    lease = portal.place("away", work=script(UNTIL_TOLD))
    agent = agents()
    begun(portal, lease)
    portal.away = True
    go(agent, "away")
    journal = agent.state / "journal" / "away.json"
    wait_until(
        lambda: disk.read_json(journal)["phase"] == "released", "released without the portal"
    )
    assert disk.read_json(journal)["output"] == "sealed"
    portal.away = False
    portal.wait(lambda: lease.phase == "released", "heard of")
    assert lease.report["output_waits"] in (None, "not_taken")
    portal.wait(lambda: lease.report.get("output") == "delivered", "delivered")
    assert lease.report["evidence"]["output"] == "sealed"
    assert lease.outputs["runs"].content == b"begun\n"
    assert lease.completions == 1


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        ((503, "store_away"), "store_away"),
        ((507, "no_room"), "store_full"),
        ((503, "busy"), "not_taken"),
        ((502, "proxy"), "unreachable"),
    ],
)
def test_what_misses_the_window_is_sealed_and_delivered_later(portal, agents, error, waits):
    portal.store_away, portal.store_error = True, error
    lease = portal.place(
        "wind", work=script("echo x > /output/x"), limits={"output_window_seconds": 1}
    )
    agent = agents()
    report = portal.wait_phase(lease, "released")
    assert (report["output"], report["evidence"]["output"]) == ("sealed", "sealed")
    held = report["ages"]["returning"] - report["ages"]["releasing"]
    assert held >= 1000  # and it ended, though the store never came back
    assert report["output_waits"] == waits
    folder = agent.state / "leases" / "wind"
    assert not (folder / "scratch").exists()
    agent.kill()
    agent.start()
    portal.store_away = False
    portal.wait(lambda: lease.report.get("output") == "delivered", "delivered")
    assert lease.report["output_waits"] is None
    lease.order = "forget"
    portal.wait_phase(lease, "gone")
    assert not folder.exists()


def test_a_log_that_nobody_takes_holds_no_compute(portal, agents):
    """The output has arrived; the rest of the log follows when it can, after the release."""
    portal.logs_away = True
    window = {"output_window_seconds": 600}  # far beyond what this test waits
    lease = portal.place("logs", work=script("echo said; echo x > /output/x"), limits=window)
    agents()
    report = portal.wait_phase(lease, "released")
    assert (report["output"], report["log_bytes"]) == ("delivered", len(b"said\n"))
    assert lease.log == b""
    portal.logs_away = False
    portal.wait(lambda: lease.log == b"said\n", "the log")


def test_a_killed_supervisor_is_a_fault_of_the_node(portal, agents):
    lease = portal.place("dead", work=script(UNTIL_TOLD))
    agent = agents()
    begun(portal, lease)
    (pid,) = agent.supervisors()
    os.kill(pid, signal.SIGKILL)
    report = portal.wait_phase(lease, "released")
    assert report["fault"]["code"] == "supervisor_died"
    assert report["evidence"]["processes"] == "none"
    assert lease.outputs == {}


def test_a_reboot_is_a_fault_without_ages(portal, agents):
    lease = portal.place("boot", work=script(UNTIL_TOLD))
    agent = agents()
    begun(portal, lease)
    agent.kill()
    for pid in agent.supervisors():
        os.kill(pid, signal.SIGKILL)
    path = agent.state / "journal" / "boot.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps({**record, "boot": "another-boot"}))
    agent.start()
    report = portal.wait_phase(lease, "released")
    assert report["fault"]["code"] == "node_rebooted"
    assert report["ages"]["running"] is None
    assert report["evidence"]["scratch"] == "wiped"


def test_a_supervisor_that_cannot_start_the_sandbox_is_a_launch_failure(portal, agents):
    lease = portal.place("laun", work=script("true"))
    lease.order = "fetch"
    agent = agents()
    portal.wait_phase(lease, "ready")
    data = agent.state / "leases" / "laun" / "data"
    data.rmdir()
    data.write_text("no folder")
    lease.order = ""
    report = portal.wait_phase(lease, "released")
    assert report["fault"]["code"] == "launch_failed"
    assert report["fault"]["detail"]
    assert report["exit"] is None


@pytest.mark.parametrize("runtime", ["bwrap", "process"])
def test_every_descendant_is_gone_before_released(portal, agents, runtime, tmp_path):
    mark = f"/usr/bin/sleep 7{os.getpid() % 1000:03}"
    text = (
        "import os, signal, sys\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"            os.execv('/usr/bin/sleep', {mark.split()!r})\n"
        "        os._exit(0)\n"
        "print('begun', flush=True)\n"
    )
    lease = portal.place("fork", work=script(text, "python"))
    agents("--isolation", runtime)
    report = portal.wait_phase(lease, "released")
    assert report["evidence"]["processes"] == "none"
    assert report["exit"]["code"] == 0
    left = [p for p in os.listdir("/proc") if p.isdigit() and _command(p) == mark]
    assert left == []


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            return source.read().rstrip(b"\0").replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_a_corrupt_upload_is_sent_again(portal, agents):
    portal.corrupt_uploads = 1
    lease = portal.place(
        "corr", work=script("head -c 3000000 /dev/zero > /output/z; echo > /output/y")
    )
    agents()
    report = portal.wait_phase(lease, "released")
    assert report["output"] == "delivered"
    assert all(one.whole for one in lease.outputs.values())


def test_a_path_that_the_portal_refuses_costs_only_itself(portal, agents):
    portal.refused_paths = {"f3"}
    lease = portal.place("refu", work=script("for n in 1 2 3 4 5; do echo > /output/f$n; done"))
    agents()
    report = portal.wait_phase(lease, "released")
    assert sorted(lease.outputs) == ["f1", "f2", "f4", "f5"]
    assert report["output_problem"]["code"] == "output_refused"
    assert "f3" in report["output_problem"]["detail"]

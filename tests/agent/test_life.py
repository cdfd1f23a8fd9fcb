"""A lease's whole life with a real agent, supervisor and sandbox, and every way it can end."""

import pytest

from tests.agent.portal_stub import script

pytestmark = pytest.mark.sandbox
PHASES = ["fetching", "ready", "allocated", "running", "returning", "releasing", "released"]


def test_success_returns_output_log_and_evidence(portal, agents):
    inputs = {"data/in/a.txt": b"alpha", "data/in/empty": b"", "code/run.sh": b"echo code"}
    lease = portal.place(
        "abcd",
        inputs,
        work=script("cat $E31_DATA/in/a.txt > $E31_OUTPUT/copy.txt; echo hello; echo err >&2"),
    )
    agents()
    report = portal.wait_phase(lease, "released")
    assert report["exit"] == {"code": 0, "signal": None, "reason": "exited"}
    assert report["evidence"] == {
        "processes": "none", "gpus": {}, "scratch": "wiped", "output": "delivered",
    }  # fmt: skip
    assert {path: one.content for path, one in lease.outputs.items()} == {"copy.txt": b"alpha"}
    assert lease.log == b"hello\nerr\n"
    assert lease.completions == 1
    assert sorted(lease.ages, key=PHASES.index) == PHASES[1:]
    assert [lease.report["ages"][step] for step in PHASES[1:]] == sorted(
        (lease.report["ages"][step] for step in PHASES[1:]), reverse=True
    )

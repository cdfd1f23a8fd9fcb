"""A lease's whole life with a real agent, supervisor and sandbox, and every way it can end."""

import os

import pytest

from nodes.agent import cgroup, disk, sandbox
from tests.agent.conftest import wait_until
from tests.agent.portal_stub import command, script

pytestmark = pytest.mark.sandbox
PHASES = ["fetching", "ready", "allocated", "running", "returning", "releasing", "released"]
FOR_EVER = "echo begun; while :; do sleep 0.1; done"


def contents(lease) -> dict[str, bytes]:
    return {path: one.content for path, one in lease.outputs.items()}


def begun(portal, lease, word: bytes = b"begun") -> None:
    portal.wait(lambda: word in lease.log, f"{word!r} in the log")


# -- ends of its own


def test_success_returns_output_log_and_evidence(portal, agents):
    inputs = {"data/in/a.txt": b"alpha", "data/in/empty": b"", "data/b c/ü%.txt": b"x"}
    lease = portal.place(
        "abcd",
        inputs,
        work=script("cat $E31_DATA/in/a.txt > $E31_OUTPUT/copy.txt; echo hello; echo err >&2"),
    )
    agents()
    report = portal.wait_phase(lease, "released")
    assert report["exit"] == {"code": 0, "signal": None, "reason": "exited"}
    assert report["evidence"] == {
        "processes": "none",
        "gpus": {},
        "scratch": "wiped",
        "output": "delivered",
    }
    assert contents(lease) == {"copy.txt": b"alpha"}
    assert lease.log == b"hello\nerr\n"
    assert lease.completions == 1
    ages = [report["ages"][step] for step in PHASES[1:]]
    assert ages == sorted(ages, reverse=True)


def test_the_next_job_can_run_what_this_one_has_built(portal, agents):
    built = "printf '#!/bin/sh\\necho built\\n' > $E31_OUTPUT/tool.sh"
    first = portal.place(
        "make", work=script(f"{built}; chmod u+x $E31_OUTPUT/tool.sh; echo 1 > $E31_OUTPUT/plain")
    )
    agents()
    assert portal.wait_phase(first, "released")["exit"]["code"] == 0, first.log
    assert {path: one.executable for path, one in first.outputs.items()} == {
        "tool.sh": True,
        "plain": False,
    }
    inputs = {"data/in/tool.sh": first.outputs["tool.sh"].content}
    second = portal.place("uses", inputs, work=script("$E31_DATA/in/tool.sh > $E31_OUTPUT/said"))
    assert portal.wait_phase(second, "released")["exit"]["code"] == 0, second.log
    assert contents(second) == {"said": b"built\n"}


def test_python_code_and_variables(portal, agents):
    inputs = {"code/main.py": b"import helper", "code/pkg/helper.py": b"print('helped')"}
    inputs["code/go.sh"] = b"#!/bin/bash\nexec python3 main.py\n"
    code = portal.place(
        "code", inputs, work=command("PYTHONPATH=pkg ./go.sh > /output/x; touch made-here", "code")
    )
    text = (
        "import os, sys\n"
        "names = ['E31_JOB', 'E31_SHARD_INDEX', 'E31_SHARD_COUNT', 'E31_SHARD_KIND', 'E31_DATA',"
        " 'E31_OUTPUT', 'E31_ATTEMPT', 'GREETING', 'CUDA_VISIBLE_DEVICES',"
        " 'NVIDIA_VISIBLE_DEVICES']\n"
        "open('/output/v', 'w').write(' '.join(os.environ[n] for n in names))\n"
        "open(os.environ['HOME'] + '/h', 'w'); open('/tmp/t', 'w'); open('/dev/shm/s', 'w')\n"
        "print(os.getcwd(), os.environ['TMPDIR'], sys.version_info[:2] >= (3, 10))\n"
    )
    python = portal.place(
        "pyth",
        work=script(text, "python"),
        index=2,
        count=4,
        gpus=1,
        attempt=3,
        variables={"GREETING": "hi there"},
    )
    agents("--simulate-gpus", "1")
    for lease in (code, python):
        assert portal.wait_phase(lease, "released")["exit"]["code"] == 0, lease.log
    assert contents(code) == {"x": b"helped\n"}
    expected = b"job1 2 4 main /data /output 3 hi there GPU-SIM-node-0 GPU-SIM-node-0"
    assert contents(python) == {"v": expected}
    assert python.log == b"/work /scratch/tmp True\n"
    assert python.report["evidence"]["gpus"] == {"GPU-SIM-node-0": "simulated"}


def test_failure_returns_what_was_written(portal, agents):
    lease = portal.place(
        "fail",
        work=script("echo part > /output/part; exit 3"),
        outputs=[{"pattern": "part", "optional": False}, {"pattern": "gone", "optional": False}],
    )
    agents()
    report = portal.wait_phase(lease, "released")
    assert report["exit"] == {"code": 3, "signal": None, "reason": "exited"}
    assert report["output_problem"] is None
    assert contents(lease) == {"part": b"part\n"}


def test_missing_output_and_command_not_found_are_the_works_own(portal, agents):
    missing = portal.place(
        "miss", work=script("true"), outputs=[{"pattern": "result.csv", "optional": False}]
    )
    unknown = portal.place("unkn", work=command("no-such-program --now"))
    killed = portal.place("kill", work=script("kill -9 $$"))
    said = portal.place("said", work=script("exit 137"))
    huge = portal.place("huge", work=command("true"), variables={"BIG": "x" * 200_000})
    agents()
    report = portal.wait_phase(missing, "released")
    assert report["output_problem"]["code"] == "output_missing"
    assert "result.csv" in report["output_problem"]["detail"]
    report = portal.wait_phase(unknown, "released")
    assert (report["exit"]["code"], report["exit"]["reason"], report["fault"]) == (
        127,
        "exited",
        None,
    )
    for lease in (killed, said):  # a sandbox tells of both in the same way
        report = portal.wait_phase(lease, "released")
        assert report["exit"] == {"code": 137, "signal": None, "reason": "exited"}
    report = portal.wait_phase(huge, "released")
    assert report["exit"]["reason"] == "could_not_start"
    portal.wait(lambda: b"longer than 128 KiB" in huge.log, "a line in the log")


@pytest.mark.parametrize(
    ("text", "signal_number", "reason"), [("kill -9 $$", 9, "killed"), ("exit 137", None, "exited")]
)
def test_without_a_sandbox_a_signal_is_told_from_an_exit_code(
    portal, agents, text, signal_number, reason
):
    lease = portal.place("proc", work=script(text))
    agents("--isolation", "process")
    report = portal.wait_phase(lease, "released")
    assert report["exit"] == {"code": 137, "signal": signal_number, "reason": reason}


# -- limits


def test_time_limit_gives_the_work_a_margin(portal, agents):
    text = (
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    open('/output/checkpoint', 'w').write('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('begun', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    saves = portal.place(
        "save", work=script(text, "python"), limits={"seconds": 2, "term_margin_seconds": 1}
    )
    below = portal.place(
        "blow",
        {"code/p.py": text.encode()},
        work=script("python3 /work/p.py\necho not reached"),
        limits={"seconds": 2, "term_margin_seconds": 1},
    )
    deaf = portal.place(
        "deaf",
        work=script("trap '' TERM; (setsid sleep 60 &) ; " + FOR_EVER),
        limits={"seconds": 2, "term_margin_seconds": 1},
    )
    agents()
    for lease in (saves, below):
        report = portal.wait_phase(lease, "released")
        assert report["exit"]["reason"] == "time_limit"
        assert contents(lease) == {"checkpoint": b"saved"}
        assert b"SIGTERM was sent" in lease.log
    assert saves.report["exit"]["code"] == 0
    report = portal.wait_phase(deaf, "released")
    assert report["exit"] == {"code": 137, "signal": 9, "reason": "time_limit"}
    assert report["evidence"]["processes"] == "none"
    ran = report["ages"]["running"] - report["ages"]["returning"]
    assert ran >= 1900  # and it would go on for ever by itself


@pytest.mark.parametrize(
    ("reason", "text", "limits"),
    [
        (
            "memory_limit",
            "import time; b = bytearray(300 * 2**20); time.sleep(60)",
            {"memory_bytes": 150 * 2**20},
        ),
        (
            "memory_limit",
            "import time; f = open('/dev/shm/x', 'wb')\n"
            "for _ in range(64): f.write(bytes(2**20))\nf.flush(); time.sleep(60)",
            {"memory_bytes": 100 * 2**20},
        ),
        (
            "process_limit",
            # Bounded, for machines whose kernel is not asked to limit it.
            "import os, time\nfor _ in range(9):\n  try: os.fork()\n  except OSError: pass\n"
            "time.sleep(60)",
            {"processes": 20},
        ),
        (
            "disk_limit",
            "import time; open('/scratch/x', 'wb').write(bytes(20 * 2**20)); time.sleep(60)",
            {"scratch_bytes": 10 * 2**20},
        ),
        (
            "output_limit",
            "import time; open('/output/x', 'wb').write(bytes(20 * 2**20)); time.sleep(60)",
            {"output_bytes": 10 * 2**20},
        ),
    ],
    ids=["memory", "shm", "processes", "scratch", "output"],
)
def test_limits_end_the_work(portal, agents, reason, text, limits):
    lease = portal.place("over", work=script("print('begun')\n" + text, "python"), limits=limits)
    agents()
    if reason == "memory_limit" and "shm" in text:
        # /dev/shm is half of the memory: what does not fit there is refused inside.
        report = portal.wait_phase(lease, "released")
        assert report["exit"]["code"] == 1
        portal.wait(lambda: b"No space left" in lease.log, "the refusal")
        return
    report = portal.wait_phase(lease, "released")
    assert report["exit"]["reason"] == reason
    assert report["evidence"]["processes"] == "none"
    portal.wait(lambda: b"[portal] " in lease.log, "the reason in the log")


@pytest.mark.sandbox
def test_the_kernel_refuses_what_would_outrun_a_look(portal, agents, tmp_path):
    group = cgroup.Group.make(tmp_path, 100)
    if not group.path and (os.geteuid() == 0 or not sandbox.counts_by_sandbox()):
        pytest.skip("This machine's kernel limits no processes for this user")
    assert group.remove()
    text = (
        "import os, time\n"
        "for _ in range(9):\n  try: os.fork()\n"
        "  except BlockingIOError: os.write(1, b'refused\\n')\n"
        "time.sleep(60)"
    )
    lease = portal.place("bomb", work=script(text, "python"), limits={"processes": 20})
    agents()
    report = portal.wait_phase(lease, "released")
    assert report["exit"]["reason"] == "process_limit"
    assert report["evidence"]["processes"] == "none"
    portal.wait(lambda: b"refused" in lease.log, "the kernel's refusal")
    left = disk.read_json(tmp_path / "node" / "leases" / "bomb" / "status.json")["group"]
    assert not (left and os.path.exists(left))


def test_a_long_log_keeps_its_head_and_tail(portal, agents):
    lease = portal.place(
        "logs",
        work=script("echo head; seq 100000; echo tail"),
        limits={"log_bytes": 100_000},
    )
    agents()
    portal.wait_phase(lease, "released")
    portal.wait(lambda: lease.log.endswith(b"\ntail\n"), "the tail of the log")
    assert lease.log.startswith(b"head\n1\n2\n")
    assert b"bytes were left out here" in lease.log
    assert len(lease.log) <= 100_000


# -- ends that the portal wants


def test_cancel_discards_output_and_keeps_the_log(portal, agents):
    lease = portal.place(
        "canc",
        work=script("echo x > /output/x; " + FOR_EVER),
        limits={"term_margin_seconds": 1},
    )
    agents()
    begun(portal, lease)
    lease.order = "stop"
    report = portal.wait_phase(lease, "released")
    assert report["exit"]["reason"] == "cancelled"
    assert (report["output"], report["evidence"]["output"]) == ("discarded", "discarded")
    assert lease.outputs == {}
    assert b"begun" in lease.log
    assert b"cancelled" in lease.log


def test_cancel_before_the_grant_and_forget_leave_nothing(portal, agents):
    lease = portal.place("canc", {"data/a": b"a"}, work=script("true"))
    lease.order = "fetch"
    agent = agents()
    portal.wait_phase(lease, "ready")
    lease.order = "stop"
    report = portal.wait_phase(lease, "released")
    assert report["evidence"]["processes"] == "none"
    assert "allocated" not in lease.ages
    lease.order = "forget"
    portal.wait_phase(lease, "gone")
    assert list((agent.state / "leases").iterdir()) == []
    assert list((agent.state / "journal").iterdir()) == []


def test_a_fenced_lease_is_killed_and_wiped(portal, agents):
    lease = portal.place("fenc", work=script(FOR_EVER))
    agent = agents()
    begun(portal, lease)
    (pid,) = agent.supervisors()
    lease.token = "1.2"
    wait_until(lambda: not (agent.state / "leases" / "fenc").exists(), "the folder is gone")
    wait_until(lambda: not (agent.state / "journal" / "fenc.json").exists(), "the journal too")
    wait_until(lambda: agent.supervisors() == [], f"supervisor {pid} is gone")
    assert lease.outputs == {}


def test_an_unknown_lease_is_kept(portal, agents):
    lease = portal.place("unkn", work=script(FOR_EVER))
    agent = agents()
    begun(portal, lease)
    del portal.leases["unkn"]
    seen = len(portal.polls)
    portal.wait(lambda: len(portal.polls) > seen + 4, "some polls")
    assert len(agent.supervisors()) == 1
    portal.leases["unkn"] = lease
    lease.order = "stop"
    portal.wait_phase(lease, "released")


def test_a_revoked_node_ends_its_work_and_says_why(portal, agents):
    lease = portal.place("revo", work=script(FOR_EVER))
    agent = agents()
    begun(portal, lease)
    portal.poll_error = (401, "revoked")
    assert agent.process.wait(60) == 3
    assert "revoked" in agent.text()
    assert agent.supervisors() == []
    assert list((agent.state / "leases").iterdir()) == []


def test_a_second_agent_touches_nothing(portal, agents):
    lease = portal.place("seco", work=script(FOR_EVER))
    agent = agents()
    begun(portal, lease)
    other = agents()
    assert other.process.wait(60) == 1
    assert "Another agent uses the state folder" in other.text()
    portal.poll_error = (409, "second_agent")
    assert agent.process.wait(60) == 4
    assert len(agent.supervisors()) == 1

"""The GPU inventory: the real NVML binding against a stub of the driver's library (R8, R9, R12)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nodes.agent import journal
from nodes.agent.gpus import Gpus
from tests.agent.conftest import wait_until
from tests.agent.portal_stub import script

SOURCE = Path(__file__).with_name("nvml_stub.c")
COMPILER = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler to make the NVML stub")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    argv = [str(COMPILER), "-shared", "-fPIC", "-Wall", "-Werror", "-o"]
    subprocess.run([*argv, folder / "libnvidia-ml.so.1", SOURCE], check=True)
    return folder


@pytest.fixture
def driver(library, monkeypatch):
    """`driver(STUB_ECC=1)` sets what the stub does; the child inherits it."""

    def set_up(**values: object) -> Gpus:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))
        return Gpus([])

    return set_up


def looked(gpus: Gpus) -> tuple[list[dict], str]:
    gpus.refresh()
    return gpus.facts(set())


def test_no_driver_is_no_gpu_and_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a driver")
    assert looked(Gpus([])) == ([], "No NVIDIA driver was found on this machine.")


@needs_compiler
def test_gpus_are_listed_with_what_the_sandbox_needs(driver):
    gpus = driver(STUB_GPUS=2)
    found, reason = looked(gpus)
    assert reason == ""
    assert [gpu["uuid"] for gpu in found] == ["GPU-stub-0", "GPU-stub-1"]
    assert found[0] == {
        "uuid": "GPU-stub-0",
        "index": 0,
        "model": "Stub 9000",
        "memory_bytes": 24 * 2**30,
        "simulated": False,
        "usable": True,
        "reason": "",
        "processes": [],
    }
    assert gpus.chosen(["GPU-stub-1"]) == [{"uuid": "GPU-stub-1", "minor": 6}]


@needs_compiler
@pytest.mark.parametrize(
    ("init", "words"),
    [(9, "No NVIDIA driver"), (18, "Driver/library version mismatch"), (999, "NVML")],
)
def test_a_driver_that_does_not_start_is_a_reason(driver, init, words):
    found, reason = looked(driver(STUB_INIT=init))
    assert found == []
    assert words in reason


@needs_compiler
def test_a_driver_upgrade_under_a_running_agent_takes_the_gpus_away(driver, monkeypatch):
    gpus = driver()
    assert len(looked(gpus)[0]) == 2
    monkeypatch.setenv("STUB_INIT", "18")
    found, reason = looked(gpus)
    assert (found, "mismatch" in reason) == ([], True)
    monkeypatch.setenv("STUB_INIT", "0")
    assert len(looked(gpus)[0]) == 2


@needs_compiler
def test_a_faulty_gpu_is_unusable_with_its_reason(driver):
    gpus = driver(STUB_GPUS=3, STUB_ECC=1, STUB_LOST=2)
    found, _ = looked(gpus)
    assert [gpu["usable"] for gpu in found] == [True, False, False]
    assert "3 uncorrectable" in found[1]["reason"]
    assert "lost" in found[2]["reason"].lower()
    assert gpus.fault_of(["GPU-stub-0"]) == ""
    assert "uncorrectable" in gpus.fault_of(["GPU-stub-0", "GPU-stub-1"])


@needs_compiler
def test_a_driver_that_blocks_is_not_answering_and_nobody_waits(driver, monkeypatch):
    gpus = driver()
    assert len(looked(gpus)[0]) == 2
    monkeypatch.setenv("STUB_HANG", "3600")
    gpus.deadline = 0.5
    found, _ = looked(gpus)  # it comes back while the driver still blocks
    assert {gpu["reason"] for gpu in found} == {"not answering"}
    assert not any(gpu["usable"] for gpu in found)
    assert gpus.fault_of(["GPU-stub-0"]) == "", "a silent driver is no proof of a fault"


@needs_compiler
def test_a_process_of_no_lease_is_named_and_one_of_a_lease_is_not(driver, monkeypatch):
    child = subprocess.Popen(["sleep", "60"])
    try:
        gpus = driver(STUB_PIDS=f"1:{child.pid}")
        found, _ = looked(gpus)
        (process,) = found[1]["processes"]
        assert process["pid"] == child.pid
        assert process["user"]
        assert 0 <= process["since_ms"] < 60_000
        assert found[1]["usable"], "in use is no fault"
        ours, _ = gpus.facts({os.getpid()})
        assert ours[1]["processes"] == []
    finally:
        child.kill()
        child.wait()


@needs_compiler
def test_evidence_tells_the_leases_processes_from_others(driver, tmp_path, monkeypatch):
    for name in ("journal", "leases"):
        (tmp_path / name).mkdir()
    lease = journal.Lease.begin(tmp_path, "abcd", "1.1")
    lease.change(gpus=["GPU-stub-0", "GPU-stub-1"])
    monkeypatch.setattr("nodes.agent.gpus.BUSY_SECONDS", 0.0)
    child = subprocess.Popen(["sleep", "60"])
    try:
        gpus = driver(STUB_PIDS=f"1:{child.pid}")
        clear = {"GPU-stub-0": "clear", "GPU-stub-1": "clear"}
        assert gpus.evidence(lease, {2**22}) == clear, "somebody else's process"
        assert gpus.evidence(lease, {os.getpid()}) == {**clear, "GPU-stub-1": "busy"}
    finally:
        child.kill()
        child.wait()
    gone = {**clear, "GPU-stub-1": "busy"}
    assert gpus.evidence(lease, set()) == gone, "a process that is gone and holds the GPU"
    monkeypatch.setenv("STUB_INIT", "18")
    assert set(gpus.evidence(lease, set()).values()) == {"not checked"}


@needs_compiler
@pytest.mark.sandbox
def test_heartbeats_go_on_while_the_driver_blocks(portal, agents, driver, monkeypatch):
    driver(STUB_HANG=600)
    lease = portal.place("beat", work=script("echo > /output/x"))
    agents()
    portal.wait_phase(lease, "released")
    portal.wait(lambda: len(portal.polls) > 5, "heartbeats")
    assert portal.polls[-1]["facts"]["gpus"] == []
    assert "not been looked at" in portal.polls[-1]["facts"]["gpu_reason"]
    wait_until(lambda: portal.polls[-1]["leases"], "polls")

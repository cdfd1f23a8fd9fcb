#!/usr/bin/env python3
"""Make the environment in .venv from the committed lock. Run as a script, before anything is there.

    python3 portal/launch/bootstrap.py run|dev|uv

`run` installs requirements.lock, `dev` requirements-dev.lock (which holds the former), `uv` only
finds or installs uv and prints its path. Standard library only, for any Python >= 3.8: this file
imports nothing of the portal. A second run does nothing and needs no network.

Every problem a person can mend ends in one sentence on standard error and exit code 1.
"""

import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Dict, Iterator, List, NamedTuple, NoReturn, Optional, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "installed.json")
TOOLS = os.path.join(ROOT, "var", "tools")
UV_LOCK = os.path.join(ROOT, "portal", "launch", "uv.lock")
LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
LEAST = (3, 12)
LEAST_UV = (0, 8)  # `uv venv --clear`
PROBE = (
    "import json, os, sys, platform; v = sys.version_info;"
    "print(json.dumps([v[0], v[1], v[2], v[3], platform.python_implementation(),"
    " os.path.realpath(sys.executable)]))"
)
NO_NETWORK = re.compile(
    r"dns error|failed to lookup|name resolution|connection (refused|reset|timed out|broken)"
    r"|connecttimeout|newconnectionerror|network is unreachable|error sending request"
    r"|max retries|operation timed out|failed to establish|name or service not known"
    r"|client error \(connect\)|no route to host",
    re.IGNORECASE,
)


class Problem(Exception):
    """Something that the person who started this can mend; the message says what."""


class Interpreter(NamedTuple):
    version: Tuple[int, int, int]
    path: str


def say(sentence: str) -> None:
    print("set-up  | " + sentence, file=sys.stderr, flush=True)


def why_not(command: str) -> str:
    """Why something that is named like a fitting Python is none: it does not start. Else ""."""
    fits = re.search(r"(/python3\.1[2-9]|/versions/3\.1[2-9][^/]*/bin/python)$", command)
    if not fits or "/shims/" in command:  # a shim of a version that was not selected
        return ""
    try:
        done = subprocess.run(
            [command, "-I", "-c", ""],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return "%s does not start: %s" % (command, error)  # noqa: UP031
    if done.returncode == 0:
        return ""
    return "%s does not start: %s" % (command, last_lines(done.stderr.decode(errors="replace"), 1))  # noqa: UP031


def last_lines(output: str, most: int = 6) -> str:
    return " / ".join(line.strip() for line in output.strip().splitlines()[-most:])


def broken_pythons(env: Dict[str, str]) -> List[str]:
    """A sentence each for a Python 3.12 or newer that is there and does not start."""
    found = {}  # type: Dict[str, str]
    for command in candidates(env):
        real = os.path.realpath(command)
        if real not in found:
            found[real] = why_not(command)
    return [sentence for sentence in found.values() if sentence]


def probe(command: str) -> Optional[Interpreter]:
    """What `command` really is, or None where it is no final CPython of LEAST or newer.

    The path is the one the interpreter itself reports, so a pyenv shim turns into what it stands
    for, and a shim for a version that is not selected is passed over.
    """
    try:
        done = subprocess.run(
            [command, "-I", "-c", PROBE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=True,
        )
        major, minor, micro, level, kind, path = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if (major, minor) < LEAST or level != "final" or kind != "CPython":
        return None
    return Interpreter((major, minor, micro), path)


def candidates(env: Dict[str, str]) -> Iterator[str]:
    """Commands that may be a Python, the likeliest first: this one, PATH, pyenv's versions."""
    yield sys.executable
    for folder in env.get("PATH", "").split(os.pathsep):
        for name in ("python3.12", "python3.13", "python3.14", "python3", "python"):
            path = os.path.join(folder, name)
            if os.path.isabs(path) and os.access(path, os.X_OK):
                yield path
    pyenv = env.get("PYENV_ROOT") or os.path.join(env.get("HOME", "/nonexistent"), ".pyenv")
    yield from sorted(glob.glob(os.path.join(pyenv, "versions", "*", "bin", "python")))


def find_interpreter(env: Dict[str, str]) -> Optional[Interpreter]:
    """The fitting interpreter nearest to LEAST (what the tests run on), or None."""
    found = {}  # type: Dict[Tuple[int, int, int], Interpreter]
    seen = set()
    for command in candidates(env):
        real = os.path.realpath(command)
        if real in seen:
            continue
        seen.add(real)
        interpreter = probe(command)
        if interpreter and interpreter.version[:2] == LEAST:
            return interpreter
        if interpreter:
            found.setdefault(interpreter.version, interpreter)
    return found[min(found)] if found else None


def run_quietly(command: List[str], problem: str) -> str:
    """Run `command`, return its output. Raises Problem with the sentence and the last lines."""
    # The machine's own certificates, so that uv works behind a company's proxy as pip does.
    env = {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true", **os.environ}
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return output
    if NO_NETWORK.search(output):
        raise Problem(
            problem + " The package index cannot be reached from here: check the network (or"
            " UV_INDEX_URL and proxy settings) and run this again. Later runs work offline."
        )
    raise Problem(problem + " It said: " + last_lines(output))


def has_module(python: str, module: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import " + module],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def python_with_pip(pythons: List[str]) -> str:
    """A Python that can run pip: one that has it, else a private environment made for it."""
    for python in pythons:
        if has_module(python, "pip"):
            return python
    for python in pythons:
        if has_module(python, "ensurepip, venv"):
            home = os.path.join(TOOLS, "pip")
            run_quietly([python, "-m", "venv", "--clear", home], "pip could not be set up.")
            return os.path.join(home, "bin", "python")
    raise Problem(
        "uv is not installed and this Python has neither pip nor ensurepip to fetch it with;"
        " install one of them (on Debian and Ubuntu: apt install python3-venv) and run this again."
    )


def find_uv(pythons: List[str]) -> str:
    """The path of uv: the one on PATH, the one fetched before, else fetched now by hash."""
    own = os.path.join(TOOLS, "uv", "bin", "uv")
    for path in (shutil.which("uv"), own):
        if path and os.access(path, os.X_OK) and uv_works(path):
            return path
    say("fetching uv into var/tools")
    command = [python_with_pip(pythons), "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]
    command += ["--target", os.path.join(TOOLS, "uv"), "--upgrade", "-r", UV_LOCK]
    run_quietly(command, "uv could not be fetched.")
    return own


def uv_works(path: str) -> bool:
    """Whether this uv runs and is new enough: a shim of a version manager may stand for nothing."""
    try:
        done = subprocess.run(
            [path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
    except OSError:
        return False
    version = re.match(rb"uv (\d+)\.(\d+)\.", done.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= LEAST_UV


def check_writable() -> None:
    for folder in (ROOT, os.path.join(ROOT, "var"), TOOLS):
        try:
            os.makedirs(folder, exist_ok=True)
            trial = os.path.join(folder, ".writable-" + str(os.getpid()))
            with open(trial, "w"):
                pass
            os.unlink(trial)
        except OSError as error:
            raise Problem(
                "This folder cannot be written to: %s (%s); run this in a clone that you own."  # noqa: UP031
                % (folder, error.strerror)
            ) from None


def digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def read_stamp() -> Dict[str, str]:
    """What .venv holds: {"kind": run|dev, "lock": digest, "python": path}; empty if unknown."""
    try:
        with open(STAMP) as file:
            stamp = json.load(file)
        return stamp if isinstance(stamp, dict) else {}
    except (OSError, ValueError):
        return {}


def is_current(kind: str) -> bool:
    """Whether .venv holds what `kind` needs: dev holds all of run."""
    stamp = read_stamp()
    have = stamp.get("kind")
    if have not in LOCKS or (kind == "dev" and have == "run"):
        return False
    fits = stamp.get("lock") == digest(os.path.join(ROOT, LOCKS[have]))
    return fits and probe(PYTHON) is not None


def make_environment(uv: str, interpreter: Optional[Interpreter]) -> None:
    """An empty .venv of the interpreter; without one, of a Python that uv fetches."""
    if probe(PYTHON) is not None:
        return
    command = [uv, "venv", "--quiet", "--clear", "--no-project", "--python"]
    if interpreter:
        run_quietly([*command, interpreter.path, VENV], "The environment could not be made.")
        return
    say("no Python 3.12 or newer was found; asking uv to fetch one")
    try:
        run_quietly([*command, "3.12", "--managed-python", VENV], "uv could not fetch one.")
    except Problem as why:
        broken = broken_pythons(dict(os.environ))
        raise Problem(
            "No Python 3.12 or newer that works was found on PATH or among pyenv's versions:"
            " install Python 3.12 (for example: pyenv install 3.12) and run this again. "
            + "".join(sentence.rstrip(".") + ". " for sentence in broken)
            + str(why)
        ) from None


def install(kind: str) -> None:
    """Bring .venv to the state of its lock. A dev environment stays one when `run` asks."""
    interpreter = find_interpreter(dict(os.environ))
    uv = find_uv([sys.executable] + ([interpreter.path] if interpreter else []))
    make_environment(uv, interpreter)
    if read_stamp().get("kind") == "dev":
        kind = "dev"
    lock = LOCKS[kind]
    say("installing what " + lock + " names into .venv")
    command = [uv, "pip", "sync", "--quiet", "--python", PYTHON, "--require-hashes", lock]
    run_quietly(command, "The packages of " + lock + " could not be installed.")
    stamp = {"kind": kind, "lock": digest(os.path.join(ROOT, lock)), "python": PYTHON}
    draft = STAMP + "." + str(os.getpid())
    with open(draft, "w") as file:
        json.dump(stamp, file)
    os.replace(draft, STAMP)


def prepare(kind: str) -> None:
    """Make .venv current; one process at a time, so that two makes may start together."""
    if is_current(kind):
        return
    check_writable()
    with open(os.path.join(TOOLS, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current(kind):
            install(kind)


def main(arguments: List[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in ("run", "dev", "uv"):
        print("usage: bootstrap.py run|dev|uv", file=sys.stderr)
        return 2
    try:
        if arguments[0] == "uv":
            check_writable()
            print(find_uv([sys.executable]))
        else:
            prepare(arguments[0])
    except Problem as problem:
        say(str(problem))
        return 1
    except KeyboardInterrupt:
        say("stopped before it was done")
        return 130
    return 0


def unsupported() -> NoReturn:
    sys.stderr.write("set-up  | Any Python from 3.8 on can run this set-up; this one is older.\n")
    sys.exit(1)


if __name__ == "__main__":
    if sys.version_info < (3, 8):  # noqa: UP036
        unsupported()
    sys.exit(main(sys.argv[1:]))

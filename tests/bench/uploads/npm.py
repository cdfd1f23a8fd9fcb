"""The npm packages of node/, installed once into var/npm; the scripts are copied beside them.

An ES module is looked up from the folder of the script that imports it, hence the copy.
"""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).parent / "node"
TARGET = ROOT / "var" / "npm"
OLDEST_NODE = 18
INSTALL_S = 300


class CannotInstall(Exception):
    """What is missing, as a sentence."""


def _check_node() -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise CannotInstall(f"{program} was not found: install Node.js {OLDEST_NODE} or newer.")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=60)
    major = said.stdout.strip().lstrip("v").partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST_NODE:
        found = said.stdout.strip() or said.stderr.strip()[:100]
        raise CannotInstall(f"Node.js {OLDEST_NODE} or newer is needed; this is {found}.")


def ensure(*more: Path) -> Path:
    """The folder with node_modules and the scripts, those of the folders `more` among them.

    Raises CannotInstall with a sentence.
    """
    _check_node()
    TARGET.mkdir(parents=True, exist_ok=True)
    with (TARGET / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in (path for folder in (SOURCE, *more) for path in folder.iterdir()):
            shutil.copyfile(path, TARGET / path.name)
        _install(hashlib.sha256((SOURCE / "package-lock.json").read_bytes()).hexdigest())
    return TARGET


def _install(wanted: str) -> None:
    stamp = TARGET / "node_modules" / ".installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    argv = ["npm", "ci", "--ignore-scripts", "--no-progress"]
    try:
        done = subprocess.run(
            argv, cwd=TARGET, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"npm ci did not end within {INSTALL_S} s.") from None
    if done.returncode:
        why = " ".join(line for line in done.stderr.splitlines() if "error" in line)[:300]
        raise CannotInstall(f"npm ci could not install the packages: {why}")
    stamp.write_text(wanted)

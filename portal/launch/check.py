"""`make check`: everything that can be said about the code without running its tests."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from portal.launch.process import ROOT

# What a production installation sets; the deploy check must then have nothing to say.
PRODUCTION = {
    "PUBLIC_URL": "https://portal.example",
    "ALLOWED_HOSTS": "portal.example",
    "SECRET_KEY": "only-for-the-check-" + "x8f2k1q9" * 8,
    "REDIS_URL": "redis://127.0.0.1:6379/0",
    "LOG_FORMAT": "json",
}
# Spelled in pieces, so that this file does not hold what it looks for.
REGISTRY_HOSTS = ["pypi" + ".org", "python" + "hosted", "npmjs" + ".org", "npmjs" + ".com"]
REGISTRY_HOSTS += ["deb.debian" + ".org", "index-url" + "=", "extra-index" + "-url"]
HOME_PATHS = [r"/ho" r"me/[a-z][\w.-]*/", r"(?<![\w}])/ro" r"ot/(?!\.)", r"/Us" r"ers/\w"]
FORBIDDEN = re.compile("|".join([*map(re.escape, REGISTRY_HOSTS), *HOME_PATHS]), re.IGNORECASE)
MANAGE = [sys.executable, "manage.py"]
STEPS: list[tuple[str, list[str], dict[str, str]]] = [
    ("format", [sys.executable, "-m", "ruff", "format", "--check", "."], {}),
    ("lint", [sys.executable, "-m", "ruff", "check", "."], {}),
    ("types", [sys.executable, "-m", "mypy", "portal", "jobs", "staging", "nodes"], {}),
    ("layers", [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"], {}),
    ("migrations", [*MANAGE, "makemigrations", "--check", "--dry-run"], {}),
    ("deploy", [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"], PRODUCTION),
]


def run_step(name: str, argv: list[str], env: dict[str, str]) -> bool:
    """Whether the step passed; what it printed is shown where it did not."""
    done = subprocess.run(
        argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False
    )
    print(f"{name:<12} {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
    if done.returncode:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def tracked_files() -> list[Path]:
    """The files that git would hand out, new ones that are not ignored among them."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    return [ROOT / os.fsdecode(name) for name in names if name]


def forbidden_lines(path: Path) -> list[str]:
    """Lines that name a package registry's host, or a folder of one person's machine."""
    try:
        text = path.read_text()
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        return []  # no text, or listed by git but removed
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN.search(line)
    ]


def check_contents() -> bool:
    found = [line for path in tracked_files() for line in forbidden_lines(path)]
    print(f"{'contents':<12} {'FAILED' if found else 'passed'}")
    for line in found:
        print(f"  {line}")
    return not found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="e31-check-") as folder:
        env = {"E31_DATA_DIR": folder, "LOG_LEVEL": "WARNING", "PUBLIC_URL": "", "DATABASE_URL": ""}
        results = [run_step(name, argv, env | own) for name, argv, own in STEPS]
    results.append(check_contents())
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

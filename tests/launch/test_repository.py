"""What must hold for the files of the repository: settings documented, layers, contents."""

import ast
import re
import sys
from pathlib import Path

import pytest

from portal.launch import check

ROOT = Path(__file__).parents[2]


def read_variables() -> set[str]:
    """Every name that settings and launcher read through an Env."""
    found = set()
    for name in ("settings.py", "launch/run.py"):
        path = ROOT / "portal" / name
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and owner.id == "env" and node.args:
                    found.add(ast.literal_eval(node.args[0]))
    return found


def documented() -> set[str]:
    text = (ROOT / "docs" / "SETTINGS.md").read_text()
    return set(re.findall(r"^\| `([A-Z0-9_]+)` \|", text, re.MULTILINE))


def test_every_setting_is_documented():
    assert len(read_variables()) > 30
    assert read_variables() <= documented()


def test_nothing_is_documented_that_is_not_read():
    assert documented() - read_variables() <= {"NO_COLOR"}


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", sorted((ROOT / "nodes" / "agent").rglob("*.py")), ids=str)
def test_the_agent_needs_nothing_but_itself_and_nvml(path):
    for name in imports_of(path):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names or top == "pynvml" or name.startswith("nodes.agent")


def test_architecture_names_files_that_are_there():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    names = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|html|js|md|css))`", text))
    assert len(names) > 20
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_decisions_are_short():
    for path in (ROOT / "docs" / "adr").glob("*.md"):
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
        assert len(path.read_text().splitlines()) <= 40, path.name


@pytest.mark.parametrize(
    "line",
    [
        "https://pypi" + ".org/simple",
        "open('/home" + "/alice/x')",
        "--index-url" + "=x",
        "/Users" + "/bob",
    ],
)
def test_contents_that_are_found(line, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "file.txt").write_text(f"fine\n{line}\n")
    assert check.forbidden_lines(tmp_path / "file.txt") == [f"file.txt:2: {line}"]


def test_contents_of_a_picture_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "x.png").write_bytes(b"\x89PNG\xff\xfe")
    assert check.forbidden_lines(tmp_path / "x.png") == []

"""Where the work sees the agent's own Python, and that no home folder shows by it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from nodes.agent import interpreter, sandbox


@pytest.fixture
def prefix(tmp_path, monkeypatch) -> Path:
    """A Python in somebody's folder, with its name and the folder that it really is."""
    real = tmp_path / "versions" / "3.12.9"
    (real / "bin").mkdir(parents=True)
    name = tmp_path / "current"
    name.symlink_to(real)
    monkeypatch.setattr(sys, "base_prefix", str(name))
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_ENABLE_SHARED": 0}.get)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return name


@pytest.mark.parametrize("where", ["/usr", "/usr/local", "/opt/py"])
def test_a_python_that_names_nobody_stays(where, prefix, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "base_prefix", where)
    assert not interpreter.moves()
    assert interpreter.inside() == where
    assert list(interpreter.binds()) == (["--ro-bind", where, where] if "opt" in where else [])
    interpreter.write_scripts(tmp_path / "bin")
    assert not (tmp_path / "bin").exists()


def test_one_in_a_users_folder_moves(prefix, tmp_path):
    real = str(prefix.resolve())
    assert list(interpreter.binds()) == ["--ro-bind", real, "/opt/python"]
    at = sandbox.places(tmp_path, isolated=True)
    variables = sandbox.variables({"environment": {}}, at)
    assert variables["PATH"].startswith("/run/e31/bin:/opt/python/bin:/usr/local/bin:")
    assert "LD_LIBRARY_PATH" not in variables


def test_without_a_sandbox_it_is_where_it_is(prefix, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere/lib")
    at = sandbox.places(tmp_path, isolated=False)
    variables = sandbox.variables({"environment": {}}, at)
    assert variables["PATH"].startswith(f"{prefix}/bin:/usr/local/bin:")
    assert variables["LD_LIBRARY_PATH"] == "/somewhere/lib"


def test_its_shared_library_is_found_after_the_jobs_own(prefix, tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_ENABLE_SHARED": 1}.get)
    at = sandbox.places(tmp_path, isolated=True)
    assert sandbox.variables({"environment": {}}, at)["LD_LIBRARY_PATH"] == "/opt/python/lib"
    given = {"environment": {"LD_LIBRARY_PATH": "/data/cuda"}}
    assert sandbox.variables(given, at)["LD_LIBRARY_PATH"] == "/data/cuda:/opt/python/lib"


def test_of_the_agents_libraries_the_work_gets_those_it_can_see(prefix, tmp_path, monkeypatch):
    outside = [f"{prefix}/lib", f"{prefix.resolve()}/lib", f"{prefix}-old", "/usr/lib/x", "/mnt/y"]
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(outside))
    at = sandbox.places(tmp_path, isolated=True)
    assert sandbox.variables({"environment": {}}, at)["LD_LIBRARY_PATH"] == (
        "/opt/python/lib:/usr/lib/x"
    )


def test_scripts_start_the_python_that_the_work_sees(prefix, tmp_path):
    scripts = {
        "plain": f"#!{prefix}/bin/python3.12\nprint('{prefix}/bin is only text')\n",
        "real": f"#!{prefix.resolve()}/bin/python3.12 -E\n",
        "long": f"#!/bin/sh\n'''exec' \"{prefix}/bin/python3.12\" \"$0\" \"$@\"\n' '''\n",
        "other": "#!/bin/sh\necho\n",
        "program": "\x7fELF",
    }
    for name, text in scripts.items():
        (prefix / "bin" / name).write_text(text)
    (prefix / "bin" / "broken").symlink_to("nowhere")
    (prefix / "bin" / "folder").mkdir()
    folder = tmp_path / "bin"
    for _ in range(2):  # a supervisor that starts again repeats it
        interpreter.write_scripts(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["long", "plain", "real"]
    assert (folder / "plain").read_text().startswith("#!/opt/python/bin/python3.12\n")
    assert (folder / "real").read_text() == "#!/opt/python/bin/python3.12 -E\n"
    assert '"/opt/python/bin/python3.12" "$0"' in (folder / "long").read_text()
    assert os.access(folder / "plain", os.X_OK)


@pytest.mark.sandbox
def test_this_python_really_starts_there(tmp_path):
    bwrap, why = sandbox.probe()
    if not bwrap:
        pytest.skip(why)
    if not interpreter.moves():
        pytest.skip(f"{sys.base_prefix} names nobody")
    sandbox.prepare(tmp_path)
    at = sandbox.places(tmp_path, isolated=True)
    variables = sandbox.variables({"environment": {}}, at)
    program = "import sys, ssl, sqlite3; print(sys.base_prefix)"
    done = subprocess.run(
        [bwrap, *sandbox.bwrap_arguments(tmp_path, variables, [], 2**20), "python3", "-c", program],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("/opt/python\n", "")

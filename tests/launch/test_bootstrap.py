"""The set-up: which interpreter it chooses, what it says when something is missing."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "portal" / "launch" / "bootstrap.py"


@pytest.fixture
def bootstrap(tmp_path, monkeypatch):
    """The script as a module, with a repository of its own in tmp_path."""
    spec = importlib.util.spec_from_file_location("bootstrap_under_test", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    places = {
        "ROOT": "",
        "VENV": ".venv",
        "PYTHON": ".venv/bin/python",
        "STAMP": ".venv/installed.json",
        "TOOLS": "var/tools",
    }
    for name, below in places.items():
        monkeypatch.setattr(module, name, str(tmp_path / below))
    for lock in ("requirements.lock", "requirements-dev.lock"):
        (tmp_path / lock).write_text(f"# {lock}\n")
    return module


def fake_python(path: Path, version: str, *, level="final", kind="CPython") -> Path:
    """A program that answers the probe like an interpreter of this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    major, minor, micro = version.split(".")
    path.write_text(
        f'#!/bin/sh\necho \'[{major}, {minor}, {micro}, "{level}", "{kind}", "{path}"]\'\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def no_own_python(bootstrap, monkeypatch, tmp_path):
    """As if the set-up were run by a Python that does not fit."""
    old = fake_python(tmp_path / "old" / "python3", "3.9.2")
    monkeypatch.setattr(bootstrap.sys, "executable", str(old))


def env_with(*folders: Path, home: Path) -> dict:
    return {"PATH": os.pathsep.join(map(str, folders)), "HOME": str(home)}


def test_it_can_be_read_by_python_3_8():
    assert ast.parse(SCRIPT.read_text(), feature_version=(3, 8))


def test_it_imports_the_standard_library_only():
    tree = ast.parse(SCRIPT.read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


@pytest.mark.usefixtures("no_own_python")
class TestInterpreter:
    def test_on_path(self, bootstrap, tmp_path):
        wanted = fake_python(tmp_path / "bin" / "python3.13", "3.13.1")
        found = bootstrap.find_interpreter(env_with(tmp_path / "bin", home=tmp_path))
        assert found.path == str(wanted)

    def test_a_plain_python3_that_is_new_enough(self, bootstrap, tmp_path):
        wanted = fake_python(tmp_path / "bin" / "python3", "3.14.0")
        found = bootstrap.find_interpreter(env_with(tmp_path / "bin", home=tmp_path))
        assert found.path == str(wanted)

    def test_the_one_that_tests_run_on_is_preferred(self, bootstrap, tmp_path):
        fake_python(tmp_path / "a" / "python3", "3.14.0")
        wanted = fake_python(tmp_path / "b" / "python3.12", "3.12.4")
        env = env_with(tmp_path / "a", tmp_path / "b", home=tmp_path)
        assert bootstrap.find_interpreter(env).path == str(wanted)

    def test_among_pyenvs_versions(self, bootstrap, tmp_path):
        fake_python(tmp_path / ".pyenv/versions/3.11.7/bin/python", "3.11.7")
        wanted = fake_python(tmp_path / ".pyenv/versions/3.12.1/bin/python", "3.12.1")
        assert bootstrap.find_interpreter(env_with(home=tmp_path)).path == str(wanted)

    def test_pyenv_root_wins_over_home(self, bootstrap, tmp_path):
        wanted = fake_python(tmp_path / "py/versions/3.12.1/bin/python", "3.12.1")
        env = env_with(home=tmp_path / "nobody") | {"PYENV_ROOT": str(tmp_path / "py")}
        assert bootstrap.find_interpreter(env).path == str(wanted)

    def test_a_shim_that_stands_for_nothing_is_passed_over(self, bootstrap, tmp_path):
        shim = tmp_path / "shims" / "python3.12"
        shim.parent.mkdir()
        shim.write_text("#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2\nexit 127\n")
        shim.chmod(0o755)
        wanted = fake_python(tmp_path / "bin" / "python3.12", "3.12.1")
        env = env_with(tmp_path / "shims", tmp_path / "bin", home=tmp_path)
        assert bootstrap.find_interpreter(env).path == str(wanted)

    def test_a_shim_turns_into_what_it_stands_for(self, bootstrap, tmp_path):
        real = fake_python(tmp_path / "real" / "python3.12", "3.12.1")
        shim = tmp_path / "shims" / "python3.12"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
        shim.chmod(0o755)
        found = bootstrap.find_interpreter(env_with(tmp_path / "shims", home=tmp_path))
        assert found.path == str(real)

    @pytest.mark.parametrize(
        "fields",
        [
            {"version": "3.11.9"},
            {"version": "2.7.18"},
            {"version": "3.15.0", "level": "alpha"},
            {"version": "3.12.1", "kind": "PyPy"},
        ],
    )
    def test_what_does_not_fit(self, bootstrap, tmp_path, fields):
        version = fields.pop("version")
        fake_python(tmp_path / "bin" / "python3", version, **fields)
        assert bootstrap.find_interpreter(env_with(tmp_path / "bin", home=tmp_path)) is None

    def test_a_program_that_answers_nonsense(self, bootstrap, tmp_path):
        path = fake_python(tmp_path / "bin" / "python3", "3.12.1")
        path.write_text("#!/bin/sh\necho '[1, 2'\n")
        assert bootstrap.find_interpreter(env_with(tmp_path / "bin", home=tmp_path)) is None

    def test_relative_folders_on_path_are_not_run(self, bootstrap, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        fake_python(tmp_path / "bin" / "python3.12", "3.12.1")
        assert bootstrap.find_interpreter({"PATH": "bin:", "HOME": str(tmp_path / "none")}) is None


def fake_uv(path: Path, *, says: str = "", code: int = 0) -> Path:
    """A uv that knows its version; every other command ends as told."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "uv 9.9.9"; exit 0; fi\n'
        f"echo '{says}' >&2\nexit {code}\n"
    )
    path.chmod(0o755)
    return path


def test_no_interpreter_and_none_to_fetch(bootstrap, tmp_path):
    uv = fake_uv(tmp_path / "uv", says="error: No download found", code=1)
    with pytest.raises(bootstrap.Problem, match=r"No Python 3\.12 or newer that works was"):
        bootstrap.make_environment(str(uv), None)


def test_a_python_that_is_there_and_does_not_start_is_named(bootstrap, tmp_path, monkeypatch):
    broken = tmp_path / "bin" / "python3.12"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'libpython3.12.so.1.0: cannot open' >&2; exit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr(bootstrap.os, "environ", env_with(tmp_path / "bin", home=tmp_path))
    uv = fake_uv(tmp_path / "uv", says="no mirror here", code=2)
    with pytest.raises(bootstrap.Problem) as caught:
        bootstrap.make_environment(str(uv), None)
    assert f"{broken} does not start: libpython3.12.so.1.0: cannot open. " in str(caught.value)
    assert str(caught.value).endswith("uv could not fetch one. It said: no mirror here")


def test_no_network_is_said_in_a_sentence(bootstrap, tmp_path):
    uv = fake_uv(tmp_path / "uv", says="error sending request: dns error", code=2)
    with pytest.raises(bootstrap.Problem, match="The package index cannot be reached"):
        bootstrap.run_quietly([str(uv), "pip"], "It could not be installed.")


def test_another_failure_shows_what_was_said(bootstrap, tmp_path):
    uv = fake_uv(tmp_path / "uv", says="hash mismatch for django", code=2)
    with pytest.raises(bootstrap.Problem, match="hash mismatch for django"):
        bootstrap.run_quietly([str(uv), "pip"], "It could not be installed.")


@pytest.mark.parametrize("does", ["exit 127", "echo uv 0.4.30", "echo hello"])
def test_a_uv_that_does_not_fit_is_passed_over(bootstrap, tmp_path, monkeypatch, does):
    broken = tmp_path / "bin" / "uv"
    broken.parent.mkdir()
    broken.write_text(f"#!/bin/sh\n{does}\n")
    broken.chmod(0o755)
    own = fake_uv(tmp_path / "var/tools/uv/bin/uv")
    monkeypatch.setenv("PATH", f"{broken.parent}:/bin:/usr/bin")
    assert bootstrap.find_uv([]) == str(own)


def test_neither_uv_nor_pip_nor_ensurepip(bootstrap, tmp_path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(bootstrap.Problem, match="apt install python3-venv"):
        bootstrap.python_with_pip([str(python)])


def test_a_folder_that_cannot_be_written(bootstrap, tmp_path):
    (tmp_path / "var").write_text("a file where a folder should be")
    with pytest.raises(bootstrap.Problem, match=r"This folder cannot be written to: .*var"):
        bootstrap.check_writable()


class TestStamp:
    @pytest.fixture
    def installed(self, bootstrap, tmp_path):
        fake_python(tmp_path / ".venv" / "bin" / "python", "3.12.1")

        def write(kind: str) -> None:
            lock = str(tmp_path / bootstrap.LOCKS[kind])
            Path(bootstrap.STAMP).write_text(
                f'{{"kind": "{kind}", "lock": "{bootstrap.digest(lock)}"}}'
            )

        return write

    def test_nothing_is_installed_twice(self, bootstrap, installed, monkeypatch):
        installed("run")
        monkeypatch.setattr(bootstrap, "install", lambda kind: pytest.fail("installed again"))
        bootstrap.prepare("run")
        assert bootstrap.is_current("run")

    def test_dev_holds_all_of_run(self, bootstrap, installed):
        installed("dev")
        assert bootstrap.is_current("run")
        assert bootstrap.is_current("dev")

    def test_run_is_not_enough_for_dev(self, bootstrap, installed):
        installed("run")
        assert not bootstrap.is_current("dev")

    def test_a_changed_lock_is_installed(self, bootstrap, installed, tmp_path):
        installed("run")
        (tmp_path / "requirements.lock").write_text("django==99\n")
        assert not bootstrap.is_current("run")

    def test_a_removed_interpreter_is_noticed(self, bootstrap, installed, tmp_path):
        installed("run")
        (tmp_path / ".venv" / "bin" / "python").unlink()
        assert not bootstrap.is_current("run")

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "other"}', '{"kind": "run"}'])
    def test_a_damaged_stamp_counts_as_none(self, bootstrap, installed, text):
        installed("run")
        Path(bootstrap.STAMP).write_text(text)
        assert not bootstrap.is_current("run")


def test_as_a_script_it_explains_itself():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "usage: bootstrap.py" in done.stderr


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_locks_hold_hashes_and_no_address(lock):
    text = (SCRIPT.parents[2] / lock).read_text()
    names = re.findall(r"^([a-z0-9][\w.-]*)==[^\s;]+", text, re.MULTILINE | re.IGNORECASE)
    assert len(names) > 20
    assert text.count("--hash=sha256:") >= len(names)
    assert "://" not in text


def test_the_dev_lock_holds_all_of_the_run_lock():
    def pins(name: str) -> set[str]:
        text = (SCRIPT.parents[2] / name).read_text()
        return set(re.findall(r"^(\S+==[^\s;]+)", text, re.MULTILINE))

    assert pins("requirements.lock") <= pins("requirements-dev.lock")

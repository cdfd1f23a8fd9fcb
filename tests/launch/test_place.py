"""What stops a start: one sentence each."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from portal.launch.errors import CannotStart
from portal.launch.place import (
    check_database,
    check_socket_path,
    check_writable,
    lock_folder,
    open_port,
)
from portal.launch.run import agent_env, local_url

ROOT = Path(__file__).parents[2]


def start(command: str, **env: str) -> subprocess.CompletedProcess:
    """Run the launcher where it must refuse to start."""
    return subprocess.run(
        [sys.executable, "-m", "portal.launch", command],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def taken_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port(taken_port):
    with pytest.raises(CannotStart, match=f"Port {taken_port} on 127.0.0.1 is taken"):
        open_port("127.0.0.1", taken_port)


def test_any_free_port():
    with open_port("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0
        assert listener.get_inheritable()


def test_an_address_that_is_not_here():
    with pytest.raises(CannotStart, match="cannot be used"):
        open_port("192.0.2.1", 0)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotStart, match="cannot be written to"):
        check_writable(tmp_path / "file" / "var")


def test_two_runs_on_one_folder(tmp_path):
    sentence = rf"Another run \(process {os.getpid()}\)"
    with lock_folder(tmp_path), pytest.raises(CannotStart, match=sentence):
        lock_folder(tmp_path)
    lock_folder(tmp_path).close()


def test_a_folder_too_deep_for_a_socket(tmp_path):
    with pytest.raises(CannotStart, match="too long for a socket"):
        check_socket_path(tmp_path / ("x" * 120) / "broker.sock")


def test_the_command_says_it_in_one_sentence(taken_port, tmp_path):
    done = start("run", E31_PORT=str(taken_port), E31_DATA_DIR=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert f"Port {taken_port} on 127.0.0.1 is taken" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"E31_PORT": "eighty"}, "E31_PORT must be a whole number"),
        ({"E31_PORT": "65536"}, "E31_PORT must be a whole number"),
        ({"E31_DATA_DIR": "var"}, "E31_DATA_DIR must be an absolute path"),
        ({"E31_DATA_DIR": "/proc/none"}, "cannot be written to"),
        ({"OUTPUT_WINDOW_S": "-3"}, "OUTPUT_WINDOW_S must be a whole number"),
    ],
)
def test_settings_that_cannot_be_read(env, sentence, tmp_path):
    done = start("demo", **{"E31_PORT": "0", "E31_DATA_DIR": str(tmp_path)} | env)
    assert done.returncode == 1
    assert sentence in done.stdout
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_unknown_commands_are_refused():
    done = start("fly")
    assert done.returncode == 2
    assert "usage:" in done.stderr


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),  # noqa: S104
        ("::1", "http://[::1]:8000"),
        ("::", "http://[::1]:8000"),
    ],
)
def test_how_agents_reach_the_portal(host, url):
    assert local_url(host, 8000) == url


def test_agents_get_none_of_the_portals_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@db/x")
    (tmp_path / "enrolment-token").write_text("once\n")
    env = agent_env(tmp_path)
    assert env["E31_ENROL_TOKEN"] == "once"
    assert "hunter2" not in str(env)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_database_that_cannot_be_written_is_said(tmp_path):
    database = tmp_path / "portal.sqlite3"
    database.touch(mode=0o400)
    with pytest.raises(CannotStart, match="cannot be written to"):
        check_database(database)

"""The data folder and the database are their user's only, new ones and those of before."""

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from portal.private import close_database, close_folder, database_files, open_to_others

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_and_one_that_was_open(tmp_path):
    close_folder(tmp_path / "a" / "new")
    assert mode(tmp_path / "a" / "new") == 0o700
    (tmp_path / "old").mkdir(mode=0o755)
    close_folder(tmp_path / "old")
    assert mode(tmp_path / "old") == 0o700


def test_a_folder_that_many_share_is_left_alone(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    close_folder(shared)
    assert mode(shared) == 0o1777


def test_whatever_sqlite_keeps_beside_a_new_database(tmp_path):
    close_database(tmp_path / "x.sqlite3")
    with sqlite3.connect(tmp_path / "x.sqlite3") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
        beside = [path for path in database_files(tmp_path / "x.sqlite3") if path.exists()]
        assert len(beside) == 3
        assert [mode(path) for path in beside] == [0o600] * 3
    connection.close()


def test_a_database_of_before(tmp_path):
    files = database_files(tmp_path / "x.sqlite3")
    for path in files:
        path.touch(mode=0o644)
    assert all(map(open_to_others, files))
    close_database(tmp_path / "x.sqlite3")
    assert not any(map(open_to_others, files))


def test_any_start_closes_an_installation_of_before(tmp_path):
    data = tmp_path / "var"
    data.mkdir(mode=0o755)
    (data / "portal.sqlite3").touch(mode=0o644)
    env = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"} | {"E31_DATA_DIR": str(data)}
    subprocess.run([sys.executable, "manage.py", "check"], cwd=ROOT, env=env, check=True)
    assert mode(data) == 0o700
    assert mode(data / "portal.sqlite3") == 0o600

"""An installation of its own for tests that kill processes: database, store, broker, workers."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.staging.live import until

SETUP = """
from portal.teams.models import Membership, Team, User
team = Team.objects.create(name="Climate")
user = User.objects.create_user("owner@climate.example", "correct horse battery")
Membership.objects.create(team=team, user=user, role="admin")
"""
BEGIN = """
import json, sys
from portal.teams.models import Team
from staging import services
from staging.sync import connections, sources
from staging.sync.states import SourceKind
given = json.loads({given!r})
team = Team.objects.get()
connection = connections.create_connection(team=team, actor="owner@climate.example", **given)
dataset = services.create_dataset(team=team, name=given["name"], actor="owner@climate.example")
choice = sources.Choice(SourceKind.S3, connection)
source = sources.create_source(dataset=dataset, choice=choice, actor="owner@climate.example")
print(source.pk)
"""


class Place:
    """SQLite in a folder, or a database of its own on the server that DATABASE_URL names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        given = os.environ.get("DATABASE_URL", "")
        self.name = f"sync_{secrets.token_hex(6)}" if given.startswith("postgres") else ""
        self.server = given
        self.env = os.environ | {
            "E31_DATA_DIR": str(folder),
            "DATABASE_URL": self._url() if self.name else "",
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DISK_FLOOR_BYTES": "0",
            "REDIS_URL": "",
            "SYNC_ALLOWED_NETWORKS": "127.0.0.0/8",
            "SYNC_WORKERS": "3",
            "LOG_LEVEL": "WARNING",
        }

    def _url(self) -> str:
        return urlunsplit(urlsplit(self.server)._replace(path=f"/{self.name}"))

    def _admin(self, sql: str) -> None:
        import psycopg

        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql)

    def start(self) -> None:
        if self.name:
            self._admin(f'CREATE DATABASE "{self.name}"')
        self.manage("migrate", "--verbosity", "0")
        self.shell(SETUP)
        self.start_broker()

    def start_broker(self) -> None:
        from portal.launch.place import broker_binary
        from portal.launch.run import answers

        folder = self.folder / "broker"
        shutil.rmtree(folder, ignore_errors=True)  # what an earlier one left: its queue is lost
        folder.mkdir(mode=0o700)
        socket = folder / "broker.sock"
        argv = [broker_binary(), "--port", "0", "--unixsocket", str(socket), "--save", ""]
        self.run([*argv, "--dir", str(folder), "--loglevel", "warning"])
        until(lambda: answers(socket), "the broker answers")

    def run(self, argv: list[str]) -> subprocess.Popen:
        log = (self.folder / "log").open("ab")
        process = subprocess.Popen(
            argv, env=self.env, stdout=log, stderr=log, start_new_session=True
        )
        self.processes.append(process)
        return process

    def celery(self, *arguments: str) -> subprocess.Popen:
        return self.run([sys.executable, "-m", "celery", "-A", "portal.celery", *arguments])

    def worker(self) -> subprocess.Popen:
        """A worker of one process: to kill it is to kill whatever it does."""
        name = f"w{secrets.token_hex(4)}@%h"
        options = ("--pool", "solo", "--queues", "transfer", "-n", name, "--loglevel", "WARNING")
        return self.celery("worker", *options, "--without-gossip", "--without-mingle")

    def beat(self) -> subprocess.Popen:
        return self.celery("beat", "--schedule", str(self.folder / "beat"), "--loglevel", "WARNING")

    def kill(self, process: subprocess.Popen) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                self.kill(process)
        if self.name:
            self._admin(f'DROP DATABASE "{self.name}" WITH (FORCE)')

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shell(self, code: str) -> str:
        return self.manage("shell", "--verbosity", "0", "-c", code).strip()

    def begin(self, **given: Any) -> int:
        """A source that fills a new dataset; its key."""
        return int(self.shell(BEGIN.format(given=json.dumps(given))).splitlines()[-1])

    def ask(self, sql: str) -> list[tuple]:
        """Rows, straight from the database."""
        if self.name:
            import psycopg

            with psycopg.connect(self._url()) as connection:
                return connection.execute(sql).fetchall()  # type: ignore[arg-type]
        with contextlib.closing(
            sqlite3.connect(self.folder / "portal.sqlite3", timeout=20)
        ) as connection:
            return connection.execute(sql).fetchall()

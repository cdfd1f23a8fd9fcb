"""`manage.py doctor`: each thing that can be wrong is said in a sentence."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from django.core.management import call_command

from nodes.models import Installation
from portal.base.clock import db_now
from portal.pages import checkup, parts
from tests.factories import make_node


def said(subject) -> str:
    return "\n".join(f"{finding.level}: {finding.sentence}" for finding in subject())


class Portal(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def portal(settings) -> Iterator[type[Portal]]:
    """Something that answers at the portal's address."""
    handler = type("Handler", (Portal,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        settings.PUBLIC_URL = f"http://127.0.0.1:{server.server_port}"
        yield handler
        server.shutdown()
        thread.join()


@pytest.fixture
def healthy(db, settings, tmp_path, monkeypatch, portal) -> None:
    Installation.objects.update_or_create(id=1, defaults={"last_pass_at": db_now()})
    monkeypatch.setattr(parts, "broker", lambda: parts.Part(True))
    monkeypatch.setattr(checkup.sandbox, "probe", lambda: ("/usr/bin/bwrap", ""))
    settings.STATIC_ROOT = tmp_path
    (tmp_path / "staticfiles.json").write_text("{}")


def test_a_healthy_installation_has_no_problem(healthy, capsys):
    call_command("doctor")
    out = capsys.readouterr().out
    assert "No problem found." in out
    assert "problem:" not in out


def test_problems_give_exit_code_1(healthy, settings, tmp_path, capsys):
    settings.STATIC_ROOT = tmp_path / "elsewhere"
    with pytest.raises(SystemExit) as caught:
        call_command("doctor", "--quiet")
    assert caught.value.code == 1
    out = capsys.readouterr().out
    assert "problem: Static files are not collected" in out
    assert "1 problem found." in out
    assert "fine:" not in out


def test_a_worker_that_cannot_reach_the_portal_counts_no_silence(portal, settings):
    assert "fine: The portal answers" in said(checkup.silence)
    portal.status = 503
    assert "silence of a node is never counted" in said(checkup.silence)
    portal.status = 404
    assert "fine" in said(checkup.silence)
    with socket.socket() as taken:  # bound and not listening: refused at once
        taken.bind(("127.0.0.1", 0))
        settings.PUBLIC_URL = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert f"problem: {settings.PUBLIC_URL}/healthz" in said(checkup.silence)


def test_keys_that_others_can_read(settings):
    folder = settings.DATA_DIR / "keys"
    folder.mkdir(mode=0o700)
    (folder / "secret-key").write_text("x")
    (folder / "secret-key").chmod(0o644)
    assert f"chmod go= {folder / 'secret-key'}" in said(checkup.keys)
    (folder / "secret-key").chmod(0o600)
    folder.chmod(0o750)
    assert f"chmod go= {folder}" in said(checkup.keys)
    folder.chmod(0o700)
    assert "problem" not in said(checkup.keys)


def test_data_that_others_can_read(settings, tmp_path, monkeypatch):
    data = tmp_path / "var"
    data.mkdir(mode=0o700)
    database = data / "portal.sqlite3"
    database.touch(mode=0o600)
    settings.DATA_DIR = data
    monkeypatch.setitem(settings.DATABASES["default"], "NAME", str(database))
    monkeypatch.setattr(checkup, "connection", SimpleNamespace(vendor="sqlite"))
    assert said(checkup.data) == "fine: Only this installation's user can read its data."
    for path, mode in ((data, 0o750), (database, 0o640), (data / "portal.sqlite3-wal", 0o604)):
        path.touch()
        path.chmod(mode)
        assert f"problem: {path} can be read" in said(checkup.data)


def test_keys_from_the_environment_need_no_files(settings):
    assert "come from the environment" in said(checkup.keys)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"PUBLIC_URL": "https://gpu.example", "SECURE": True}, "ALLOWED_HOSTS does not"),
        ({"ALLOWED_HOSTS": ["*"]}, "ALLOWED_HOSTS contains *"),
        ({"PUBLIC_URL": "http://gpu.example", "ALLOWED_HOSTS": ["gpu.example"]}, "behind HTTPS"),
        ({"PUBLIC_URL": "http://gpu.example", "DEBUG": True}, "DEBUG is on at a public address"),
        ({"BEHIND_PROXY": True}, "BEHIND_PROXY is set"),
    ],
)
def test_addresses_that_do_not_fit_together(settings, changes, sentence):
    for name, value in changes.items():
        setattr(settings, name, value)
    assert sentence in said(checkup.address)
    assert "problem" in said(checkup.address)


def test_a_public_https_address_is_fine(settings):
    settings.PUBLIC_URL, settings.SECURE = "https://gpu.example", True
    settings.ALLOWED_HOSTS = [".example"]
    assert said(checkup.address) == "fine: The portal's address is https://gpu.example."


def test_ipv6_hosts_are_compared_as_hosts(settings):
    settings.PUBLIC_URL = "http://[::1]:8000"
    assert "problem" not in said(checkup.address)


def test_migrations_that_wait(db, monkeypatch):
    monkeypatch.setattr(checkup.MigrationExecutor, "migration_plan", lambda *args: [1, 2])
    assert "2 migrations have not been applied" in said(checkup.database)


def test_an_old_python(monkeypatch):
    monkeypatch.setattr(checkup.sys, "version_info", (3, 11, 2))
    assert "problem: Python is 3.11.2" in said(checkup.python)


def test_nodes_that_need_a_look(db):
    assert "No node has been made" in said(checkup.nodes)
    make_node("good")
    make_node("gone", state="offline")
    make_node("odd", state="quarantined", reason="files of a lease remain")
    make_node("new", state="pending")
    make_node("bare", isolation="process")
    make_node("past", state="retired")
    found = said(checkup.nodes)
    assert "fine: Node good is online." in found
    assert "problem: Node gone is offline; it was last heard of" in found
    assert "problem: Node odd is quarantined: files of a lease remain" in found
    assert "note: Node new has not enrolled." in found
    assert "problem: Node bare cannot isolate work and gets none" in found
    assert "past" not in found


def test_a_node_that_may_run_work_without_isolation_is_said(db, settings):
    settings.ALLOW_PROCESS_ISOLATION = True
    make_node("bare", isolation="process")
    assert "problem: Node bare runs work without isolation." in said(checkup.nodes)


def test_mail_that_is_not_sent_is_said(settings):
    settings.MAILERS = {"default": {"BACKEND": settings.NO_MAIL}}
    assert "signin_link" in said(checkup.mailing)
    settings.MAILERS = {"default": {"BACKEND": settings.SMTP}}
    assert said(checkup.mailing) == "fine: Mail goes out by SMTP."


def test_no_isolation_here_is_a_note(monkeypatch):
    monkeypatch.setattr(checkup.sandbox, "probe", lambda: ("", "No bwrap was found."))
    assert "note: An agent on this machine could not isolate work. No bwrap" in said(
        checkup.isolation
    )


def test_the_store_and_its_floor(settings):
    assert "can be written" in said(checkup.store)
    settings.DISK_FLOOR_BYTES = 2**62
    assert "problem: The store's disk is too full" in said(checkup.store)


def test_what_is_away_is_named_with_its_place(settings, tmp_path):
    settings.REDIS_URL = f"unix://{tmp_path}/nothing.sock"
    assert f"{tmp_path}/nothing.sock" in said(checkup.broker)
    (tmp_path / "file").write_text("")
    settings.STORE_ROOT = tmp_path / "file" / "store"
    assert str(settings.STORE_ROOT) in said(checkup.store)


def test_operators_are_counted(db, operator):
    assert said(checkup.people) == "fine: Operators: 1."

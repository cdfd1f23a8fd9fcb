"""/healthz and /readyz: what they say when all is well, and when each part is away."""

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.test import Client

from nodes.models import Installation
from portal.base.clock import db_now
from portal.pages import parts


@pytest.fixture
def passed(db) -> Installation:
    """A scheduling pass was made just now."""
    return Installation.objects.update_or_create(id=1, defaults={"last_pass_at": db_now()})[0]


@pytest.fixture
def broker_answers(monkeypatch):
    class Answers:
        def __enter__(self) -> "Answers":
            return self

        def __exit__(self, *args: object) -> None:
            return None

        def ping(self) -> bool:
            return True

    monkeypatch.setattr(parts.redis.Redis, "from_url", lambda *args, **kwargs: Answers())


def test_healthz_touches_nothing_outside_the_process(client):
    """No database mark: any query would fail this test. The cookie names a session all the same."""
    client.cookies["sessionid"] = "a" * 32
    response = client.get("/healthz")
    assert (response.status_code, response.content) == (200, b"ok\n")
    assert client.post("/healthz").status_code == 405


def test_ready_when_every_part_is(client, passed, broker_answers):
    response = client.get("/readyz")
    body = response.json()
    assert response.status_code == 200
    assert body["ready"] is True
    assert set(body["parts"]) == {"database", "broker", "store", "scheduler"}
    assert body["parts"]["store"]["free_bytes"] > 0
    assert 0 <= body["parts"]["scheduler"]["age_s"] < 60
    assert "no-store" in response["Cache-Control"]


def test_a_broker_that_is_away_is_named(client, passed, settings, tmp_path):
    settings.REDIS_URL = f"unix://{tmp_path}/nothing.sock"
    response = client.get("/readyz")
    body = response.json()
    assert response.status_code == 503
    assert body["ready"] is False
    assert "broker does not answer" in body["parts"]["broker"]["why"]
    assert body["parts"]["database"]["ok"] is True


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "unix:///", "redis://[::1"])
def test_broken_broker_addresses_are_no_crash(db, settings, url):
    settings.REDIS_URL = url
    assert not parts.broker().ok


def test_passes_that_stopped_are_named_with_their_age(client, passed, broker_answers):
    Installation.objects.update(last_pass_at=db_now() - timedelta(minutes=5))
    response = client.get("/readyz")
    assert response.status_code == 503
    part = response.json()["parts"]["scheduler"]
    assert part["age_s"] == pytest.approx(300, abs=5)
    assert "5 min ago" in part["why"]


def test_no_pass_yet_is_not_ready(client, db, broker_answers):
    part = client.get("/readyz").json()["parts"]["scheduler"]
    assert (part["ok"], "No scheduling pass" in part["why"]) == (False, True)


def test_a_store_that_cannot_be_written_is_named(
    client, passed, broker_answers, settings, tmp_path
):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    settings.STORE_ROOT = in_the_way / "store"
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"]["store"]["why"] == "The store cannot be written."
    assert str(tmp_path) not in response.content.decode()


def test_the_probe_of_the_store_leaves_nothing(db, settings):
    assert parts.store().ok
    assert list(settings.STORE_ROOT.iterdir()) == []


def test_a_full_disk_warns_but_people_can_still_delete(client, passed, broker_answers, settings):
    settings.DISK_FLOOR_BYTES = 2**62
    response = client.get("/readyz")
    assert response.status_code == 200
    assert "uploads are refused" in response.json()["parts"]["store"]["warning"]


def test_a_database_that_is_away_is_named(client, db, broker_answers, monkeypatch):
    def away() -> None:
        raise OperationalError("unable to open database file\nsecond line")

    monkeypatch.setattr(parts, "db_now", away)
    response = client.get("/readyz")
    body = response.json()
    assert response.status_code == 503
    assert body["parts"]["database"]["why"] == "The database cannot be reached."
    assert "unable to open" not in response.content.decode()
    assert body["parts"]["scheduler"]["ok"] is False


def test_probes_over_plain_http_are_not_redirected(db, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert Client().get("/healthz").status_code == 200
    assert Client().get("/team/").status_code == 301

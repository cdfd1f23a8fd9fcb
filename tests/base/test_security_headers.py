"""Headers, cookies and hosts: what every answer carries, whoever asks."""

import re

import pytest
from django.conf import settings as real_settings
from django.test import Client

from tests.conftest import PASSWORD

PATHS = ["/accounts/login/", "/nothing-here", "/healthz", "/team/", "/admin/", "/invitations/x"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("who", ["client", "owner_client", "operator_client"])
def test_every_answer_carries_the_headers(db, request, path, who):
    response = request.getfixturevalue(who).get(path)
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == "same-origin"
    assert response["Cross-Origin-Opener-Policy"] == "same-origin"
    assert re.fullmatch(r"[0-9a-f]{16}", response["X-Request-Id"])


INLINE = re.compile(
    r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>\s*\S"
    r"|<style\b|<[a-z][^>]*\sstyle\s*=|<[a-z][^>]*\son[a-z]+\s*=|javascript:",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    "path",
    [
        "/team/",
        "/team/invite",
        "/accounts/login/",
        "/accounts/password/change/",
        "/accounts/signup/",
        "/admin/",
        "/admin/teams/team/",
        "/admin/teams/team/add/",
        "/admin/teams/user/",
        "/admin/nodes/node/",
        "/admin/nodes/node/add/",
        "/admin/nodes/lease/",
        "/admin/jobs/job/",
        "/admin/staging/dataset/",
    ],
)
def test_pages_have_nothing_inline_that_the_policy_would_block(operator, team, path):
    team.memberships.create(user=operator, role="admin")
    client = Client()
    if path not in ("/accounts/login/", "/accounts/signup/"):
        client.force_login(operator)
    response = client.get(path)
    assert response.status_code == 200
    assert not INLINE.search(response.content.decode())


def test_cookies_of_a_session(client, owner):
    response = client.post("/accounts/login/", {"login": owner.email, "password": PASSWORD})
    cookie = response.cookies["sessionid"]
    assert (cookie["httponly"], cookie["samesite"], cookie["secure"]) == (True, "Lax", "")


def test_cookies_under_https(client, owner, settings):
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    response = client.post("/accounts/login/", {"login": owner.email, "password": PASSWORD})
    assert response.cookies["sessionid"]["secure"] is True


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80:80",
        "a b",
        "@evil",
        "",
        "[::1",
        "%00",
    ],
)
@pytest.mark.parametrize("path", ["/team/", "/accounts/login/", "/healthz", "/admin/"])
def test_other_hosts_are_refused(db, host, path):
    response = Client().get(path, HTTP_HOST=host)
    assert response.status_code == 400
    assert "evil" not in response.content.decode()
    assert "evil" not in response.get("Location", "")


def test_a_forwarded_host_is_not_believed(db):
    response = Client().get("/team/", HTTP_X_FORWARDED_HOST="evil.example")
    assert "evil" not in response["Location"]


def test_the_default_settings_are_closed():
    assert real_settings.DEBUG is False
    assert "*" not in real_settings.ALLOWED_HOSTS
    assert real_settings.SECURE_CSP["default-src"] == ["'none'"]
    assert real_settings.SESSION_COOKIE_HTTPONLY

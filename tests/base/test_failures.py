"""What is answered when something is away or malformed: never a bare 500 where a sentence fits."""

import json

import pytest
import redis.exceptions
from django.db import InterfaceError, OperationalError
from django.test import Client, RequestFactory
from kombu.exceptions import OperationalError as BrokerError

from portal.base import errors, failures
from portal.base.middleware import DomainErrorMiddleware

AWAY = [
    OperationalError("unable to open database file"),
    OperationalError("database is locked"),
    OperationalError("database or disk is full"),
    InterfaceError("connection already closed"),
    redis.exceptions.ConnectionError("refused"),
    redis.exceptions.TimeoutError("slow"),
    BrokerError("refused"),
]
needs_sqlite = pytest.mark.skipif(
    "__import__('django.db').db.connection.vendor != 'sqlite'",
    reason="on PostgreSQL every OperationalError is an outage",
)


@pytest.fixture
def broken(monkeypatch):
    """A portal whose every look at the person's teams fails as told."""

    def fail_with(error: Exception) -> None:
        def look(*args: object) -> None:
            raise error

        monkeypatch.setattr("portal.teams.middleware.current_membership", look)

    return fail_with


@pytest.mark.parametrize("error", AWAY, ids=lambda e: f"{type(e).__name__}-{e}")
def test_an_outage_in_middleware_is_a_503_with_a_sentence(owner, broken, error):
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    broken(error)
    response = client.get("/team/")
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert "cannot be reached just now" in response.content.decode()
    assert str(error) not in response.content.decode()


@pytest.mark.parametrize("error", AWAY, ids=lambda e: f"{type(e).__name__}-{e}")
def test_an_outage_in_a_view_is_a_503_with_a_sentence(owner_client, monkeypatch, error):
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("portal.teams.services.invite", fail)
    response = owner_client.post("/team/invite", {"email": "n@x.example", "role": "member"})
    assert response.status_code == 503
    assert "Nothing was changed." in response.content.decode()


def test_programs_get_json(owner, broken):
    client = Client(raise_request_exception=False, headers={"accept": "application/json"})
    client.force_login(owner)
    broken(OperationalError("database is locked"))
    response = client.get("/team/")
    assert response.status_code == 503
    assert response.json()["error"] == "unavailable"


@needs_sqlite
def test_a_mistake_in_a_query_is_no_outage():
    assert failures.outage(OperationalError("no such column: x")) == ""
    assert failures.outage(ValueError("x")) == ""
    assert failures.outage(None) == ""


def test_a_bug_is_a_500_that_shows_nothing_of_itself(owner, broken):
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    broken(RuntimeError("secret detail"))
    response = client.get("/team/")
    assert response.status_code == 500
    assert "secret detail" not in response.content.decode()
    assert "The portal failed here" in response.content.decode()
    assert response["X-Request-Id"]


def test_a_missing_manifest_of_static_files_does_not_break_the_error_page(settings, rf):
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}
    }
    response = failures.server_error(rf.get("/"))
    assert response.status_code == 500


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.DomainError("plain"), 400),
        (errors.Forbidden("no right"), 403),
        (errors.NotFound("nothing"), 404),
        (errors.Conflict("moved on"), 409),
        (errors.TooLarge("too many bytes", limit=5), 413),
        (errors.NoRoom("disk full"), 507),
    ],
)
def test_domain_errors_become_json_or_a_page(db, error, status):
    middleware = DomainErrorMiddleware(lambda request: None)  # type: ignore[arg-type, return-value]
    factory = RequestFactory()
    answer = middleware.process_exception(factory.get("/agent/v1/poll"), error)
    assert answer is not None
    body = json.loads(answer.content)
    assert (answer.status_code, body["error"], body["message"]) == (status, error.code, str(error))
    assert body.get("limit") == error.data.get("limit")
    page = middleware.process_exception(factory.get("/jobs/"), error)
    assert page is not None
    assert (page.status_code, str(error) in page.content.decode()) == (status, True)


def test_sentences_are_escaped_on_pages(db, rf):
    middleware = DomainErrorMiddleware(lambda request: None)  # type: ignore[arg-type, return-value]
    page = middleware.process_exception(rf.get("/jobs/"), errors.Conflict("<script>x</script>"))
    assert page is not None
    assert b"<script>x" not in page.content


@pytest.mark.parametrize(
    "path",
    ["/nothing-here", "/%00", "/team/?a=%00", "/team/%ED%A0%80", "/" + "a" * 20_000, "/?%00=1"],
)
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_odd_addresses(db, path, accept):
    response = Client().get(path, headers={"accept": accept})
    assert response.status_code in (302, 400, 404)
    if accept == "application/json" and response.status_code != 302:
        assert response.json()["message"]


@pytest.mark.parametrize(
    "cookie", ['"\\000\\000\\000\\000\\000\\000\\000\\000"', "a\0b", "x" * 9000]
)
def test_odd_cookies(db, cookie):
    for name in ("sessionid", "csrftoken", "messages", "anything"):
        response = Client().get("/team/", headers={"cookie": f"{name}={cookie}"})
        assert response.status_code in (302, 400)


def test_a_nul_in_a_session_cookie_never_reaches_the_database(db, django_assert_num_queries):
    with django_assert_num_queries(0):
        response = Client().get("/team/", headers={"cookie": 'sessionid="\\000\\000\\000abcdefgh"'})
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=", b"x"),
        ("multipart/form-data; boundary=\xff", b"x"),
        ("multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: form-data\r\n\r\n"),
        ("application/x-www-form-urlencoded; charset=utf-16", b"email=x"),
        ("application/x-www-form-urlencoded; charset=nonsense", b"email=x"),
        ("application/x-www-form-urlencoded", b"a&" * 30_000),
        ("application/x-www-form-urlencoded", b"email=" + b"a" * (9 * 2**20)),
        ("application/json", b'{"email": "\\ud800"}'),
        ("", b"\0\0\0"),
    ],
)
def test_odd_bodies_are_refused(owner_client, content_type, body):
    response = owner_client.generic("POST", "/team/invite", body, content_type=content_type)
    assert response.status_code in (200, 400, 413, 415)
    if response.status_code == 200:
        assert response.context["form"].errors


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_odd_methods(owner_client, method):
    for path in ("/team/", "/team/invite", "/team/switch", "/invitations/x", "/sign-in/x"):
        assert owner_client.generic(method, path).status_code == 405


def test_error_pages_have_one_heading_and_a_way_on(client, db):
    page = client.get("/nothing-here").content.decode()
    assert page.count("<h1>") == 1
    assert 'href="/"' in page

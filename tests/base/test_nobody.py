"""Bodies of people who are not signed in: above a small form's size nothing of them is read."""

import io

import pytest
from django.test import Client

from portal.base.small import AS_THEY_ARRIVE, SMALL_BODY

FORM = "application/x-www-form-urlencoded"
NOBODYS = ["/accounts/login/", "/staging/new", "/staging/nosuchcode/manifest", "/admin/login/"]
pytestmark = pytest.mark.django_db


class Unread(io.RawIOBase):
    """A body that nobody may read."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("It was read.")


def post(client: Client, path: str, length: int, kind: str = FORM, **more: str):
    """`generic` sets type and length only where it has a body."""
    sent = {"wsgi.input": Unread(), "CONTENT_TYPE": kind, "CONTENT_LENGTH": str(length)}
    return client.generic("POST", path, **sent, **more)


@pytest.mark.parametrize("path", NOBODYS)
@pytest.mark.parametrize("kind", [FORM, "multipart/form-data; boundary=b", "text/plain"])
def test_a_large_one_is_refused_unread(path, kind):
    answer = post(Client(enforce_csrf_checks=True), path, SMALL_BODY + 1, kind)
    assert answer.status_code == 413
    assert "Sign in first: at most 65.5 kB" in answer.content.decode()


@pytest.mark.parametrize("kind", AS_THEY_ARRIVE)
@pytest.mark.parametrize("path", ["/accounts/login/", "/agent/v1/enrol", "/agent/v1/poll"])
def test_one_that_no_form_has_is_refused_unread(path, kind):
    """A thread would wait for it: the server collects none of these."""
    assert post(Client(), path, 1, kind).status_code == 415


@pytest.mark.parametrize("name", ["manifest", "pack"])
@pytest.mark.parametrize("kind", [FORM, "application/json", *AS_THEY_ARRIVE])
def test_a_program_is_told_to_sign_in(name, kind):
    """A session may end in the midst of an upload."""
    path = f"/staging/nosuchcode/{name}"
    answer = post(Client(), path, SMALL_BODY + 1, kind, HTTP_ACCEPT="application/json")
    assert (answer.status_code, answer.json()["error"]) == (401, "sign_in")


@pytest.mark.parametrize(
    "path",
    [
        "/tus/",
        "/tus/nosuchupload/token",
        "/agent/v1/poll",
        "/agent/v1/enrol",
        "/agent/v1/leases/x/log?offset=0",
        "/staging/nosuchcode/upload",
        "/jobs/new",
    ],
)
@pytest.mark.parametrize("kind", [FORM, "multipart/form-data; boundary=b", *AS_THEY_ARRIVE])
def test_addresses_that_ask_by_themselves_ask_first(path, kind):
    answer = post(
        Client(enforce_csrf_checks=True), path, SMALL_BODY + 1, kind, HTTP_TUS_RESUMABLE="1.0.0"
    )
    assert answer.status_code in (302, 401, 404, 405, 413, 415)


def test_a_small_one_is_read():
    answer = Client().post("/accounts/login/", {"login": "a@b.example", "password": "x" * 60_000})
    assert answer.status_code == 200


def test_somebody_signed_in_may_send_more(owner_client):
    answer = owner_client.post("/staging/new", {"name": "Large", "note": "x" * SMALL_BODY})
    assert answer.status_code in (200, 302)

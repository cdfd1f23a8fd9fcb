"""Bodies of forms: nothing is written to the disk before it is known that it may be."""

import io

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from staging import spool
from staging.models import TeamUsage

pytestmark = [pytest.mark.django_db, pytest.mark.db]
FORM = "multipart/form-data; boundary=b"
HUGE = 10**12


class Unread(io.RawIOBase):
    """A body that says when somebody reads it."""

    touched = False

    def read(self, size: int = -1) -> bytes:
        self.touched = True
        return b""


def announce(client: Client, path: str, size: object = HUGE, **extra):
    body = Unread()
    environ = {"CONTENT_LENGTH": str(size), "wsgi.input": body, **extra}
    return client.generic("POST", path, b"x", FORM, **environ), body


@pytest.mark.parametrize("path", ["/accounts/login/", "/staging/new", "/tus/", "/agent/v1/enrol"])
@pytest.mark.parametrize("size", [HUGE, 10**30])
def test_nobody_sends_more_than_a_form_has(path, size):
    answer, body = announce(
        Client(enforce_csrf_checks=True), path, size, HTTP_TUS_RESUMABLE="1.0.0"
    )
    assert (answer.status_code, body.touched) == (413, False)


def test_a_form_of_its_size_is_taken(db):
    answer = Client().post(
        "/accounts/login/", {"login": "x", "file": SimpleUploadedFile("a", b"x")}
    )
    assert answer.status_code == 200


@pytest.mark.parametrize("what", ["upload", "job"])
class TestFormsOfFiles:
    @pytest.fixture
    def path(self, what, dataset) -> str:
        return f"/staging/{dataset.code}/upload" if what == "upload" else "/jobs/new"

    def test_a_stranger_is_not_read(self, path):
        answer, body = announce(Client(enforce_csrf_checks=True), path)
        assert (answer.status_code, body.touched) == (302, False)

    def test_what_the_quota_cannot_hold_is_not_read(self, path, team, owner_client, settings):
        settings.LARGEST_CODE_BYTES = HUGE
        team.quota_bytes = 100
        team.save()
        answer, body = announce(owner_client, path, 9 * 2**20)
        assert (answer.status_code, body.touched) == (507, False)
        assert not TeamUsage.objects.filter(promised_bytes__gt=0).exists()

    def test_what_the_disk_cannot_hold_is_not_read(self, path, owner_client, settings):
        settings.LARGEST_CODE_BYTES = 2 * 10**17
        answer, body = announce(owner_client, path, 10**17)
        assert (answer.status_code, body.touched) == (507, False)

    def test_what_the_spool_cannot_hold_is_not_read(self, path, owner_client, monkeypatch):
        monkeypatch.setattr(spool.usage, "check_room", lambda **kw: None)
        monkeypatch.setattr(
            spool.os, "statvfs", lambda path: type("S", (), {"f_bavail": 1, "f_frsize": 1})
        )
        answer, body = announce(owner_client, path, 9 * 2**20)
        assert (answer.status_code, body.touched) == (507, False)


def test_another_teams_dataset_is_404_and_not_read(stranger_client, dataset):
    answer, body = announce(stranger_client, f"/staging/{dataset.code}/upload")
    assert (answer.status_code, body.touched) == (404, False)


def test_the_form_still_asks_for_its_token(owner, dataset):
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    file = SimpleUploadedFile("a", b"x")
    answer = client.post(f"/staging/{dataset.code}/upload", {"files": file})
    assert (answer.status_code, dataset.files.count()) == (403, 0)

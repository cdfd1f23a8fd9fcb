"""Upload keys: one dataset, one person, as long as both stand."""

import re
from html import unescape

import pytest
from django.test import Client

from portal.teams.models import Membership
from staging.keys import read_key, upload_key

pytestmark = [pytest.mark.django_db, pytest.mark.db]


def create(key: str, **headers):
    metadata = "filename YS5iaW4="
    return Client().post(
        "/tus/",
        HTTP_TUS_RESUMABLE="1.0.0",
        HTTP_UPLOAD_LENGTH="3",
        HTTP_UPLOAD_METADATA=metadata,
        HTTP_AUTHORIZATION=f"Bearer {key}",
        **headers,
    )


def test_the_page_shows_a_key_that_works_once_asked(owner_client, dataset):
    answer = owner_client.post(f"/staging/{dataset.code}/key")
    assert (answer.status_code, answer["Cache-Control"]) == (200, "no-store")
    key = re.search(r"Bearer ([^\s<&\"]+)", unescape(answer.content.decode())).group(1)
    assert create(key).status_code == 201
    assert dataset.files.get().path == "a.bin"
    assert key not in owner_client.get(f"/staging/{dataset.code}/").content.decode()


def test_for_the_team_alone(owner_client, stranger_client, dataset):
    assert stranger_client.post(f"/staging/{dataset.code}/key").status_code == 404
    assert Client().post(f"/staging/{dataset.code}/key").status_code == 302
    assert owner_client.get(f"/staging/{dataset.code}/key").status_code == 405


def test_it_ends_with_the_membership(dataset, owner):
    key = upload_key(dataset, owner.email)
    assert read_key(key) == (dataset, owner.email)
    Membership.objects.filter(user=owner).delete()
    assert create(key).status_code == 401


def test_it_ends_with_its_time(dataset, owner, settings):
    key = upload_key(dataset, owner.email)
    settings.UPLOAD_LIFETIME = -settings.UPLOAD_LIFETIME
    assert create(key).status_code == 401


@pytest.mark.parametrize("change", ["", "x", "a:b:c", "é"])
def test_what_is_no_key(change):
    assert read_key(change) is None


def test_it_opens_nothing_else(dataset, owner, put):
    put(dataset, "a", b"x")
    key = {"HTTP_AUTHORIZATION": f"Bearer {upload_key(dataset, owner.email)}"}
    assert Client().get(f"/staging/{dataset.code}/files/a", **key).status_code == 302
    answer = Client().post(
        f"/staging/{dataset.code}/manifest", **key, HTTP_ACCEPT="application/json"
    )
    assert answer.status_code == 401

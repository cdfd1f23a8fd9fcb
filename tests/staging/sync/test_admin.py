"""Sync in the operators' site: server folders, and the role."""

import pytest

from staging.models import Connection, ServerFolder
from staging.sync.states import Access
from tests.conftest import signed_in
from tests.staging.sync.conftest import connect

pytestmark = pytest.mark.django_db
FOLDERS, CONNECTIONS = "/admin/staging/serverfolder/", "/admin/staging/connection/"


@pytest.fixture
def staff(operator):
    return signed_in(operator)


def test_an_operator_lends_a_folder_and_the_team_sees_it(
    staff, team, other_team, tmp_path, settings
):
    settings.DATA_DIR = tmp_path / "data"
    lab = tmp_path / "lab"
    sent = staff.post(f"{FOLDERS}add/", {"name": "Lab", "path": str(lab), "teams": [team.pk]})
    assert sent.status_code == 302, sent.context["adminform"].form.errors
    folder = ServerFolder.objects.get()
    assert list(folder.teams.all()) == [team]
    values = {"name": "Lab", "path": str(lab), "teams": [other_team.pk]}
    assert staff.post(f"{FOLDERS}{folder.pk}/change/", values).status_code == 302
    assert list(folder.teams.all()) == [other_team]
    assert [event.verb for event in team.events.all()] == ["folder_lend", "folder_take"]
    assert "Lab" in team.events.last().sentence
    assert staff.post(f"{FOLDERS}{folder.pk}/delete/", {"post": "yes"}).status_code == 302


@pytest.mark.parametrize("path", ["", "relative", "/a/../b", "/", "/a\nb"])
def test_paths_that_are_no_folders_to_lend(staff, path):
    assert staff.post(f"{FOLDERS}add/", {"name": "Lab", "path": path}).status_code == 200
    assert not ServerFolder.objects.exists()


def test_what_the_portal_keeps_is_not_lent(staff, settings):
    for path in (settings.STORE_ROOT, settings.DATA_DIR, settings.DATA_DIR / "keys"):
        assert staff.post(f"{FOLDERS}add/", {"name": "x", "path": str(path)}).status_code == 200
    assert not ServerFolder.objects.exists()


def role(team, **changes) -> dict[str, object]:
    return {
        "team": team.pk,
        "name": "Archive",
        "endpoint": "https://s3.example",
        "region": "us-east-1",
        "bucket": "archive",
        "prefix": "climate",
        "path_style": "on",
    } | changes


def test_an_operator_lends_the_role_for_a_prefix(staff, team):
    assert staff.post(f"{CONNECTIONS}add/", role(team)).status_code == 302
    made = Connection.objects.get()
    assert (made.access, made.prefix, made.sealed) == (Access.ROLE, "climate/", "")
    assert staff.post(f"{CONNECTIONS}{made.pk}/delete/", {"post": "yes"}).status_code == 302
    made.refresh_from_db()
    assert made.deleted_at


@pytest.mark.parametrize(
    "changes",
    [{"prefix": ""}, {"prefix": "/"}, {"endpoint": "ftp://x"}, {"endpoint": "https://u@h"}],
)
def test_what_is_no_role_connection_is_told_in_the_form(staff, team, changes):
    assert staff.post(f"{CONNECTIONS}add/", role(team, **changes)).status_code == 200
    assert not Connection.objects.exists()


def test_of_a_teams_connection_operators_see_neither_bucket_nor_secret(staff, team):
    made = connect(team, None, "secret-bucket", endpoint="https://s3.example", name="Secret name")
    for address in (CONNECTIONS, f"{CONNECTIONS}{made.pk}/change/"):
        page = staff.get(address).content.decode()
        assert "s3.example" in page
        assert "secret-bucket" not in page
        assert "Secret name" not in page
    assert staff.post(f"{CONNECTIONS}{made.pk}/change/", role(team)).status_code == 403
    assert staff.post(f"{CONNECTIONS}{made.pk}/delete/", {"post": "yes"}).status_code == 403


def test_members_are_no_operators(owner_client):
    for address in (FOLDERS, CONNECTIONS, f"{CONNECTIONS}add/"):
        assert owner_client.get(address).status_code in (302, 403)

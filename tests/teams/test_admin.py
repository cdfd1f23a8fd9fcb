"""Teams and accounts in the operators' admin."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from portal.teams.accounts import create_link
from portal.teams.models import Invitation, Membership, SignInLink, Team, User
from tests.conftest import PASSWORD
from tests.forms import inputs_of
from tests.hostile import HOSTILE, form_data

ADD = "/admin/teams/team/add/"
GOOD = {
    "name": "Optics",
    "invite_admin": "Boss@x.example",
    "quota_bytes": "1000",
    "max_gpus_per_job": "",
    "max_hours": "24",
    "retention_days": "",
}


def change(client: Client, path: str, **changes: str | None) -> Any:
    """Post the page's form with some fields changed, None meaning an unticked box."""
    data = inputs_of(client.get(path)) | changes
    return client.post(path, {key: value for key, value in data.items() if value is not None})


@pytest.fixture
def staff_client(db) -> Client:
    """Staff without any of Django's permissions: an operator all the same."""
    client = Client()
    client.force_login(User.objects.create_user("staff@portal.example", PASSWORD, is_staff=True))
    return client


def test_only_operators_see_the_admin(owner_client, mate_client, client, staff_client):
    for path in ("/admin/", ADD, "/admin/teams/user/"):
        assert owner_client.get(path, follow=True).status_code == 403
        assert mate_client.post(path, GOOD).status_code == 302
        last = client.get(path, follow=True)
        assert "<h1>Sign in</h1>" in last.content.decode()
        assert staff_client.get(path).status_code == 200
    assert not Team.objects.filter(name=GOOD["name"]).exists()


def test_signing_in_to_the_admin_goes_through_the_rate_limited_page(client, operator):
    response = client.get("/admin/login/?next=/admin/")
    assert response["Location"].startswith("/accounts/login/?")
    posted = client.post("/admin/login/", {"username": operator.email, "password": PASSWORD})
    assert posted["Location"].startswith("/accounts/login/?")
    assert "_auth_user_id" not in client.session


def test_the_admins_own_password_form_is_not_used(operator_client):
    response = operator_client.get("/admin/password_change/")
    assert response["Location"] == "/accounts/password/change/"


def test_models_of_other_packages_are_not_there(operator_client):
    for path in ("auth/group/", "account/emailaddress/", "teams/signinlink/"):
        assert operator_client.get(f"/admin/{path}").status_code == 404


def test_a_team_is_made_with_its_first_admins_link_shown_once(staff_client):
    response = staff_client.post(ADD, GOOD)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    row = Invitation.objects.get()
    assert (row.email, row.role, row.team.name) == ("boss@x.example", "admin", "Optics")
    assert row.invited_by == "staff@portal.example"
    assert (row.team.quota_bytes, row.team.max_hours, row.team.retention_days) == (1000, 24, None)
    address = response.context["invited"].address
    assert address in response.content.decode()
    assert Client().get(address.removeprefix("http://127.0.0.1:8000")).status_code == 200
    seen = staff_client.get(f"/admin/teams/team/{row.team.pk}/change/").content.decode()
    assert row.token_hash not in seen
    assert address.rsplit("/", 1)[1] not in seen


def test_limits_change_with_an_event(staff_client, team):
    path = f"/admin/teams/team/{team.pk}/change/"
    assert change(staff_client, path, max_hours="3", quota_bytes="1000").status_code == 302
    team.refresh_from_db()
    assert (team.max_hours, team.quota_bytes) == (3, 1000)
    event = team.events.get()
    assert event.actor == "staff@portal.example"
    assert "max_hours 3" in event.sentence


def test_another_admin_can_be_invited_when_nobody_is_left(staff_client, team):
    path = f"/admin/teams/team/{team.pk}/change/"
    response = change(staff_client, path, invite_admin="boss@x.example")
    assert response.context["invited"].invitation.team == team


def test_inviting_a_member_from_the_admin_is_refused_in_a_sentence(staff_client, team, mate):
    path = f"/admin/teams/team/{team.pk}/change/"
    response = change(staff_client, path, invite_admin=mate.email, max_hours="3")
    assert response.status_code == 200
    team.refresh_from_db()
    assert team.max_hours is None
    assert "is a member of this team already" in response.content.decode()


@pytest.mark.parametrize("field", sorted(GOOD))
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_team_forms_never_break(staff_client, field, kind):
    response = staff_client.post(ADD, form_data(GOOD, field, HOSTILE[kind]))
    assert response.status_code == 200
    if "adminform" in response.context:
        assert response.context["errors"]
        assert not Team.objects.exists()
    else:
        assert Team.objects.count() == 1


@pytest.mark.parametrize("limit", ["quota_bytes", "max_gpus_per_job", "max_hours"])
@pytest.mark.parametrize("value", ["-1", "9" * 40, "1e5", "0x10", "NaN", "١٢٣x"])
def test_limits_are_whole_numbers_in_range(staff_client, limit, value):
    response = staff_client.post(ADD, GOOD | {limit: value})
    assert response.context["adminform"].form.errors[limit]
    assert not Team.objects.exists()


def test_teams_are_not_deleted(staff_client, team):
    assert (
        staff_client.post(f"/admin/teams/team/{team.pk}/delete/", {"post": "yes"}).status_code
        == 403
    )
    action = {"action": "delete_selected", "_selected_action": team.pk}
    staff_client.post("/admin/teams/team/", action)
    assert Team.objects.filter(pk=team.pk).exists()


# Accounts


def user_path(user: User, act: str = "change") -> str:
    return f"/admin/teams/user/{user.pk}/{act}/"


def test_an_account_page_shows_no_hash(staff_client, mate):
    seen = staff_client.get(user_path(mate)).content.decode()
    assert mate.email in seen
    assert mate.password not in seen
    assert "password" not in staff_client.get(user_path(mate)).context["adminform"].form.fields


def test_deactivating_ends_sessions_and_links_and_tells_the_team(
    staff_client, mate_client, mate, team
):
    create_link(user=mate, lifetime=timedelta(hours=1))
    assert change(staff_client, user_path(mate), is_active=None).status_code == 302
    mate.refresh_from_db()
    assert not mate.is_active
    assert mate_client.get("/team/").status_code == 302
    assert not SignInLink.objects.exists()
    assert team.events.get().sentence == f"deactivated the account of {mate.email}"
    assert change(staff_client, user_path(mate), is_active="on").status_code == 302
    mate.refresh_from_db()
    assert mate.is_active
    assert Membership.objects.filter(user=mate).exists()


def test_making_and_unmaking_an_operator(staff_client, mate):
    change(staff_client, user_path(mate), is_staff="on")
    mate.refresh_from_db()
    assert (mate.is_staff, mate.is_superuser, mate.is_active) == (True, True, True)
    change(staff_client, user_path(mate), is_staff=None)
    mate.refresh_from_db()
    assert (mate.is_staff, mate.is_superuser) == (False, False)


def test_nobody_locks_themselves_out(operator_client, operator):
    change(operator_client, user_path(operator), is_active=None, is_staff=None)
    operator.refresh_from_db()
    assert (operator.is_active, operator.is_staff) == (True, True)


def test_fields_that_are_not_on_the_form_cannot_be_set(staff_client, mate):
    hostile = {"email": "evil@x.example", "password": "x", "is_superuser": "on"}
    assert change(staff_client, user_path(mate), **hostile).status_code == 302
    mate.refresh_from_db()
    assert (mate.email, mate.is_superuser) == ("mate@climate.example", False)
    assert mate.check_password(PASSWORD)


def test_accounts_are_neither_added_nor_deleted(staff_client, mate):
    assert staff_client.post("/admin/teams/user/add/", {"email": "x@x.example"}).status_code == 403
    assert staff_client.post(user_path(mate, "delete"), {"post": "yes"}).status_code == 403
    assert staff_client.get(user_path(mate, "password")).status_code in (302, 404)


def test_a_reset_ends_sessions_and_mails_a_link(staff_client, mate_client, mate, mailoutbox):
    assert "stops working" in staff_client.get(user_path(mate, "reset")).content.decode()
    mate.refresh_from_db()
    assert mate.check_password(PASSWORD)
    assert staff_client.post(user_path(mate, "reset")).status_code == 302
    mate.refresh_from_db()
    assert not mate.has_usable_password()
    assert mate_client.get("/team/").status_code == 302
    (mail,) = mailoutbox
    assert mail.to == [mate.email]
    assert "/accounts/password/reset/key/" in mail.body


def test_a_reset_is_for_operators_only(owner_client, client, mate):
    assert owner_client.post(user_path(mate, "reset")).status_code == 302
    assert client.post(user_path(mate, "reset")).status_code == 302
    mate.refresh_from_db()
    assert mate.check_password(PASSWORD)


@pytest.mark.parametrize("pk", ["0", "9" * 60, "%00", "x", "..%2F", "%ED%A0%80"])
def test_accounts_of_nobody(staff_client, pk):
    for act in ("change", "reset"):
        response = staff_client.get(f"/admin/teams/user/{pk}/{act}/")
        assert response.status_code in (302, 400, 404)


@pytest.mark.parametrize(
    "query",
    [
        "password__startswith=md5",
        "sessions__x=1",
        "memberships__team__name=Climate",
        "email__startswith=a",
        "q=%00",
        "o=x.9.-1",
        "p=" + "9" * 30,
        "is_staff__exact=maybe",
    ],
)
def test_hostile_filters_of_the_account_list(staff_client, query):
    assert staff_client.get(f"/admin/teams/user/?{query}").status_code in (200, 302, 400)


def test_hashes_and_addresses_cannot_be_guessed_by_filters(staff_client, mate):
    for query in (f"password={mate.password}", "password__startswith=md5", "email=a"):
        assert staff_client.get(f"/admin/teams/user/?{query}").status_code == 400

"""Opening an invitation: as a new person, as an account that exists, as somebody else."""

from datetime import timedelta

import pytest
from django.test import Client

from portal.base.clock import db_now
from portal.teams import services
from portal.teams.models import Invitation, Membership, User
from tests.conftest import PASSWORD
from tests.hostile import HOSTILE, form_data, is_refused

GOOD = {"password1": "seven lamps at sea", "password2": "seven lamps at sea"}


def invited(team, email: str, role: str = "member") -> str:
    row = services.invite(team=team, email=email, role=role, actor="owner@climate.example")
    return row.address.removeprefix("http://127.0.0.1:8000")


def test_a_new_person_sets_a_password_and_is_in(client, team):
    path = invited(team, "new@x.example", "admin")
    assert "Make the account and join" in client.get(path).content.decode()
    response = client.post(path, GOOD)
    assert (response.status_code, response["Location"]) == (302, "/")
    user = User.objects.get(email="new@x.example")
    assert user.check_password(GOOD["password1"])
    assert not user.is_staff
    assert Membership.objects.get(user=user, team=team).role == "admin"
    assert client.get("/team/").status_code == 200


def test_a_new_account_can_sign_in_again(client, team):
    client.post(invited(team, "new@x.example"), GOOD)
    client.post("/accounts/logout/")
    login = {"login": "New@X.example", "password": GOOD["password1"]}
    assert client.post("/accounts/login/", login)["Location"] == "/"


@pytest.mark.parametrize(
    ("password", "sentence"),
    [
        ("zq9x", "too short"),
        ("password1234", "too common"),
        ("98765432109876", "entirely numeric"),
        ("newcomer.one@x.example", "too similar"),
    ],
)
def test_password_rules_hold(client, team, password, sentence):
    path = invited(team, "newcomer.one@x.example")
    response = client.post(path, {"password1": password, "password2": password})
    assert sentence in response.content.decode()
    assert password not in response.content.decode().replace("newcomer.one@x.example", "")
    assert not User.objects.filter(email="newcomer.one@x.example").exists()


def test_two_different_passwords_are_refused(client, team):
    response = client.post(invited(team, "new@x.example"), GOOD | {"password2": "another sea 12"})
    assert "The two passwords differ." in response.content.decode()
    assert not User.objects.exists()


@pytest.mark.parametrize("field", ["password1", "password2"])
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_passwords_are_refused(client, team, field, kind):
    path = invited(team, "new@x.example")
    response = client.post(path, form_data(GOOD, field, HOSTILE[kind]))
    assert is_refused(response, HOSTILE[kind])
    assert not User.objects.exists()


def test_a_signed_in_account_of_that_address_joins(stranger_client, stranger, team):
    path = invited(team, stranger.email.upper())
    assert "Join Climate" in stranger_client.get(path).content.decode()
    assert not Membership.objects.filter(user=stranger, team=team).exists()
    assert stranger_client.post(path).status_code == 302
    assert Membership.objects.filter(user=stranger, team=team).exists()
    assert "Climate" in stranger_client.get("/team/").content.decode()


def test_an_account_that_is_signed_out_signs_in_first(client, stranger, team):
    path = invited(team, stranger.email)
    assert f"/accounts/login/?next={path}" in client.get(path).content.decode()
    assert client.post(path, GOOD).status_code == 200
    assert not Membership.objects.filter(user=stranger, team=team).exists()
    assert stranger.check_password(PASSWORD)
    User.objects.get(pk=stranger.pk)
    login = {"login": stranger.email, "password": PASSWORD, "next": path}
    assert client.post("/accounts/login/", login)["Location"] == path


def test_the_wrong_account_is_told_so_and_does_not_join(stranger_client, stranger, team):
    path = invited(team, "new@x.example")
    seen = stranger_client.get(path).content.decode()
    assert "You are signed in as stranger@robotics.example" in seen
    assert "Sign out and come back here" in seen
    assert stranger_client.post(path).status_code == 403
    assert not Membership.objects.filter(user=stranger, team=team).exists()
    out = stranger_client.post("/accounts/logout/", {"next": path})
    assert out["Location"] == path
    assert "Make the account and join" in stranger_client.get(path).content.decode()


def test_a_deactivated_account_cannot_join(client, stranger, team):
    User.objects.filter(pk=stranger.pk).update(is_active=False)
    path = invited(team, stranger.email)
    assert "is deactivated" in client.get(path).content.decode()
    client.post(path, GOOD)
    assert not Membership.objects.filter(user=stranger, team=team).exists()


def test_used_expired_withdrawn_and_unknown_say_which(client, team):
    used, expired, withdrawn = (invited(team, f"{n}@x.example") for n in ("u", "e", "w"))
    Client().post(used, GOOD)
    Invitation.objects.filter(email="e@x.example").update(
        expires_at=db_now() - timedelta(seconds=1)
    )
    Invitation.objects.filter(email="w@x.example").update(withdrawn_at=db_now())
    for path, sentence in [
        (used, "was used before"),
        (expired, "has expired"),
        (withdrawn, "was withdrawn"),
    ]:
        for response in (client.get(path), client.post(path, GOOD)):
            assert response.status_code == 409
            assert sentence in response.content.decode()
    assert client.get("/invitations/nothing").status_code == 404
    assert set(User.objects.values_list("email", flat=True)) == {"u@x.example"}


@pytest.mark.django_db
@pytest.mark.parametrize("token", ["%00", "%ED%A0%80", "a" * 5000, "%FF%FE", "..%2F..", "'"])
def test_hostile_tokens(client, token):
    for prefix in ("/invitations/", "/sign-in/"):
        assert client.get(prefix + token).status_code in (400, 404)
        assert client.post(prefix + token).status_code in (400, 404)


def test_an_invitation_page_is_not_cached(client, team):
    assert "no-store" in client.get(invited(team, "new@x.example"))["Cache-Control"]


def test_accepting_needs_the_csrf_token(team):
    client = Client(enforce_csrf_checks=True)
    response = client.post(invited(team, "new@x.example"), GOOD)
    assert response.status_code == 403
    assert "This form is out of date" in response.content.decode()
    assert not User.objects.exists()

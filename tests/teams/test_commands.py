"""create_team and create_operator, as whoever runs the portal uses them."""

import pytest
from django.core.management import CommandError, call_command

from portal.teams.models import Invitation, Membership, Team, User

pytestmark = pytest.mark.django_db
PASSWORD = "seven lamps at sea"


def test_a_team_and_the_link_for_its_admin(client, capsys):
    call_command("create_team", "Optics", "--admin", "Boss@x.example")
    address = capsys.readouterr().out.strip()
    path = address.removeprefix("http://127.0.0.1:8000")
    client.post(path, {"password1": PASSWORD, "password2": PASSWORD})
    row = Membership.objects.get(user__email="boss@x.example")
    assert (row.team.name, row.role) == ("Optics", "admin")


def test_with_a_password_the_account_is_there_at_once(monkeypatch):
    monkeypatch.setenv("E31_PASSWORD", PASSWORD)
    call_command("create_team", "Optics", "--admin", "boss@x.example", "--password")
    assert User.objects.get().check_password(PASSWORD)
    call_command("create_team", "Acoustics", "--admin", "boss@x.example", "--password")
    assert Membership.objects.filter(user__email="boss@x.example", role="admin").count() == 2
    assert not Invitation.objects.pending().exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["", "--admin", "boss@x.example"], "1 to 80 printable"),
        (["x" * 81, "--admin", "boss@x.example"], "1 to 80 printable"),
        (["Optics", "--admin", "boss"], "valid email"),
        (["Taken", "--admin", "boss@x.example"], "already"),
        (["Optics", "--admin", "boss@x.example", "--password"], "too short"),
        (["A\0B", "--admin", "boss@x.example"], "1 to 80 printable"),
    ],
)
def test_what_cannot_be_made_is_refused_whole(arguments, sentence, monkeypatch):
    monkeypatch.delenv("E31_PASSWORD", raising=False)
    Team.objects.create(name="Taken")
    with pytest.raises(CommandError, match=sentence):
        call_command("create_team", *arguments)
    assert list(Team.objects.values_list("name", flat=True)) == ["Taken"]
    assert not User.objects.exists()


def test_an_operator_is_made_once_and_keeps_the_password(monkeypatch):
    monkeypatch.setenv("E31_PASSWORD", PASSWORD)
    call_command("create_operator", "Op@x.example")
    monkeypatch.setenv("E31_PASSWORD", "another long one 1")
    call_command("create_operator", "op@x.example")
    user = User.objects.get()
    assert user.is_staff
    assert user.check_password(PASSWORD)


def test_without_a_password_nobody_can_sign_in_with_one(monkeypatch):
    monkeypatch.delenv("E31_PASSWORD", raising=False)
    call_command("create_operator", "op@x.example")
    assert not User.objects.get().has_usable_password()


@pytest.mark.parametrize("address", ["", "op", "op@x.example\0", "a" * 300 + "@x.example"])
def test_an_operator_needs_an_address(address, monkeypatch):
    monkeypatch.delenv("E31_PASSWORD", raising=False)
    with pytest.raises(CommandError):
        call_command("create_operator", address)
    assert not User.objects.exists()

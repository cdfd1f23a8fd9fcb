"""One-time sign-in links: made on the command line, shown as a page, used up by a POST."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from portal.base.clock import db_now
from portal.base.crypto import hash_token
from portal.base.errors import Conflict, DomainError
from portal.teams import accounts
from portal.teams.models import SignInLink

HOUR = timedelta(hours=1)
ELSEWHERE = [
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "jobs/",
    "",
    "javascript:alert(1)",
    "/\n/evil.example",
    "/\0",
    "/\ud800",
    "/" + "a" * 300,
]


def path_of(address: str) -> str:
    assert address.startswith("http://127.0.0.1:8000/sign-in/")
    return address.removeprefix("http://127.0.0.1:8000")


def test_a_preview_does_not_use_it_up_and_a_post_signs_in_once(client, owner):
    path = path_of(accounts.create_link(user=owner, next_path="/team/", lifetime=HOUR))
    for _ in range(3):
        assert "Sign in as owner@climate.example" in client.get(path).content.decode()
        assert client.head(path).status_code == 200
    assert "_auth_user_id" not in client.session
    response = client.post(path)
    assert (response.status_code, response["Location"]) == (302, "/team/")
    assert client.get("/team/").status_code == 200
    again = Client().post(path)
    assert again.status_code == 409
    assert "works once" in again.content.decode()


def test_only_the_hash_is_kept(owner):
    token = path_of(accounts.create_link(user=owner, lifetime=HOUR)).rsplit("/", 1)[1]
    assert SignInLink.objects.get().token_hash == hash_token(token)


def test_expired_and_deactivated_say_so(client, owner):
    path = path_of(accounts.create_link(user=owner, lifetime=HOUR))
    owner.is_active = False
    owner.save()
    assert "deactivated" in client.post(path).content.decode()
    owner.is_active = True
    owner.save()
    SignInLink.objects.update(expires_at=db_now() - timedelta(seconds=1))
    assert "has expired" in client.get(path).content.decode()
    assert "_auth_user_id" not in client.session


def test_of_two_at_once_one_signs_in(owner):
    link = accounts.find_link(
        path_of(accounts.create_link(user=owner, lifetime=HOUR)).rsplit("/", 1)[1]
    )
    accounts.use_link(link=link)
    with pytest.raises(Conflict):
        accounts.use_link(link=link)


def test_it_replaces_another_persons_session(stranger_client, owner):
    path = path_of(accounts.create_link(user=owner, next_path="/team/", lifetime=HOUR))
    assert "that session ends" in stranger_client.get(path).content.decode()
    before = stranger_client.session.session_key
    stranger_client.post(path)
    assert stranger_client.session["_auth_user_id"] == str(owner.pk)
    assert stranger_client.session.session_key != before


def test_a_person_without_a_password_can_set_one_after_it(client, owner):
    owner.set_unusable_password()
    owner.save()
    client.post(path_of(accounts.create_link(user=owner, lifetime=HOUR)))
    assert client.get("/accounts/password/change/").headers["Location"].endswith("/password/set/")
    assert client.get("/accounts/password/set/").status_code == 200
    new = {"password1": "seven lamps at sea", "password2": "seven lamps at sea"}
    assert client.post("/accounts/password/set/", new).status_code == 302
    owner.refresh_from_db()
    assert owner.check_password("seven lamps at sea")


@pytest.mark.parametrize("target", ELSEWHERE)
def test_links_lead_nowhere_else(owner, target):
    with pytest.raises(DomainError, match="path to go to"):
        accounts.create_link(user=owner, next_path=target, lifetime=HOUR)
    assert not SignInLink.objects.exists()


def test_a_bad_path_in_the_row_is_not_followed(client, owner):
    path = path_of(accounts.create_link(user=owner, lifetime=HOUR))
    SignInLink.objects.update(next_path="//evil.example")
    assert client.post(path)["Location"] == "/"


def test_the_command_prints_an_address_that_works(client, owner, capsys):
    call_command("signin_link", owner.email.upper(), "--next", "/team/")
    address = capsys.readouterr().out.strip()
    assert client.post(path_of(address))["Location"] == "/team/"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody@x.example"], "no account"),
        (["owner@climate.example", "--next", "https://evil.example"], "must start with one /"),
        (["owner@climate.example", "--minutes", "0"], "from 1 to 43200"),
        (["\0"], "valid email"),
    ],
)
def test_the_command_refuses_in_a_sentence(owner, arguments, sentence):
    with pytest.raises(CommandError, match=sentence):
        call_command("signin_link", *arguments)

"""allauth as this portal sets it up: sign-in, sign-out, passwords, closed sign-up, rate limits."""

import re

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import NoReverseMatch, reverse

from portal.teams.models import User
from tests.conftest import PASSWORD
from tests.hostile import HOSTILE, form_data, is_refused

NEW = "seven lamps at sea"
LOGIN = "/accounts/login/"


def login(client: Client, user: User, password: str = PASSWORD, **more: str):
    return client.post(LOGIN, {"login": user.email, "password": password, **more})


def test_signing_in_and_out(client, owner):
    assert login(client, owner)["Location"] == "/"
    assert client.get("/team/").status_code == 200
    assert client.get("/accounts/logout/").status_code == 200
    assert client.get("/team/").status_code == 200
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get("/team/").status_code == 302


def test_a_wrong_password_and_an_unknown_address_look_the_same(client, owner):
    pages = [
        client.post(LOGIN, {"login": email, "password": "not this one 1"}).content.decode()
        for email in (owner.email, "nobody@climate.example")
    ]
    pages = [re.sub(r"csrfmiddlewaretoken.*?>", "", page) for page in pages]
    assert pages[0].replace(owner.email, "X") == pages[1].replace("nobody@climate.example", "X")
    assert "are not correct" in pages[0]


def test_a_deactivated_account_cannot_sign_in(client, owner):
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert login(client, owner)["Location"] == "/accounts/inactive/"
    assert client.get("/team/").status_code == 302


def test_deactivating_ends_open_sessions(owner_client, owner):
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert owner_client.get("/team/").status_code == 302


def test_sign_up_is_closed(client, db):
    data = {"email": "new@x.example", "password1": NEW, "password2": NEW}
    for response in (client.get("/accounts/signup/"), client.post("/accounts/signup/", data)):
        assert "Accounts begin with an invitation" in response.content.decode()
    assert not User.objects.exists()


def test_views_of_allauth_that_nobody_asked_for_are_not_there():
    for name in ("account_email", "account_request_login_code", "account_confirm_email"):
        with pytest.raises(NoReverseMatch):
            reverse(name, args=[] if name != "account_confirm_email" else ["x"])


@pytest.mark.parametrize("field", ["login", "password"])
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_sign_ins_are_refused(client, owner, field, kind):
    data = form_data({"login": owner.email, "password": PASSWORD}, field, HOSTILE[kind])
    response = client.post(LOGIN, data)
    assert is_refused(response, HOSTILE[kind])
    assert "_auth_user_id" not in client.session


ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example/",
    "javascript:alert(1)",
    "http://[::1",
    "https://127.0.0.1.evil.example",
    "\x00",
    "/\t/evil.example",
    "a" * 50_000,
]


@pytest.mark.parametrize("target", ELSEWHERE)
def test_sign_in_and_out_lead_nowhere_else(client, owner, target):
    for path in (LOGIN, "/accounts/logout/"):
        response = client.get(path, {"next": target})
        assert response.status_code in (200, 302, 400)
    response = login(client, owner, next=target)
    assert (response.status_code, response["Location"]) == (302, "/")
    again = client.get(LOGIN, {"next": target})
    assert again.status_code in (302, 400)
    assert again.get("Location", "/") == "/"
    out = client.post("/accounts/logout/", {"next": target})
    assert out["Location"] == "/"


def test_sign_in_goes_back_to_where_the_person_was(client, owner):
    assert login(client, owner, next="/team/?a=b")["Location"] == "/team/?a=b"


# Rate limits: these really count, in the cache's table.


def test_an_address_is_locked_after_five_wrong_passwords(client, owner):
    for _ in range(5):
        assert "are not correct" in login(client, owner, "not this one 1").content.decode()
    response = login(client, owner)
    assert "Too many failed login attempts" in response.content.decode()
    assert "_auth_user_id" not in client.session


def test_one_machine_is_limited_over_all_addresses(client, db):
    seen = [
        client.post(LOGIN, {"login": f"n{n}@x.example", "password": "not this one 1"})
        for n in range(11)
    ]
    assert "are not correct" in seen[9].content.decode()
    assert "Too many failed login attempts" in seen[10].content.decode()


def test_other_machines_are_not_limited(client, owner):
    for n in range(11):
        client.post(LOGIN, {"login": f"n{n}@x.example", "password": "not this one 1"})
    other = Client(REMOTE_ADDR="192.0.2.7")
    assert login(other, owner)["Location"] == "/"


def test_posts_to_sign_in_end_in_429(client, db):
    answers = [client.post(LOGIN, {"login": "x"}).status_code for _ in range(31)]
    assert answers == [200] * 30 + [429]
    page = client.post(LOGIN, {"login": "x"}).content.decode()
    assert "Too many tries" in page


def test_a_spoofed_forwarded_header_is_no_way_around(client, db):
    answers = [
        client.post(LOGIN, {"login": "x"}, HTTP_X_FORWARDED_FOR=f"198.51.100.{n}").status_code
        for n in range(31)
    ]
    assert answers[-1] == 429


def test_behind_a_proxy_the_proxys_word_counts(client, db, settings):
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    answers = [
        client.post(LOGIN, {"login": "x"}, HTTP_X_FORWARDED_FOR=f"9.9.9.9, 198.51.100.{n}")
        for n in range(31)
    ]
    assert {answer.status_code for answer in answers} == {200}
    for header in ("garbage", "", ",,,", "\x01", "1.2.3.4:99999999"):
        assert client.post(LOGIN, {"login": "x"}, HTTP_X_FORWARDED_FOR=header).status_code == 200


def test_a_server_on_a_socket_without_a_proxy_still_signs_in(owner):
    client = Client(REMOTE_ADDR="")
    assert login(client, owner)["Location"] == "/"


def test_asking_for_a_new_password_is_limited(client, owner, mailoutbox):
    data = {"email": owner.email}
    answers = [client.post("/accounts/password/reset/", data).status_code for _ in range(6)]
    assert answers == [302] * 5 + [429]
    assert len(mailoutbox) == 5


def test_the_limits_live_in_the_database_so_the_broker_may_be_away(client, db, settings):
    assert settings.CACHES["default"]["BACKEND"].endswith("DatabaseCache")
    cache.set("key", [1.5], 60)
    assert cache.get("key") == [1.5]


def test_a_cache_server_that_is_away_is_a_503_and_signs_nobody_in(client, owner, settings):
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }
    response = login(client, owner)
    assert response.status_code == 503
    assert "broker cannot be reached just now" in response.content.decode()
    assert "_auth_user_id" not in client.session


# Changing and resetting passwords.


def test_changing_the_password_ends_every_session(owner, owner_client, client):
    login(client, owner)
    data = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
    assert owner_client.post("/accounts/password/change/", data).status_code == 302
    assert client.get("/team/").status_code == 302
    assert owner_client.get("/team/").status_code == 302
    assert login(client, owner, NEW)["Location"] == "/"


@pytest.mark.parametrize("field", ["oldpassword", "password1", "password2"])
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_password_changes_are_form_errors(owner_client, owner, field, kind):
    data = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
    path = "/accounts/password/change/"
    response = owner_client.post(path, form_data(data, field, HOSTILE[kind]))
    assert response.status_code == 200
    assert response.context["form"].errors
    owner.refresh_from_db()
    assert owner.check_password(PASSWORD)


def test_changing_the_password_is_limited(owner_client):
    path = "/accounts/password/change/"
    answers = [owner_client.post(path, {"oldpassword": "x"}).status_code for _ in range(6)]
    assert answers == [200] * 5 + [429]


def test_a_reset_mail_leads_to_a_new_password_once(client, owner, mailoutbox):
    host = "localhost"
    asked = client.post("/accounts/password/reset/", {"email": owner.email}, HTTP_HOST=host)
    assert asked["Location"] == "/accounts/password/reset/done/"
    (mail,) = mailoutbox
    link = re.search(r"http\S+", mail.body)
    assert link is not None
    assert link[0].startswith("http://127.0.0.1:8000/accounts/password/reset/key/")
    path = link[0].removeprefix("http://127.0.0.1:8000")
    form_page = client.get(path, follow=True)
    action = form_page.redirect_chain[-1][0]
    assert "set-password" in action
    assert client.post(action, {"password1": NEW, "password2": NEW}).status_code == 302
    owner.refresh_from_db()
    assert owner.check_password(NEW)
    assert "This link does not work" in Client().get(path).content.decode()


def test_without_a_mail_server_a_reset_prints_no_link(client, owner, settings, capfd):
    settings.MAILERS = {"default": {"BACKEND": settings.NO_MAIL}}
    asked = client.post("/accounts/password/reset/", {"email": owner.email})
    assert asked["Location"] == "/accounts/password/reset/done/"
    assert "/password/reset/key/" not in "".join(capfd.readouterr())


def test_an_unknown_address_gets_no_mail_and_the_same_answer(client, db, mailoutbox):
    response = client.post("/accounts/password/reset/", {"email": "nobody@x.example"})
    assert response["Location"] == "/accounts/password/reset/done/"
    assert mailoutbox == []


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_reset_addresses_are_refused(client, db, mailoutbox, kind):
    data = form_data({"email": ""}, "email", HOSTILE[kind])
    response = client.post("/accounts/password/reset/", data)
    assert is_refused(response, HOSTILE[kind])
    assert mailoutbox == []


@pytest.mark.parametrize(
    "key", ["1-x", "zzzzzzzzzzzzzzzzzzz-a-b", "1-set-password", "0-%00", "1-%FF"]
)
def test_hostile_reset_keys(client, owner, key):
    response = client.get(f"/accounts/password/reset/key/{key}/")
    assert response.status_code in (200, 400)
    if response.status_code == 200:
        assert "This link does not work" in response.content.decode()


def test_the_address_of_a_reset_never_follows_the_host_header(client, owner, mailoutbox):
    evil = client.post(
        "/accounts/password/reset/", {"email": owner.email}, HTTP_HOST="evil.example"
    )
    assert evil.status_code == 400
    assert mailoutbox == []

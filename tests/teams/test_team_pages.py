"""The pages of a team: who sees and does what, and what hostile forms get."""

import pytest
from django.test import Client

from portal.teams.models import Invitation, Membership, TeamEvent
from tests.hostile import HOSTILE, form_data

GOOD_INVITE = {"email": "new@x.example", "role": "member"}


@pytest.fixture
def mates_row(team, mate) -> Membership:
    return Membership.objects.get(team=team, user=mate)


@pytest.fixture
def owners_row(team, owner) -> Membership:
    return Membership.objects.get(team=team, user=owner)


@pytest.fixture
def invitation(owner_client) -> Invitation:
    owner_client.post("/team/invite", GOOD_INVITE)
    return Invitation.objects.get()


def page(client: Client, path: str, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status, response
    return response.content.decode()


def test_members_see_members_roles_limits_and_history(owner, mate_client, team):
    team.max_hours = 12
    team.save()
    TeamEvent.objects.create(
        team=team, at=team.created_at, actor="op@x.example", verb="created", detail={}
    )
    seen = page(mate_client, "/team/")
    assert owner.email in seen
    assert "12 at most" in seen
    assert "No limit has been set." in seen
    assert "No retention period has been published here." in seen
    assert "made the team" in seen
    assert "Invite a person" not in seen


def test_the_installations_retention_shows_where_the_team_has_none(owner_client, team, settings):
    settings.DEFAULT_RETENTION_DAYS = 30
    assert "30 days" in page(owner_client, "/team/")
    type(team).objects.update(retention_days=1)
    assert "1 day<" in page(owner_client, "/team/")


def test_the_other_team_is_not_on_the_page(owner_client, stranger):
    assert stranger.email not in page(owner_client, "/team/")


def test_an_operator_of_no_team_is_told_so(operator_client):
    assert "You are in no team yet" in page(operator_client, "/team/", 403)


@pytest.mark.parametrize("name", ["", "invite", "switch"])
def test_anonymous_is_sent_to_sign_in(client, db, name):
    response = client.post(f"/team/{name}") if name == "switch" else client.get(f"/team/{name}")
    assert response.status_code == 302
    assert response["Location"].startswith("/accounts/login/?next=/team/")


@pytest.mark.parametrize("act", ["role", "remove"])
def test_who_may_open_the_acts_on_a_member(
    act, owners_row, owner_client, mate_client, stranger_client, operator_client, client
):
    path = f"/team/members/{owners_row.pk}/{act}"
    assert owner_client.get(path).status_code == 200
    assert mate_client.get(path).status_code == 403
    assert stranger_client.get(path).status_code == 404
    assert operator_client.get(path).status_code == 403
    assert client.get(path).status_code == 302


def test_only_an_admin_invites_and_withdraws(
    invitation, mate_client, stranger_client, operator_client, client
):
    for path in ("/team/invite", f"/team/invitations/{invitation.pk}/withdraw"):
        assert mate_client.post(path, GOOD_INVITE).status_code == 403
        assert operator_client.post(path, GOOD_INVITE).status_code == 403
        assert client.post(path, GOOD_INVITE).status_code == 302
    other = stranger_client.post(f"/team/invitations/{invitation.pk}/withdraw")
    assert other.status_code == 404
    assert Invitation.objects.open(invitation.created_at).get() == invitation


def test_the_link_of_an_invitation_is_shown_once_and_not_kept(owner_client):
    response = owner_client.post("/team/invite", GOOD_INVITE)
    address = response.context["invited"].address
    assert address in response.content.decode()
    assert "no-store" in response["Cache-Control"]
    token = address.rsplit("/", 1)[1]
    assert token not in page(owner_client, "/team/")
    assert "new@x.example" in page(owner_client, "/team/")


def test_an_invitation_goes_out_by_mail_after_the_commit(
    owner_client, mailoutbox, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        address = owner_client.post("/team/invite", GOOD_INVITE).context["invited"].address
    (mail,) = mailoutbox
    assert mail.to == ["new@x.example"]
    assert address in mail.body
    assert "Climate" in mail.subject


def test_without_a_mail_server_nothing_is_printed_and_the_page_says_so(
    owner_client, settings, capfd, django_capture_on_commit_callbacks
):
    settings.MAILERS = {"default": {"BACKEND": settings.NO_MAIL}}
    with django_capture_on_commit_callbacks(execute=True):
        response = owner_client.post("/team/invite", GOOD_INVITE)
    assert "This portal sends no mail" in response.content.decode()
    token = response.context["invited"].address.rsplit("/", 1)[1]
    assert token not in "".join(capfd.readouterr())


def test_a_mail_that_cannot_leave_is_no_error(
    owner_client, monkeypatch, django_capture_on_commit_callbacks
):
    def refuse(*args: object) -> None:
        raise ConnectionRefusedError("no mail server")

    monkeypatch.setattr("portal.teams.mail.send_mail", refuse)
    with django_capture_on_commit_callbacks(execute=True):
        assert owner_client.post("/team/invite", GOOD_INVITE).status_code == 200


def test_a_team_name_with_line_breaks_cannot_add_headers_to_mail(
    owner_client, team, mailoutbox, django_capture_on_commit_callbacks
):
    type(team).objects.update(name="Evil\r\nBcc: all@x.example")
    with django_capture_on_commit_callbacks(execute=True):
        owner_client.post("/team/invite", GOOD_INVITE)
    assert "\n" not in mailoutbox[0].subject
    assert mailoutbox[0].recipients() == ["new@x.example"]


def test_inviting_a_member_says_so_and_keeps_the_input(owner_client, mate):
    response = owner_client.post("/team/invite", {"email": mate.email, "role": "admin"})
    seen = response.content.decode()
    assert "is a member of this team already" in seen
    assert f'value="{mate.email}"' in seen


@pytest.mark.parametrize("field", ["email", "role"])
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_invitations_are_form_errors(owner_client, field, kind):
    response = owner_client.post("/team/invite", form_data(GOOD_INVITE, field, HOSTILE[kind]))
    assert response.status_code == 200
    assert response.context["form"].errors[field]
    assert not Invitation.objects.exists()


def test_withdrawing_asks_first_and_then_does_it(owner_client, invitation):
    path = f"/team/invitations/{invitation.pk}/withdraw"
    assert "stops working at once" in page(owner_client, path)
    assert Invitation.objects.pending().exists()
    assert owner_client.post(path).status_code == 302
    assert not Invitation.objects.pending().exists()
    assert owner_client.post(path).status_code == 404


def test_a_role_changes_only_by_post(owner_client, mates_row):
    path = f"/team/members/{mates_row.pk}/role"
    assert "Make an admin" in page(owner_client, f"{path}?role=admin")
    mates_row.refresh_from_db()
    assert mates_row.role == "member"
    assert owner_client.post(path, {"role": "admin"}).status_code == 302
    mates_row.refresh_from_db()
    assert mates_row.role == "admin"


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_roles_are_refused(owner_client, mates_row, kind):
    data = form_data({"role": ""}, "role", HOSTILE[kind])
    assert owner_client.post(f"/team/members/{mates_row.pk}/role", data).status_code == 400
    mates_row.refresh_from_db()
    assert mates_row.role == "member"


def test_the_last_admin_is_told_why_not(owner_client, owners_row):
    response = owner_client.post(f"/team/members/{owners_row.pk}/remove")
    assert response.status_code == 409
    assert "The last admin of a team cannot be removed" in response.content.decode()


def test_a_removed_members_open_session_has_no_access(owner_client, mate_client, mates_row):
    assert mate_client.get("/team/").status_code == 200
    assert owner_client.post(f"/team/members/{mates_row.pk}/remove").status_code == 302
    assert mate_client.get("/team/").status_code == 403


def test_a_member_may_leave_and_remove_nobody_else(mate_client, mates_row, owners_row):
    assert mate_client.post(f"/team/members/{owners_row.pk}/remove").status_code == 403
    assert "Leave" in page(mate_client, f"/team/members/{mates_row.pk}/remove")
    assert mate_client.post(f"/team/members/{mates_row.pk}/remove").status_code == 302
    assert not Membership.objects.filter(pk=mates_row.pk).exists()


@pytest.mark.parametrize("pk", ["0", "999999999", "9" * 60])
def test_numbers_of_nobody_are_not_found(owner_client, pk):
    for path in (f"members/{pk}/role", f"members/{pk}/remove", f"invitations/{pk}/withdraw"):
        assert owner_client.post(f"/team/{path}", {"role": "admin"}).status_code == 404


def test_switching_to_another_team_of_mine(owner, owner_client, other_team):
    Membership.objects.create(team=other_team, user=owner)
    response = owner_client.post("/team/switch", {"team": other_team.code, "next": "/team/"})
    assert response["Location"] == "/team/"
    assert "Robotics" in page(owner_client, "/team/")


def test_switching_to_a_team_of_others_is_not_found(owner_client, other_team):
    assert owner_client.post("/team/switch", {"team": other_team.code}).status_code == 404
    assert owner_client.get("/team/switch").status_code == 405
    assert "Climate" in page(owner_client, "/team/")


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_switches_are_refused(owner_client, team, kind):
    data = form_data({"team": ""}, "team", HOSTILE[kind])
    assert owner_client.post("/team/switch", data).status_code in (400, 404)
    huge = form_data({"team": team.code}, "next", HOSTILE[kind])
    assert owner_client.post("/team/switch", huge).status_code in (302, 400)


ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example/",
    "\\\\evil.example",
    "javascript:alert(1)",
    "http://[::1",
    "/\t/evil.example",
    "///evil.example",
]


@pytest.mark.parametrize("target", ELSEWHERE)
def test_switching_leads_nowhere_else(owner_client, team, target):
    response = owner_client.post("/team/switch", {"team": team.code, "next": target})
    assert (response.status_code, response["Location"]) == (302, "/")


def test_hostile_names_are_shown_as_text(owner_client, team):
    type(team).objects.update(name="<img src=x onerror=alert(1)>")
    assert "<img src=x" not in page(owner_client, "/team/")

"""What people and operators do to teams, below the pages."""

import threading
from datetime import timedelta

import pytest
from django.db import connection

from portal.base.clock import db_now
from portal.base.crypto import hash_token
from portal.base.errors import Conflict, Forbidden, NotFound
from portal.teams import services
from portal.teams.access import is_member
from portal.teams.accounts import create_link
from portal.teams.models import Invitation, Membership, SignInLink, Team, User

pytestmark = pytest.mark.db
Role = Membership.Role


def token_of(invited: services.Invited) -> str:
    return invited.address.rsplit("/", 1)[1]


def membership(team: Team, user: User) -> Membership:
    return Membership.objects.get(team=team, user=user)


def verbs(team: Team) -> list[str]:
    return list(team.events.values_list("verb", flat=True))


@pytest.mark.django_db
def test_a_new_team_has_its_limits_and_an_invited_admin():
    team, invited = services.create_team(
        name="Optics",
        actor="op@x.example",
        first_admin="Boss@X.example",
        quota_bytes=5,
        max_hours=2,
    )
    assert (team.quota_bytes, team.max_hours, team.max_gpus_per_job) == (5, 2, None)
    assert (invited.invitation.email, invited.invitation.role) == ("boss@x.example", "admin")
    assert verbs(team) == ["created", "invited"]


@pytest.mark.django_db
def test_two_teams_cannot_have_one_name(team):
    with pytest.raises(Conflict, match="already"):
        services.create_team(name=team.name, actor="op@x.example", first_admin="b@x.example")


def test_only_the_hash_of_a_token_is_kept(team):
    invited = services.invite(team=team, email="n@x.example", role="member", actor="a@x.example")
    token = token_of(invited)
    row = Invitation.objects.get()
    assert row.token_hash == hash_token(token)
    assert token not in str({f.name: getattr(row, f.name) for f in Invitation._meta.fields})


def test_inviting_again_kills_the_earlier_link(team):
    first = services.invite(team=team, email="n@x.example", role="member", actor="a@x.example")
    second = services.invite(team=team, email="n@x.example", role="admin", actor="a@x.example")
    with pytest.raises(Conflict, match="withdrawn"):
        services.find_invitation(token_of(first))
    assert services.find_invitation(token_of(second)).role == "admin"


def test_an_expired_invitation_does_not_stand_in_the_way(team):
    services.invite(team=team, email="n@x.example", role="member", actor="a@x.example")
    Invitation.objects.update(expires_at=db_now() - timedelta(days=1))
    invited = services.invite(team=team, email="n@x.example", role="member", actor="a@x.example")
    assert services.find_invitation(token_of(invited)).email == "n@x.example"


def test_a_member_is_not_invited_again(team, mate):
    with pytest.raises(Conflict, match="member of this team already"):
        services.invite(team=team, email=mate.email.upper(), role="member", actor="a@x.example")


def test_invitations_are_limited_within_an_hour(team, monkeypatch):
    monkeypatch.setattr(services, "MOST_INVITATIONS_PER_HOUR", 2)
    for number in range(2):
        services.invite(team=team, email=f"n{number}@x.example", role="member", actor="a@x.example")
    with pytest.raises(services.TooMany):
        services.invite(team=team, email="n3@x.example", role="member", actor="a@x.example")
    assert team.invitations.count() == 2


def test_an_invitation_is_accepted_once(team):
    invited = services.invite(team=team, email="n@x.example", role="admin", actor="a@x.example")
    member = services.accept_with_new_account(
        invitation=invited.invitation, password="correct horse battery"
    )
    assert (member.role, member.user.email) == ("admin", "n@x.example")
    with pytest.raises(Conflict, match="used before"):
        services.find_invitation(token_of(invited))
    with pytest.raises(Conflict):
        services.accept_invitation(invitation=invited.invitation, user=member.user)
    assert verbs(team) == ["invited", "joined"]


def test_an_account_that_exists_by_now_is_not_made_again(team):
    invited = services.invite(team=team, email="n@x.example", role="member", actor="a@x.example")
    User.objects.create_user("n@x.example", "their own password")
    with pytest.raises(Conflict, match="account with this address"):
        services.accept_with_new_account(invitation=invited.invitation, password="another one 1")
    assert User.objects.get(email="n@x.example").check_password("their own password")
    assert services.find_invitation(token_of(invited))


def test_another_account_cannot_accept(team, stranger):
    invited = services.invite(team=team, email="n@x.example", role="member", actor="a@x.example")
    with pytest.raises(Forbidden, match="is for n@x"):
        services.accept_invitation(invitation=invited.invitation, user=stranger)
    assert not is_member(stranger.email, team.pk)


def test_a_withdrawn_invitation_cannot_be_accepted_even_if_it_was_read_before(team, stranger):
    invited = services.invite(team=team, email=stranger.email, role="member", actor="a@x.example")
    services.withdraw_invitation(invitation=invited.invitation, actor="a@x.example")
    with pytest.raises(Conflict):
        services.accept_invitation(invitation=invited.invitation, user=stranger)
    with pytest.raises(Conflict):
        services.withdraw_invitation(invitation=invited.invitation, actor="a@x.example")
    assert not is_member(stranger.email, team.pk)


@pytest.mark.django_db
def test_an_unknown_token_is_not_found():
    for token in ("", "x", "\0", "\ud800", "a" * 1_000_000):
        with pytest.raises(NotFound):
            services.find_invitation(token)


def test_the_last_admin_stays(team, owner, mate):
    with pytest.raises(services.LastAdmin):
        services.remove_member(membership=membership(team, owner), actor=owner.email)
    with pytest.raises(services.LastAdmin):
        services.change_role(membership=membership(team, owner), role="member", actor=owner.email)
    services.change_role(membership=membership(team, mate), role="admin", actor=owner.email)
    services.remove_member(membership=membership(team, owner), actor=mate.email)
    assert not is_member(owner.email, team.pk)


def test_who_became_the_last_admin_since_the_page_was_read_stays(team, owner, mate):
    read_before = membership(team, mate)
    services.change_role(membership=membership(team, mate), role="admin", actor=owner.email)
    services.remove_member(membership=membership(team, owner), actor=mate.email)
    with pytest.raises(services.LastAdmin):
        services.remove_member(membership=read_before, actor=mate.email)


def test_a_deactivated_admin_does_not_count_as_one(team, owner, mate):
    services.change_role(membership=membership(team, mate), role="admin", actor=owner.email)
    User.objects.filter(pk=mate.pk).update(is_active=False)
    with pytest.raises(services.LastAdmin):
        services.remove_member(membership=membership(team, owner), actor=owner.email)


def test_what_a_removed_member_could_do_ends(team, owner, mate):
    services.change_role(membership=membership(team, mate), role="admin", actor=owner.email)
    back_door = services.invite(team=team, email="b@x.example", role="admin", actor=mate.email)
    others = services.invite(team=team, email="c@x.example", role="member", actor=owner.email)
    create_link(user=mate, lifetime=timedelta(hours=1))
    assert is_member(mate.email, team.pk)

    services.remove_member(membership=membership(team, mate), actor=owner.email)

    assert not is_member(mate.email, team.pk)
    assert not SignInLink.objects.filter(user=mate).exists()
    with pytest.raises(Conflict, match="withdrawn"):
        services.find_invitation(token_of(back_door))
    assert services.find_invitation(token_of(others))
    assert verbs(team)[-2:] == ["removed", "invitation_withdrawn"]


def test_a_former_admin_keeps_no_open_invitations(team, owner, mate):
    services.change_role(membership=membership(team, mate), role="admin", actor=owner.email)
    sent = services.invite(team=team, email="b@x.example", role="admin", actor=mate.email)
    services.change_role(membership=membership(team, mate), role="member", actor=owner.email)
    with pytest.raises(Conflict):
        services.find_invitation(token_of(sent))


def test_a_membership_that_ended_cannot_be_changed(team, owner, mate):
    stale = membership(team, mate)
    services.remove_member(membership=membership(team, mate), actor=owner.email)
    with pytest.raises(Conflict):
        services.change_role(membership=stale, role="admin", actor=owner.email)
    with pytest.raises(Conflict):
        services.remove_member(membership=stale, actor=owner.email)


def test_changing_limits_says_what_changed(team):
    services.change_team(team=team, actor="op@x.example", name="Weather", max_hours=4)
    services.change_team(team=team, actor="op@x.example", name="Weather", max_hours=4)
    team.refresh_from_db()
    assert (team.name, team.max_hours) == ("Weather", 4)
    said = [event.sentence for event in team.events.all()]
    assert said == ["renamed the team from Climate", "changed the limits: max_hours 4"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite in memory has one connection")
def test_two_admins_who_remove_each_other_at_once_leave_one(team, owner, mate):
    Membership.objects.filter(user=mate).update(role="admin")
    gate, refused = threading.Barrier(2, timeout=60), []

    def remove(whom: User, by: User) -> None:
        row = membership(team, whom)
        gate.wait()
        try:
            services.remove_member(membership=row, actor=by.email)
        except services.LastAdmin as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [
        threading.Thread(target=remove, args=pair) for pair in [(owner, mate), (mate, owner)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(refused) == 1
    assert team.memberships.filter(role="admin").count() == 1

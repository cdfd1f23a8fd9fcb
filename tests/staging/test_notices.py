"""Notice before deletion, and who or what deleted it (case T4)."""

import smtplib
from datetime import UTC, datetime, timedelta

import pytest
from django.core import mail as django_mail

from portal.base.clock import db_now
from portal.teams.models import Membership
from staging import notices, services, tasks
from staging.models import Dataset, DeletionMail, DeletionNotice
from staging.states import DatasetState

pytestmark = [pytest.mark.django_db, pytest.mark.db]
DAY = timedelta(days=1)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def due(staged):
    """due(days, **options): a staged dataset whose date is so many days after NOON."""

    def make(days: float, **changes) -> Dataset:
        dataset = staged({"a": b"a"})
        values = {"expires_at": NOON + days * DAY, "expiry_set_by": "the team's policy", **changes}
        Dataset.objects.filter(pk=dataset.pk).update(**values)
        dataset.refresh_from_db()
        return dataset

    return make


def daily(first: datetime, days: int) -> list[int]:
    """How many mails left on each day."""
    return [notices.send_notices(at=first + n * DAY) for n in range(days)]


def test_seven_days_and_one_day_before(due, owner, mailoutbox):
    due(10)
    assert daily(NOON, 11) == [0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
    assert [mail.recipients() for mail in mailoutbox] == [[owner.email]] * 2
    assert mailoutbox[0].subject == "1 dataset of Climate is deleted in 7 days"
    assert "is deleted on 2026-12-10 12:00 UTC." in mailoutbox[0].body
    assert "2026-12-10 12:00 UTC, in 7 days; the date was set by the team's policy" in (
        mailoutbox[0].body
    )
    assert mailoutbox[1].subject == "1 dataset of Climate is deleted in 1 day"


@pytest.mark.parametrize("hour", range(24))
def test_nobody_has_less_than_a_day(due, hour):
    """Whatever the hour of the date, the first pass of a day tells of it in time."""
    dataset = due(3, expires_at=NOON + 3 * DAY + timedelta(hours=hour))
    midnight = NOON.replace(hour=0)
    told = [at for n in range(5) if notices.send_notices(at=(at := midnight + n * DAY))]
    assert len(told) == 2
    assert DAY <= dataset.expires_at - told[-1] <= 2 * DAY


def test_one_mail_a_day_lists_all_of_a_person(due, owner, mailoutbox):
    names = [due(n).code for n in (6.9, 7, 1)]
    assert notices.send_notices(at=NOON) == 1
    (mail,) = mailoutbox
    assert all(f"/staging/{code}/" in mail.body for code in names)
    assert "3 datasets of Climate" in mail.subject
    due(5)  # staged later that day: it waits for tomorrow's
    assert notices.send_notices(at=NOON + timedelta(hours=1)) == 0
    assert notices.send_notices(at=NOON + DAY) == 1


def test_each_is_told_of_their_own(due, mate, owner, team, mailoutbox):
    due(1)
    due(1, created_by=mate.email)
    gone = due(1, created_by="gone@climate.example", name="Left behind")
    assert notices.send_notices(at=NOON) == 2
    by_address = {mail.recipients()[0]: mail.body for mail in mailoutbox}
    assert set(by_address) == {owner.email, mate.email}
    assert gone.name in by_address[owner.email]  # an admin of the team
    assert gone.name not in by_address[mate.email]


def test_nobody_is_told_of_another_teams(due, stranger, other_team, mailoutbox):
    due(1, created_by=stranger.email)
    Membership.objects.filter(team=other_team).update(role="admin")
    notices.send_notices(at=NOON)
    assert stranger.email not in [to for mail in mailoutbox for to in mail.recipients()]


def test_a_date_that_was_moved_is_told_anew(due):
    dataset = due(1)
    assert notices.send_notices(at=NOON) == 1
    assert notices.send_notices(at=NOON + DAY / 4) == 0
    Dataset.objects.update(expires_at=NOON + 20 * DAY)
    assert daily(NOON + DAY, 20).count(1) == 2
    dates = DeletionNotice.objects.filter(dataset=dataset).order_by("pk")
    assert [(row.days, row.expires_at) for row in dates] == [
        (1, NOON + DAY),
        (7, NOON + 20 * DAY),
        (1, NOON + 20 * DAY),
    ]


@pytest.mark.parametrize("state", [DatasetState.PURGED, DatasetState.TRANSFERRING])
def test_what_is_not_deleted_by_date_is_not_told(due, state):
    due(1, state=state, purged_at=NOON)
    assert notices.send_notices(at=NOON) == 0


def test_what_a_job_needs_says_so(due, mailoutbox):
    dataset = due(1)
    services.hold(dataset=dataset, holder="job1", label="Training", at=db_now())
    notices.send_notices(at=NOON)
    assert "not before the 1 job that needs it" in mailoutbox[0].body


def test_a_mail_that_failed_is_tried_again(due, monkeypatch, mailoutbox):
    due(1)
    send = django_mail.EmailMessage.send

    def refuse(*args, **kwargs):
        raise smtplib.SMTPServerDisconnected

    monkeypatch.setattr(django_mail.EmailMessage, "send", refuse)
    monkeypatch.setattr(django_mail.EmailMultiAlternatives, "send", refuse)
    assert notices.send_notices(at=NOON) == 0
    assert DeletionMail.objects.get().sent_at is None
    monkeypatch.setattr(django_mail.EmailMessage, "send", send)
    monkeypatch.setattr(django_mail.EmailMultiAlternatives, "send", send)
    assert notices.send_notices(at=NOON + notices.TRY_AGAIN / 2) == 0  # another pass may be at it
    assert notices.send_notices(at=NOON + notices.TRY_AGAIN) == 1
    assert len(mailoutbox) == 1
    assert DeletionNotice.objects.count() == 1
    assert DeletionMail.objects.get().sent_at is not None


def test_a_pass_that_is_second_sends_nothing(due, mailoutbox):
    dataset = due(1)
    lines = [notices.Line(dataset, 1, dataset.expires_at)]
    assert notices._claim(dataset.team, dataset.created_by, lines, NOON) is not None
    assert notices._claim(dataset.team, dataset.created_by, lines, NOON) is None
    assert notices.send_notices(at=NOON) == 0
    assert mailoutbox == []


def test_without_a_mail_server_nothing_is_claimed(due, settings):
    settings.MAILERS = {"default": {"BACKEND": settings.NO_MAIL}}
    due(1)
    assert notices.send_notices(at=NOON) == 0
    assert not DeletionMail.objects.exists()


def test_the_pass_goes_by_the_clock(due, mailoutbox):
    due(1, expires_at=db_now() + DAY / 2)
    tasks.notify()
    tasks.notify()
    assert len(mailoutbox) == 1


def test_the_page_says_who_was_told_and_what_deleted_it(due, owner_client, owner):
    dataset = due(1, expires_at=db_now() + DAY / 2)
    tasks.notify()
    page = owner_client.get(f"/staging/{dataset.code}/").content.decode()
    assert f"told {owner.email} by mail" in page
    Dataset.objects.update(expires_at=db_now() - DAY)
    tasks.sweep()
    page = owner_client.get(f"/staging/{dataset.code}/").content.decode()
    assert "Its date of deletion had come" in page
    assert 'The date was set by <span class="break">the team&#x27;s policy' in page
    listed = owner_client.get("/staging/?kind=deleted").content.decode()
    assert dataset.name in listed
    assert "its date had come, set by the team&#x27;s policy" in listed


def test_a_person_who_deletes_is_named(due, mate_client, owner_client, mate):
    dataset = due(30)
    mate_client.post(f"/staging/{dataset.code}/delete")
    tasks.purge()
    for address in (f"/staging/{dataset.code}/", "/staging/?kind=deleted"):
        assert mate.email in owner_client.get(address).content.decode()

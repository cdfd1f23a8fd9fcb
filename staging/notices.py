"""Notice before deletion: seven days and one day ahead, one mail a team, person and day (case T4).

Days are those of UTC. The mail of a day names what is deleted before the end of the day that is
seven days, or one day, later, so nobody has less than that time. The mail's row is its receipt.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction

from portal.base.clock import db_now
from portal.base.turns import is_ending
from portal.base.words import in_bytes, in_utc, until
from portal.teams.access import is_member
from portal.teams.mail import send_now, sends_mail
from portal.teams.models import Membership, Team
from staging import listing
from staging.models import Dataset, DeletionMail, DeletionNotice
from staging.states import DatasetState

AHEAD = (1, 7)  # days
TRY_AGAIN = timedelta(minutes=30)
TEMPLATE = "staging/email/deletion"
ACTOR = "system"


@dataclass(frozen=True)
class Line:
    """A dataset whose date is told, so many days ahead."""

    dataset: Dataset
    days: int
    date: datetime


type Lines = list[Line]  # the earliest date first


def send_notices(*, at: datetime, stop: datetime | None = None) -> int:
    """Send the mails of this day that are due; how many left. Nothing where no mail is sent."""
    if not sends_mail():
        return 0
    sent = 0
    for (team, address), lines in _due(at).items():
        if stop is not None and (is_ending() or db_now() > stop):
            break
        mail = _claim(team, address, lines, at)
        if mail is not None and send_now(TEMPLATE, address, _context(team, lines, at)):
            _sent(mail, lines)
            sent += 1
    return sent


def _due(at: datetime) -> dict[tuple[Team, str], Lines]:
    """What has to be told today, by team and address."""
    midnight = datetime.combine(at.date(), time(), tzinfo=UTC)
    rows = Dataset.objects.filter(
        state__in=[DatasetState.STAGED, DatasetState.FAILED, DatasetState.STALE],
        expires_at__gt=at,
        expires_at__lt=midnight + timedelta(days=max(AHEAD) + 1),
    )
    found: dict[tuple[Team, str], Lines] = defaultdict(list)
    for dataset in rows.select_related("team").order_by("expires_at", "pk"):
        date = dataset.expires_at
        assert date is not None  # noqa: S101  the filter says so
        days = next(n for n in AHEAD if date < midnight + timedelta(days=n + 1))
        line = Line(dataset, days, date)
        for address in _addresses(dataset):
            if not _told(line, address):
                found[dataset.team, address].append(line)
    return found


def _told(line: Line, address: str) -> bool:
    return DeletionNotice.objects.filter(
        dataset=line.dataset,
        days=line.days,
        expires_at=line.date,
        mail__address=address,
        mail__sent_at__isnull=False,
    ).exists()


def _addresses(dataset: Dataset) -> Iterator[str]:
    """Who staged it; the admins of the team where that person has left."""
    if is_member(dataset.created_by, dataset.team_id):
        yield dataset.created_by
        return
    admins = Membership.objects.filter(
        team=dataset.team_id, role=Membership.Role.ADMIN, user__is_active=True
    )
    yield from admins.order_by("pk").values_list("user__email", flat=True)


def _claim(team: Team, address: str, lines: Lines, at: datetime) -> DeletionMail | None:
    """The row of today's mail, ours to send; None when it was sent or another pass is at it."""
    try:
        with transaction.atomic():
            mail = DeletionMail.objects.create(
                team=team, address=address, day=at.date(), claimed_at=at
            )
            _list(mail, lines)
            return mail
    except IntegrityError:
        pass
    with transaction.atomic():
        stuck = DeletionMail.objects.filter(
            team=team,
            address=address,
            day=at.date(),
            sent_at=None,
            claimed_at__lte=at - TRY_AGAIN,
        )
        if not stuck.update(claimed_at=at):
            return None
        mail = DeletionMail.objects.get(team=team, address=address, day=at.date())
        mail.notices.all().delete()
        _list(mail, lines)
    return mail


def _list(mail: DeletionMail, lines: Lines) -> None:
    DeletionNotice.objects.bulk_create(
        DeletionNotice(mail=mail, dataset=line.dataset, days=line.days, expires_at=line.date)
        for line in lines
    )


def _sent(mail: DeletionMail, lines: Lines) -> None:
    with transaction.atomic():
        now = db_now()
        DeletionMail.objects.filter(pk=mail.pk).update(sent_at=now)
        for line in lines:
            detail = {"to": mail.address, "ahead": line.days}
            line.dataset.note("notify", at=now, actor=ACTOR, detail=detail)


def _context(team: Team, lines: Lines, at: datetime) -> dict[str, object]:
    return {
        "team": team.name,
        "count": len(lines),
        "first": in_utc(lines[0].date),
        "days": max(1, (lines[0].date - at).days),
        "datasets": [_facts(line, at) for line in lines],
    }


def _facts(line: Line, at: datetime) -> dict[str, object]:
    dataset = line.dataset
    totals = listing.totals_of(dataset)
    return {
        "name": dataset.name,
        "date": in_utc(line.date),
        "left": until(line.date - at),
        "size": f"{totals.files:,} file{'' if totals.files == 1 else 's'}, {in_bytes(totals.size)}",
        "set_by": dataset.expiry_set_by,
        "held": dataset.holds,
        "address": f"{settings.PUBLIC_URL}/staging/{dataset.code}/",
    }

"""Looking at what moves: each look teaches the transfer and its link, and writes the estimate down.

A look is a reading of counts that somebody else keeps, so it may come from anywhere, any number of
times: the beat's task, a pump that copies, a page that is polled. Rows are swapped by version: of
two looks at once one is left out. An estimate is never worth an error: whatever the database says
against one is logged.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.db.models import F

from portal.base.commits import light_atomic
from staging.estimates import pace
from staging.estimates.models import Link, Transfer
from staging.estimates.pace import Work

LEAST_LOOK = timedelta(seconds=0.8)
LEAST_SAID = timedelta(seconds=2)
SAID_SHARE = 1 / 64  # of the time since the beginning, between two estimates that are kept
KEEP = timedelta(days=90)  # ended transfers with their estimates
KEEP_LINKS = timedelta(days=400)
FORGOTTEN = timedelta(days=1)  # a transfer that nobody has looked at for so long
BATCH = 500
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Way:
    """What identifies a link."""

    kind: str
    origin: str
    target: str


@dataclass(frozen=True)
class Count:
    """How far something is. `air` is done but not written down yet, `free` was there already.

    `idle_s`: a time without movement that is longer was a pause of the sender, who does not tell;
    `anew`: the sender tells that nothing was to move lately.
    """

    subject: str
    way: Way
    files: int
    bytes: int
    files_done: int
    bytes_done: int
    files_air: int = 0
    bytes_air: int = 0
    bytes_free: int = 0
    moving: bool = True
    idle_s: float | None = None
    anew: bool = False


type Lister = Callable[[datetime, list[Transfer]], None]

_listers: list[Lister] = []


def register(lister: Lister) -> None:
    """`lister(now, open)` looks at all that moves of one kind, and ends what moves no more.

    `open` are the transfers that have not ended.
    """
    if lister not in _listers:
        _listers.append(lister)


def store_name() -> str:
    """The store as an end of links: another place is another link."""
    return settings.STORAGE_URL.partition("?")[0].rpartition("@")[2][:300]


def look_at_all(now: datetime) -> None:
    """One look at everything that moves."""
    open_ones = list(Transfer.objects.filter(ended_at=None))
    for lister in _listers:
        try:
            lister(now, open_ones)
        except DatabaseError:
            log.warning("estimates_failed", exc_info=True)
    for transfer in open_ones:
        if now - transfer.seen_at > FORGOTTEN:  # what it was of is no more
            end(transfer, at=now, complete=False)


def observe(count: Count, now: datetime) -> Transfer | None:
    """Take one count. Returns the transfer as it is then, None where it could not be written."""
    try:
        transfer = going(count.subject)
        if transfer is not None and now - transfer.seen_at < LEAST_LOOK:
            return transfer  # read, and nobody who writes was waited for
        with light_atomic():
            return _observe(transfer, count, now)
    except DatabaseError:
        log.warning("estimate_failed", subject=count.subject, exc_info=True)
        return None


def _observe(transfer: Transfer | None, count: Count, now: datetime) -> Transfer:
    if transfer is None:
        return _begin(count, now)
    book = _Book(transfer)
    book.move(count, now)
    book.say(now, count.idle_s)
    book.save(now)
    return transfer


def going(subject: str) -> Transfer | None:
    rows = Transfer.objects.filter(subject=subject, ended_at=None)
    return rows.select_related("link").first()


def latest(subjects: Iterable[str]) -> dict[str, Transfer]:
    """The transfers of these subjects that have not ended, by subject."""
    rows = Transfer.objects.filter(subject__in=list(subjects), ended_at=None)
    return {row.subject: row for row in rows}


def _begin(count: Count, now: datetime) -> Transfer:
    """What is there already was not seen to come, so nothing is learned from it."""
    way = count.way
    link, _ = Link.objects.get_or_create(
        kind=way.kind,
        origin=way.origin[:300],
        target=way.target[:300],
        defaults={"used_at": now},
    )
    track = pace.Track.on(pace.fit_from_json(link.fit))
    transfer = Transfer(
        link=link,
        subject=count.subject,
        began_at=now,
        seen_at=now,
        moved_at=now,
        next_look_at=now,
        moving=count.moving,
        learned=track.as_json(),
    )
    book = _Book(transfer)
    book.set_counts(count)
    book.say(now, count.idle_s)
    transfer.learned = book.track.as_json()
    transfer.save()
    book.keep(now)
    return transfer


class _Book:
    """A transfer with its memory and that of its link, open for one look."""

    def __init__(self, transfer: Transfer) -> None:
        self.transfer, self.link = transfer, transfer.link
        self.track = pace.Track.from_json(transfer.learned)
        self.fit = pace.fit_from_json(self.link.fit)
        self.errors = pace.errors_from_json(self.link.errors)
        self.learned = False

    @property
    def done(self) -> Work:
        """What was moved, without what had been there."""
        transfer = self.transfer
        return Work(transfer.files_done, transfer.bytes_done - transfer.bytes_free)

    @property
    def left(self) -> Work:
        """What has to move, by the share of what came that had to."""
        transfer = self.transfer
        size: float = transfer.bytes - transfer.bytes_done
        if transfer.bytes_free:
            size = size * (1 - transfer.bytes_free / max(transfer.bytes_done, 1))
        return Work(transfer.files - transfer.files_done, size)

    def set_counts(self, count: Count) -> None:
        """Never above the whole, and not back but for bytes that are to come again."""
        transfer = self.transfer
        files = min(count.files, count.files_done + count.files_air)
        size = min(count.bytes, count.bytes_done + count.bytes_air)
        if count.bytes_done >= transfer.bytes_recorded:
            files, size = max(files, transfer.files_done), max(size, transfer.bytes_done)
        transfer.files, transfer.bytes = count.files, count.bytes
        transfer.files_done, transfer.bytes_done = min(files, count.files), min(size, count.bytes)
        transfer.bytes_recorded, transfer.bytes_free = count.bytes_done, count.bytes_free

    def move(self, count: Count, now: datetime) -> None:
        """Take the new counts, and learn from the stretch since the last movement."""
        transfer = self.transfer
        before, free = self.done, transfer.bytes_free
        self.set_counts(count)
        work = self.done - before
        seconds = (now - transfer.moved_at).total_seconds()
        idle = count.idle_s is not None and seconds > count.idle_s
        if not count.moving or not transfer.moving:
            transfer.paused = transfer.paused or not count.moving
            transfer.moved_at = now
        elif idle and work:
            transfer.paused, transfer.moved_at = True, now
        elif work.bytes < 0 or (not work.bytes and count.bytes_free > free):
            transfer.moved_at = now  # sent again; or had without being moved
        elif count.anew and not work:
            transfer.moved_at = now
        elif work:
            self.track.step(self.fit, work, seconds)
            transfer.moved_at, self.learned = now, True
        transfer.moving = count.moving

    def close(self, at: datetime, free: int | None) -> None:
        """The rest has come, and it is known how wrong each forecast was."""
        transfer, before = self.transfer, self.done
        transfer.files_done, transfer.bytes_done = transfer.files, transfer.bytes
        transfer.bytes_free = transfer.bytes_free if free is None else free
        work = self.done - before
        if work and work.bytes <= 0 and transfer.bytes_free:
            return  # it was there already: that is no time of the link
        if transfer.moving:
            seconds = max(0.001, (at - transfer.moved_at).total_seconds())
            self.track.step(self.fit, work, seconds)
        self.track.finish(self.errors)
        self.learned = True

    def say(self, now: datetime, idle_s: float | None) -> None:
        """The forecast of this moment, or that it is not known."""
        transfer = self.transfer
        waited = (now - transfer.moved_at).total_seconds()
        idle = idle_s is not None and waited > idle_s
        found = None
        if transfer.moving and transfer.files and not idle:
            found = self.track.forecast(self.fit, self.errors, self.left, waited)
        transfer.rate = found.rate if found else None
        transfer.p50_s = found.p50 if found else None
        transfer.p90_s = found.p90 if found else None

    def save(self, now: datetime) -> bool:
        """Swap the transfer, then what its link has learned; False when another look was first."""
        transfer = self.transfer
        transfer.seen_at, transfer.learned = now, self.track.as_json()
        fields = [f.attname for f in Transfer._meta.concrete_fields]
        changes = {
            name: getattr(transfer, name) for name in fields if name not in ("id", "version")
        }
        rows = Transfer.objects.filter(pk=transfer.pk, version=transfer.version, ended_at=None)
        if not rows.update(version=F("version") + 1, **changes):
            transfer.refresh_from_db()
            return False
        transfer.version += 1
        if self.learned:
            Link.objects.filter(pk=self.link.pk, version=self.link.version).update(
                fit=pace.fit_as_json(self.fit),
                errors=pace.errors_as_json(self.errors),
                version=F("version") + 1,
                used_at=now,
            )
        self.keep(now)
        return True

    def keep(self, now: datetime) -> None:
        """Write the estimate down with its moment, seldom enough that a long transfer has few."""
        transfer = self.transfer
        if transfer.p50_s is None or transfer.p90_s is None or transfer.ended_at is not None:
            return
        last = transfer.estimates.order_by("-at").values_list("at", flat=True).first()
        apart = max(LEAST_SAID, (now - transfer.began_at) * SAID_SHARE)
        if last is not None and now - last < apart:
            return
        transfer.estimates.create(
            at=now,
            files_left=transfer.files - transfer.files_done,
            bytes_left=transfer.bytes - transfer.bytes_done,
            rate=transfer.rate or 0.0,
            p50_s=transfer.p50_s,
            p90_s=transfer.p90_s,
        )


def end(transfer: Transfer, *, at: datetime, complete: bool, bytes_free: int | None = None) -> None:
    """It is over. A complete one teaches its link how wrong its forecasts were."""
    try:
        with light_atomic():
            _end(transfer, at, complete, bytes_free)
    except DatabaseError:
        log.warning("estimate_failed", subject=transfer.subject, exc_info=True)


def _end(transfer: Transfer, at: datetime, complete: bool, free: int | None) -> None:
    # In the order of a look: transfer, then link. Of two that end at once over a link, both teach.
    transfer = Transfer.objects.select_for_update().get(pk=transfer.pk)
    if transfer.ended_at is not None:
        return
    transfer.link = Link.objects.select_for_update().get(pk=transfer.link_id)
    book = _Book(transfer)
    if complete:
        book.close(at, free)
    transfer.ended_at, transfer.complete, transfer.moving = at, complete, False
    transfer.rate = transfer.p50_s = transfer.p90_s = None
    book.save(at)


def forget(now: datetime) -> int:
    """Delete what ended long ago, and links that were not used for longer than a year."""
    old = Transfer.objects.filter(ended_at__lt=now - KEEP).values_list("pk", flat=True)[:BATCH]
    count = Transfer.objects.filter(pk__in=list(old)).delete()[0]
    unused = Link.objects.filter(used_at__lt=now - KEEP_LINKS, transfers=None)
    return count + unused.delete()[0]

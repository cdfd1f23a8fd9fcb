"""Who does what: claims of parts, and seats for the workers that copy at the same time."""

import random
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q, QuerySet

from staging.models import Part, PumpSeat, Source, SourceFile
from staging.sync.copying import Order
from staging.sync.readers import Pinned
from staging.sync.states import PartKind, SourceFileState, SourceState

CLAIM = timedelta(seconds=35)  # a turn is at most 20 s, and a stuck thread is given up
CHECK_CLAIM = timedelta(seconds=600)  # reading a whole file back cannot be cut
SEAT = timedelta(seconds=40)


def at_work(now: datetime) -> QuerySet[Source]:
    """Sources that may be listed or copied now."""
    free = Q(next_try_at=None) | Q(next_try_at__lte=now)
    return Source.objects.filter(free, state__in=(SourceState.LISTING, SourceState.COPYING))


def _free(now: datetime) -> Q:
    claimed = Q(claimed_until=None) | Q(claimed_until__lte=now)
    return claimed & (Q(next_try_at=None) | Q(next_try_at__lte=now))


def claim_parts(source_id: int, most: int, now: datetime) -> list[Order]:
    """Up to `most` parts of a source, each claimed by this caller alone."""
    rows = Part.objects.filter(_free(now), source_id=source_id, done=False)
    candidates = list(rows.order_by("pk")[: most * 4])
    if len(candidates) > most:
        head = candidates[: most * 2]  # workers that ask at once do not all want the same
        random.shuffle(head)
        candidates = head + candidates[most * 2 :]
    taken: list[Part] = []
    for part in candidates:
        if len(taken) == most:
            break
        length = CHECK_CLAIM if part.kind == PartKind.CHECK else CLAIM
        mine = Part.objects.filter(_free(now), pk=part.pk, done=False)
        if mine.filter(generation=part.generation).update(
            claimed_until=now + length, generation=F("generation") + 1
        ):
            part.generation += 1
            taken.append(part)
    orders = [_order(part) for part in taken]
    empty = [o.part for o in orders if o.kind != PartKind.PACK and not o.files]
    Part.objects.filter(pk__in=empty).update(done=True)  # their files ended in the meantime
    return [order for order in orders if order.part not in empty]


def _order(part: Part) -> Order:
    open_ones = SourceFile.objects.filter(state=SourceFileState.OPEN)
    if part.kind == PartKind.PACK:
        rows = open_ones.filter(part=part)
    else:
        rows = open_ones.filter(pk=part.file_id or 0)
    digests = bytes(part.digests)
    if part.kind == PartKind.CHECK:
        ranges = Part.objects.filter(file_id=part.file_id, kind=PartKind.RANGE).order_by("start")
        digests = b"".join(bytes(d) for d in ranges.values_list("digests", flat=True))
    return Order(
        part=part.pk,
        generation=part.generation,
        source=part.source_id,
        kind=part.kind,
        files=tuple(pinned(row) for row in rows.order_by("pk")),
        start=part.start,
        stop=part.stop,
        arrived=part.arrived,
        digests=digests,
    )


def pinned(row: SourceFile) -> Pinned:
    return Pinned(
        pk=row.pk,
        key=row.key,
        size=row.size,
        etag=row.etag,
        version=row.version,
        sha256=row.sha256,
        store_key=row.store_key,
    )


def take_seat(now: datetime) -> int | None:
    """A free place among SYNC_WORKERS, or None: enough workers copy already."""
    for number in range(settings.SYNC_WORKERS):
        _, made = PumpSeat.objects.get_or_create(
            number=number, defaults={"claimed_until": now + SEAT}
        )
        rows = PumpSeat.objects.filter(number=number, claimed_until__lte=now)
        if made or rows.update(claimed_until=now + SEAT, air={}):
            return number
    return None


def keep_seat(number: int, now: datetime) -> None:
    PumpSeat.objects.filter(number=number).update(claimed_until=now + SEAT)


def leave_seat(number: int, now: datetime) -> None:
    PumpSeat.objects.filter(number=number).update(claimed_until=now, air={})


def note_air(number: int, air: dict[int, list[int]]) -> None:
    """What the worker in this seat has copied and nobody has written down yet: [files, bytes]."""
    PumpSeat.objects.filter(number=number).update(air={str(pk): both for pk, both in air.items()})


def air_of(source_id: int, now: datetime) -> tuple[int, int]:
    """(files, bytes) of a source that all workers have copied and nobody has written down yet."""
    seats = PumpSeat.objects.filter(claimed_until__gt=now).values_list("air", flat=True)
    found = [air[str(source_id)] for air in seats if str(source_id) in air]
    return sum(files for files, _ in found), sum(size for _, size in found)

"""How far a sync is, in one dictionary: what pages and programs show."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Min, Q, Sum

from portal.base.clock import db_now
from staging.models import Part, Source
from staging.sync import claims
from staging.sync.states import SourceFileState, SourceReason, SourceState

MOST_NAMED = 50
AT_WORK = (SourceState.LISTING, SourceState.COPYING)


def progress_of(source: Source) -> dict[str, object]:
    """Counts of files and bytes as they were recorded; names are at most 50 of each kind.

    `files_here` and `bytes_here` count what is on disk, parts of files and what nobody has written
    down yet included. `waits` are parts that failed and
    will be tried again, each sentence once.
    """
    now = db_now()
    here = here_of(source, now)
    open_parts = Part.objects.filter(source=source, done=False)
    waits = open_parts.exclude(sentence="").filter(Q(next_try_at__gt=now) | Q(tries__gt=0))
    return {
        "state": source.state,
        "reason": source.reason,
        "sentence": source.sentence or SourceReason(source.reason).label,
        "active": source.state in AT_WORK,
        "listed": source.listed_at is not None,
        "files": source.listed_files,
        "bytes": source.listed_bytes,
        "files_there": source.there_files,
        "bytes_there": source.there_bytes,
        "files_moved": source.moved_files,
        "bytes_moved": source.moved_bytes,
        "files_here": min(source.listed_files, here.files + here.files_air),
        "bytes_here": min(source.listed_bytes, here.bytes + here.bytes_air),
        "next_try_at": source.next_try_at,
        "parts_left": open_parts.count(),
        "parts_claimed": open_parts.filter(claimed_until__gt=now).count(),
        "waits": list(
            waits.values("sentence").annotate(again_at=Min("next_try_at")).order_by("sentence")[:5]
        ),
        "stale": _named(source, SourceFileState.STALE),
        "failed": _named(source, SourceFileState.FAILED),
        "skipped": source.skipped,
        "problems": source.problems[:MOST_NAMED],
        "may": _may(source),
    }


@dataclass(frozen=True)
class Here:
    """What of a source is on disk: written down, and in the air."""

    files: int
    bytes: int
    files_air: int
    bytes_air: int


def here_of(source: Source, now: datetime) -> Here:
    begun = source.files.filter(arrived__gt=0).exclude(state=SourceFileState.DONE)
    arrived = begun.aggregate(n=Sum("arrived", default=0))["n"]
    files, size = claims.air_of(source.pk, now) if source.state in AT_WORK else (0, 0)
    return Here(
        source.there_files + source.moved_files,
        source.there_bytes + source.moved_bytes + arrived,
        files,
        size,
    )


def _named(source: Source, state: SourceFileState) -> list[dict[str, str]]:
    rows = source.files.filter(state=state).order_by("file__path")
    return [
        {"name": path, "why": why}
        for path, why in rows.values_list("file__path", "sentence")[:MOST_NAMED]
    ]


def _may(source: Source) -> list[str]:
    """The verbs that a person may use now."""
    match source.state:
        case SourceState.LISTING | SourceState.COPYING:
            verbs = ["pause", "cancel"]
        case SourceState.PAUSED:
            verbs = ["resume", "cancel"]
        case SourceState.FAILED:
            verbs = ["retry", "list_again", "cancel"]
        case SourceState.STALE:
            verbs = ["list_again", "cancel"]
        case _:
            return []
    stale = source.files.filter(state=SourceFileState.STALE).exists()
    if stale and "list_again" not in verbs:
        verbs.insert(0, "list_again")
    return verbs

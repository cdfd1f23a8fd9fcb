"""How far a sync is, in one dictionary: what pages and programs show."""

from django.db.models import Min, Q

from portal.base.clock import db_now
from staging.models import Part, Source
from staging.sync.states import SourceFileState, SourceReason, SourceState

MOST_NAMED = 50
AT_WORK = (SourceState.LISTING, SourceState.COPYING)


def progress_of(source: Source) -> dict[str, object]:
    """Counts of files and bytes as they were recorded; names are at most 50 of each kind.

    `bytes_here` counts what is on disk, parts of files included. `waits` are parts that failed and
    will be tried again, each sentence once.
    """
    now = db_now()
    begun = source.files.filter(arrived__gt=0).exclude(state=SourceFileState.DONE)
    arrived = sum(begun.values_list("arrived", flat=True))
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
        "files_here": source.there_files + source.moved_files,
        "bytes_here": source.there_bytes + source.moved_bytes + arrived,
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

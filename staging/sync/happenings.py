"""What happened to a sync, in the words of the page, among what happened to its dataset."""

from portal.base.words import in_bytes
from staging.history import Happening, history, who
from staging.models import Dataset, Source, SourceEvent
from staging.sync.states import SourceReason, SourceState

WORDS = {
    "pause": "Paused",
    "resume": "Resumed",
    "retry": "What could not be had was tried again",
    "list again": "The source is listed again",
    "copy": "The source was listed, and copying began",
    "cancel": "The sync was cancelled",
}
# What else a source notes, its dataset notes at the same moment.
ENDS: dict[str, str] = {SourceState.DONE: "Every file has arrived"}


def happenings(dataset: Dataset, source: Source, most: int) -> list[Happening]:
    """The latest `most` events of both, newest first."""
    rows = source.events.filter(verb__in=[*WORDS, "settle"]).order_by("-at", "-id")[:most]
    own = [found for event in rows if (found := _happening(event))]
    return sorted([*own, *history(dataset, most)], key=lambda row: row.at, reverse=True)[:most]


def _happening(event: SourceEvent) -> Happening | None:
    what = ENDS.get(event.to_state, "") if event.verb == "settle" else WORDS[event.verb]
    if not what:
        return None
    if "files" in event.detail:
        files, size = event.detail["files"], in_bytes(event.detail.get("bytes", 0))
        what += f": {files:,} file{'' if files == 1 else 's'}, {size}"
        what += " moved" if event.verb == "settle" else ""
    if event.verb == "pause" and event.reason != SourceReason.BY_PERSON:
        what += f": {SourceReason(event.reason).label}".rstrip(".")
    return Happening(event.at, what, who(event.actor))

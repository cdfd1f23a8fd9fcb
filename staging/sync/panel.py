"""What a page shows of a sync: three marks, rate and time left, and every trouble by its name."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from portal.base.clock import db_now
from portal.base.words import in_bytes
from staging.estimates.shown import UNKNOWN, Shown, shown_of
from staging.estimates.subjects import of_dataset
from staging.listing import ACTIVE, Row, Totals, totals_of
from staging.models import Dataset, Part, Source, SourceFile
from staging.states import DatasetState, FileState
from staging.sync.happenings import happenings
from staging.sync.progress import progress_of
from staging.sync.states import PartKind, SourceFileState, SourceKind, SourceState

MOST_WAITS = 20
LATEST_EVENTS = 50
SHOWN = (SourceState.LISTING, SourceState.COPYING, SourceState.PAUSED)
VERBS = {
    "pause": "Pause",
    "resume": "Resume",
    "retry": "Try again",
    "list_again": "List again",
}
WORDS: dict[str, str] = {SourceFileState.STALE: "stale", SourceFileState.FAILED: "unreadable"}
BROKEN = (DatasetState.FAILED, DatasetState.STALE)
PAST = (DatasetState.EXPIRING, DatasetState.PURGED)


@dataclass(frozen=True)
class Wait:
    """What failed and is tried again: which files, why, and when (None: now)."""

    name: str
    why: str
    again_at: datetime | None


def panel_of(dataset: Dataset) -> dict[str, Any]:
    """The context of the live part."""
    source = Source.objects.select_related("connection", "folder").get(dataset=dataset)
    found: dict[str, Any] = progress_of(source)
    may = _may(dataset, source, found)
    going = shown_of(of_dataset(dataset.code), db_now())
    if going is not None and source.state == SourceState.COPYING:
        found["bytes_here"] = max(found["bytes_here"], min(found["bytes"], going.bytes_done))
    return {
        "pace": _pace(source, going),
        "sync": found,
        "source": source,
        "marks": _marks(dataset, source, found),
        "shown": word_of(dataset, source),
        "origin": origin_of(source),
        "active": found["active"] or _moves(dataset, source),
        "settled": dataset.state in (DatasetState.STAGED, DatasetState.PURGED),
        "waits": waits_of(source) if found["active"] else [],
        "counts": _counts(source),
        "events": happenings(dataset, source, LATEST_EVENTS),
        "verbs": [(verb, VERBS[verb]) for verb in may if verb in VERBS],
        "may_cancel": "cancel" in may,
        "ended": source.state in (SourceState.DONE, SourceState.CANCELLED, SourceState.FAILED),
    }


def _may(dataset: Dataset, source: Source, found: dict[str, Any]) -> list[str]:
    """The verbs that are offered. What has arrived and failed its check is listed again, too."""
    if dataset.state in PAST:
        return []
    if source.state == SourceState.DONE and dataset.state in BROKEN:
        return ["list_again"]
    return found["may"]


def _moves(dataset: Dataset, source: Source) -> bool:
    """Whether the dataset goes on without its source: checked, or deleted."""
    return dataset.state in ACTIVE and source.state != SourceState.PAUSED


def _pace(source: Source, going: Shown | None) -> str:
    """Rate and time left, of copying alone."""
    if source.state != SourceState.COPYING:
        return ""
    return going.pace if going is not None else UNKNOWN


def word_of(dataset: Dataset, source: Source) -> str:
    """The word on top: while files come it is that of the source."""
    if dataset.state == DatasetState.TRANSFERRING and source.state in SHOWN:
        return source.state
    return dataset.shown


def _marks(dataset: Dataset, source: Source, found: dict[str, Any]) -> Totals:
    """Listed, copied and verified, of counts that cost nothing while a million files come."""
    if dataset.state in PAST:
        return totals_of(dataset)
    verified = 0
    if dataset.state == DatasetState.STAGED:
        verified = found["files"]
    elif dataset.state == DatasetState.VERIFYING:
        read_back = Q(blob__verified_at__isnull=False) | Q(state=FileState.STAGED)
        verified = dataset.files.filter(read_back).count()
    return Totals(
        files=found["files"],
        size=found["bytes"],
        uploaded=found["files_here"],
        arrived=found["bytes_here"],
        verified=verified,
    )


def _counts(source: Source) -> dict[str, int]:
    """How many files are stale and failed; the lists of names end earlier."""
    rows = source.files
    return {
        "stale": rows.filter(state=SourceFileState.STALE).count(),
        "failed": rows.filter(state=SourceFileState.FAILED).count(),
    }


def origin_of(source: Source) -> str:
    """Where it comes from, in words that a member may read."""
    match source.kind:
        case SourceKind.S3 if source.connection is not None:
            return f"{source.connection.origin}/{source.prefix}"
        case SourceKind.FOLDER if source.folder is not None:
            return f"{source.folder.name}/{source.prefix}"
        case SourceKind.FOLDER:
            return "a server folder that the operator has taken away"
    lines = [line for line in source.addresses.splitlines() if line.strip()]
    return f"a list of {len(lines):,} line{'' if len(lines) == 1 else 's'}"


def waits_of(source: Source) -> list[Wait]:
    """The parts that failed and will be tried again, by the names of their files."""
    rows = Part.objects.filter(source=source, done=False, tries__gt=0).exclude(sentence="")
    parts = rows.select_related("file__file").order_by("next_try_at", "pk")[:MOST_WAITS]
    return [Wait(_name_of(part), part.sentence, part.next_try_at) for part in parts]


def _name_of(part: Part) -> str:
    if part.file is not None:
        path = part.file.file.path
        if part.kind == PartKind.CHECK:
            return f"{path}, compared as a whole"
        return f"{path} from {in_bytes(part.start)} on" if part.start else path
    rest = part.pack.filter(state=SourceFileState.OPEN).order_by("pk")
    first = rest.values_list("file__path", flat=True).first() or "small files"
    more = rest.count() - 1
    return f"{first} and {more:,} more" if more > 0 else first


def name_states(dataset: Dataset, rows: Iterable[Row]) -> None:
    """Give the rows of files the words of a sync: not copied yet, copied, changed, out of reach."""
    rows = list(rows)
    paths = [row.path for row in rows if not row.is_folder and row.state == FileState.EXPECTED]
    found = SourceFile.objects.filter(file__dataset=dataset, file__path__in=paths)
    facts = {row[0]: row for row in found.values_list("file__path", "state", "arrived")}
    for row in rows:
        if row.state == FileState.UPLOADED:
            row.state = "copied"
        elif row.path in facts:
            _, state, arrived = facts[row.path]
            row.state = WORDS.get(state, "awaited")
            if row.state == "awaited" and arrived:
                row.state, row.sent = FileState.EXPECTED, arrived

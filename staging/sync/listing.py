"""Listing: pages of a source become rows that pin each file, a page a transaction.

The place to go on from is written with the page, so a listing that is cut off loses at most one
page, and no more than a page is ever held. A folder wins over a file of its name (`a` and `a/b`):
which of the two a source lists first does not matter.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Sum

from portal.base.clock import db_now
from portal.base.errors import NoRoom
from portal.base.moves import move
from staging import blobs, names, store, usage
from staging.datasets import drop_files, fail_dataset
from staging.digests import EMPTY
from staging.entries import Entry, problem_of
from staging.folders import make_folders
from staging.models import Blob, Dataset, File, Folder, Source, SourceFile
from staging.selection import matcher
from staging.states import DatasetReason, DatasetState, FileState
from staging.sync.parts import cut
from staging.sync.readers import Found, Page, pin_of
from staging.sync.states import SourceFileState, SourceReason, SourceState

BATCH = 500
CLAIM = timedelta(seconds=30)
MOST_PROBLEMS = 200
SYSTEM = "sync"


def claim_listing(source: Source, now: datetime) -> bool:
    """Take the listing of a source; the instance carries the number of the claim."""
    free = Q(claimed_until=None) | Q(claimed_until__lte=now)
    rows = Source.objects.filter(free, pk=source.pk, state=SourceState.LISTING)
    swapped = rows.update(claimed_until=now + CLAIM, generation=source.generation + 1)
    if swapped:
        source.refresh_from_db()
    return bool(swapped)


def release_listing(source: Source) -> None:
    rows = Source.objects.filter(pk=source.pk, generation=source.generation)
    rows.update(claimed_until=None)


def is_chosen(source: Source):
    """Whether a path is among those that the patterns of a source choose."""
    include = matcher([pattern for pattern in source.include if pattern])
    exclude = matcher(source.exclude) if any(source.exclude) else None
    return lambda path: bool(include.fullmatch(path)) and not (exclude and exclude.fullmatch(path))


@dataclass
class _Sheet:
    """One page on its way into rows."""

    source: Source
    dataset: Dataset
    now: datetime
    skipped: list[tuple[str, str]]
    known: dict[str, File] = field(default_factory=dict)
    wanted: dict[str, Found] = field(default_factory=dict)
    kept: list[SourceFile] = field(default_factory=list)
    there: int = 0
    there_bytes: int = 0


def store_page(source: Source, page: Page) -> bool:
    """Write a page down; False when the claim was lost or the source stopped meanwhile."""
    with transaction.atomic():
        now = db_now()
        rows = Source.objects.filter(
            pk=source.pk, generation=source.generation, state=SourceState.LISTING
        )
        if not rows.update(claimed_until=now + CLAIM, tries=0, sentence=""):
            return False
        source.refresh_from_db()
        sheet = _Sheet(source, source.dataset, now, list(page.skipped))
        _choose(sheet, page)
        _drop_files_that_are_folders(sheet)
        replaced = _compare(sheet)
        drop_files(replaced, at=now)
        _create(sheet)
        sizes = [entry.size for entry in sheet.wanted.values()]
        sizes += [origin.size for origin in sheet.kept]
        _add_problems(source, sheet.skipped)
        Source.objects.filter(pk=source.pk).update(
            cursor=page.cursor if page.cursor is not None else {"end": True},
            listed_files=F("listed_files") + len(sizes),
            listed_bytes=F("listed_bytes") + sum(sizes),
            there_files=F("there_files") + sheet.there,
            there_bytes=F("there_bytes") + sheet.there_bytes,
        )
        source.refresh_from_db()
    return True


def _choose(sheet: _Sheet, page: Page) -> None:
    """Take what the patterns choose and a dataset can hold; the rest is named with its reason."""
    chosen = is_chosen(sheet.source)
    for found in page.found:
        if not chosen(found.path):
            continue
        sentence = problem_of(Entry(found.path, found.size))
        if not sentence and found.path in sheet.wanted:
            sentence = "It is listed twice."
        if sentence:
            sheet.skipped.append((found.key, sentence))
        else:
            sheet.wanted[found.path] = found
    folders = _existing_folders(sheet.dataset, list(sheet.wanted))
    folders |= {folder for path in sheet.wanted for folder in names.folders_of(path)}
    for path in folders & sheet.wanted.keys():
        sheet.skipped.append((sheet.wanted.pop(path).key, _both(path)))


def _both(path: str) -> str:
    return f"There are files below “{names.shown(path)}”; a file cannot have the name of a folder."


def _existing_folders(dataset: Dataset, paths: list[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(paths), BATCH):
        rows = Folder.objects.filter(dataset=dataset, path__in=paths[start : start + BATCH])
        found.update(rows.values_list("path", flat=True))
    return found


def _drop_files_that_are_folders(sheet: _Sheet) -> None:
    """A file that an earlier page brought makes way for what lies below its name."""
    above = sorted({folder for path in sheet.wanted for folder in names.folders_of(path)})
    for start in range(0, len(above), BATCH):
        rows = File.objects.filter(dataset=sheet.dataset, path__in=above[start : start + BATCH])
        files = list(rows.select_related("origin", "dataset"))
        for file in files:
            sheet.skipped.append((file.path, _both(file.path)))
            Source.objects.filter(pk=sheet.source.pk).update(
                listed_files=F("listed_files") - 1, listed_bytes=F("listed_bytes") - file.size
            )
        drop_files(files, at=sheet.now)


def _compare(sheet: _Sheet) -> list[File]:
    """Keep the rows of what is as it was listed before; the files that are replaced."""
    replaced = []
    paths = sorted(sheet.wanted)
    number = sheet.source.listing
    for start in range(0, len(paths), BATCH):
        rows = File.objects.filter(dataset=sheet.dataset, path__in=paths[start : start + BATCH])
        for file in rows.select_related("origin__part", "dataset"):
            found = sheet.wanted[file.path]
            origin: SourceFile = file.origin
            if origin.listing == number and origin.key != found.key:
                sheet.skipped.append((found.key, "Another file has its name already."))
                del sheet.wanted[file.path]
            elif _is_same(origin, found) and _is_coming(file, origin):
                del sheet.wanted[file.path]
                sheet.kept.append(origin)
                if file.state != FileState.EXPECTED:
                    sheet.there += 1
                    sheet.there_bytes += file.size
            else:
                replaced.append(file)
    SourceFile.objects.filter(pk__in=[origin.pk for origin in sheet.kept]).update(listing=number)
    return replaced


def _is_same(origin: SourceFile, found: Found) -> bool:
    facts = (found.key, found.size, found.etag, found.version, found.sha256)
    return facts == (origin.key, origin.size, origin.etag, origin.version, origin.sha256)


def _is_coming(file: File, origin: SourceFile) -> bool:
    """Whether it is here, or some part will bring it."""
    if file.state != FileState.EXPECTED:
        return True
    if origin.state != SourceFileState.OPEN:
        return False
    return (origin.part is not None and not origin.part.done) or origin.ranges.exists()


def _create(sheet: _Sheet) -> None:
    """Rows for what is new: files that are here already stand on their blob at once."""
    entries = list(sheet.wanted.values())
    if not entries:
        return
    pins = {found.path: pin_of(_origin_of(sheet.source), found) for found in entries}
    have = _take(sheet, entries, pins)
    folders = make_folders(sheet.dataset, [found.path for found in entries])
    files = File.objects.bulk_create(
        [_file(sheet, found, folders, have.get(found.path)) for found in entries],
        batch_size=BATCH,
    )
    rows = [
        SourceFile(
            source=sheet.source,
            file=file,
            key=found.key,
            size=found.size,
            etag=found.etag,
            version=found.version,
            sha256=found.sha256,
            pin=pins[found.path],
            state=SourceFileState.DONE if file.blob_id else SourceFileState.OPEN,
            store_key=store.new_key(),
            listing=sheet.source.listing,
        )
        for found, file in zip(entries, files, strict=True)
    ]
    sheet.there += len(have)
    sheet.there_bytes += sum(file.size for file in files if file.blob_id)
    SourceFile.objects.bulk_create(
        [row for row in rows if row.state == SourceFileState.DONE], batch_size=BATCH
    )
    cut(sheet.source, [row for row in rows if row.state == SourceFileState.OPEN])


def _file(sheet: _Sheet, found: Found, folders: dict[str, int], blob: Blob | None) -> File:
    file = File(
        dataset=sheet.dataset,
        path=found.path,
        folder_id=folders.get(found.path.rpartition("/")[0]),
        size=found.size,
        modified=found.modified,
    )
    if blob is not None:
        file.blob, file.digest = blob, blob.digest
        file.state, file.changed_at = FileState.UPLOADED, sheet.now
    return file


def _take(sheet: _Sheet, entries: list[Found], pins: dict[str, str]) -> dict[str, Blob]:
    """Blobs that the team has of the same pins, or of the same declared digests, linked once more
    for each path."""
    team_id = sheet.dataset.team_id
    usage.lock(team_id)
    by_pin = _pinned_blobs(team_id, [pin for pin in pins.values() if pin])
    by_digest = blobs.live_by_digest(team_id, [found.sha256 for found in entries])
    empty = [found.path for found in entries if not found.size and found.sha256 in ("", EMPTY)]
    chosen: dict[str, Blob] = {}
    for found in entries:
        blob = by_pin.get(pins[found.path]) or by_digest.get(found.sha256)
        if found.size and blob is not None and blob.size == found.size:
            chosen[found.path] = blob
    counts: dict[int, int] = {}
    for blob in chosen.values():
        counts[blob.pk] = counts.get(blob.pk, 0) + 1
    alive = blobs.link_all(counts)
    have = {path: blob for path, blob in chosen.items() if blob.pk in alive}
    if empty:
        nothing = blobs.empty_blob(team_id, len(empty))
        have |= dict.fromkeys(empty, nothing)
    return have


def _pinned_blobs(team_id: int, pins: list[str]) -> dict[str, Blob]:
    found: dict[str, Blob] = {}
    for start in range(0, len(pins), BATCH):
        rows = SourceFile.objects.filter(
            pin__in=pins[start : start + BATCH],
            state=SourceFileState.DONE,
            file__blob__dead_at=None,
            file__blob__team_id=team_id,
        )
        for row in rows.select_related("file__blob").defer("file__blob__chunk_digests"):
            if row.file.blob is not None:
                found[row.pin] = row.file.blob
    return found


def _origin_of(source: Source) -> str:
    if source.connection is not None:
        return f"s3 {source.connection.origin}"
    return f"{source.kind} {source.folder.path if source.folder else ''}"


def _add_problems(source: Source, skipped: list[tuple[str, str]]) -> None:
    """Keep the first names that were not taken, and count them all. The row is locked already."""
    if not skipped:
        return
    room = max(0, MOST_PROBLEMS - len(source.problems))
    kept = [{"name": names.shown(name), "why": why} for name, why in skipped[:room]]
    Source.objects.filter(pk=source.pk).update(
        problems=[*source.problems, *kept], skipped=F("skipped") + len(skipped)
    )


def end_listing(source: Source) -> bool:
    """listing -> copying, once room is promised for what is to come; else paused, with numbers.

    What an earlier listing had and this one did not find leaves the dataset. False when the claim
    was lost."""
    from staging.sync.tasks import wake_sync

    while _drop_unlisted(source):
        pass
    with transaction.atomic():
        now = db_now()
        rows = Source.objects.filter(
            pk=source.pk, generation=source.generation, state=SourceState.LISTING
        )
        if not rows.update(claimed_until=None, listed_at=now):
            return False
        source.refresh_from_db()
        if not source.files.exists():
            _fail_for_nothing(source, now)
            return True
        try:
            with transaction.atomic():
                keep_room(source)
        except NoRoom as error:
            pause_for(source, SourceReason.NO_ROOM, str(error), now)
            return True
        detail = {"files": source.listed_files, "bytes": source.listed_bytes}
        move(source, SourceState.COPYING, "copy", at=now, actor=SYSTEM, detail=detail)
        wake_sync(min(settings.SYNC_WORKERS, source.parts.count()))
    return True


def _drop_unlisted(source: Source) -> bool:
    with transaction.atomic():
        now = db_now()
        rows = Source.objects.filter(
            pk=source.pk, generation=source.generation, state=SourceState.LISTING
        )
        if not rows.update(claimed_until=now + CLAIM):
            return False
        old = File.objects.filter(origin__source=source, origin__listing__lt=source.listing)
        files = list(old.select_related("dataset").order_by("pk")[:BATCH])
        drop_files(files, at=now)
    return bool(files)


def keep_room(source: Source) -> None:
    """Promise what is still to come, no more and no less. Raises NoRoom. In a transaction."""
    open_files = source.files.exclude(state=SourceFileState.DONE)
    needed = open_files.aggregate(n=Sum("size", default=0))["n"]
    source.refresh_from_db(fields=["promised_bytes"])
    usage.change_promise(team_id=source.dataset.team_id, amount=needed - source.promised_bytes)
    Source.objects.filter(pk=source.pk).update(promised_bytes=needed)
    source.promised_bytes = needed


def pause_for(source: Source, reason: SourceReason, sentence: str, at: datetime) -> None:
    """listing or copying -> paused, until a person resumes it."""
    changes = {"reason": reason, "sentence": sentence[:300], "claimed_until": None}
    move(source, SourceState.PAUSED, "pause", at=at, actor=SYSTEM, reason=reason, changes=changes)


def _fail_for_nothing(source: Source, at: datetime) -> None:
    reason = SourceReason.NOTHING
    move(
        source,
        SourceState.FAILED,
        "fail",
        at=at,
        actor=SYSTEM,
        reason=reason,
        changes={"reason": reason, "sentence": str(reason.label)},
    )
    dataset = source.dataset
    if dataset.state == DatasetState.TRANSFERRING:
        fail_dataset(dataset=dataset, reason=DatasetReason.NOTHING_FOUND, at=at, actor=SYSTEM)

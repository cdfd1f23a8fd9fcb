"""The verbs of a source: create, preview, pause, resume, retry, list again, cancel."""

import heapq
import time
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import F

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError, NotFound
from portal.base.moves import move
from staging import names
from staging.datasets import fail_dataset
from staging.models import Connection, Dataset, Part, ServerFolder, Source, SourceFile
from staging.states import DatasetKind, DatasetReason, DatasetState
from staging.sync.connections import folder_prefix
from staging.sync.ending import end_source
from staging.sync.listing import is_chosen, keep_room
from staging.sync.opening import reader_of
from staging.sync.parts import cut
from staging.sync.states import SourceFileState, SourceKind, SourceReason, SourceState
from staging.sync.tasks import wake_sync
from staging.sync.urls import read_list

MOST_PATTERNS = 100
LARGEST = 10  # files that a preview names
PREVIEW_S = 8.0
BATCH = 500


@dataclass(frozen=True)
class Choice:
    """What to sync: a connection and prefix, a server folder and one below it, or a list."""

    kind: SourceKind
    connection: Connection | None = None
    folder: ServerFolder | None = None
    prefix: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    addresses: str = ""


@dataclass
class Preview:
    """What a source holds of what was chosen, counted so far. `cursor` None: that is all of it."""

    files: int = 0
    size: int = 0
    skipped: int = 0
    largest: list[tuple[int, str]] = field(default_factory=list)
    cursor: dict | None = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.cursor is None


def _source_of(choice: Choice, dataset: Dataset, actor: str, at: datetime) -> Source:
    """An unsaved source. Raises DomainError for a choice that cannot be."""
    team_id = dataset.team_id
    values: dict[str, object] = {}
    match choice.kind:
        case SourceKind.S3:
            connection = choice.connection
            if connection is None or connection.team_id != team_id or connection.deleted_at:
                raise NotFound("There is no such connection in this team.")
            values = {"connection": connection, "prefix": _below(connection, choice.prefix)}
        case SourceKind.FOLDER:
            folder = choice.folder
            if folder is None or not folder.teams.filter(pk=team_id).exists():
                raise NotFound("There is no such server folder for this team.")
            prefix = folder_prefix(choice.prefix)
            if prefix and names.problem(prefix.rstrip("/")):
                raise DomainError(f"The folder: {names.problem(prefix.rstrip('/'))}")
            values = {"folder": folder, "prefix": prefix}
        case SourceKind.URLS:
            read_list(choice.addresses)
            values = {"addresses": choice.addresses}
    return Source(
        dataset=dataset,
        kind=choice.kind,
        include=patterns_of(choice.include),
        exclude=patterns_of(choice.exclude),
        created_by=actor[:254],
        created_at=at,
        **values,
    )


def _below(connection: Connection, prefix: str) -> str:
    """The prefix that is read: at or below the one that the connection is bound to."""
    prefix = folder_prefix(prefix)
    if not prefix.startswith(connection.prefix):
        prefix = connection.prefix + prefix
    if len(prefix) > 1024:
        raise DomainError("The prefix is too long.")
    return prefix


def patterns_of(given: tuple[str, ...]) -> list[str]:
    """Patterns without blank ones. Raises DomainError."""
    found = [pattern.strip() for pattern in given if pattern.strip()]
    if len(found) > MOST_PATTERNS or any(len(p) > 300 or not p.isprintable() for p in found):
        raise DomainError("At most 100 patterns of at most 300 printable characters, please.")
    return found


def create_source(*, dataset: Dataset, choice: Choice, actor: str) -> Source:
    """Let a source fill a dataset that has no file yet: declared -> transferring.

    Raises NotFound, Conflict, and DomainError for a choice that cannot be.
    """
    with transaction.atomic():
        now = db_now()
        dataset.refresh_from_db()
        if dataset.kind != DatasetKind.INPUT or dataset.state != DatasetState.DECLARED:
            raise Conflict("A source fills a new dataset; this one has begun otherwise.")
        source = _source_of(choice, dataset, actor, now)
        changes = {"fed_by": choice.kind.value}
        move(dataset, DatasetState.TRANSFERRING, "sync", at=now, actor=actor, changes=changes)
        source.save()
        source.note("create", at=now, actor=actor, frm="", to=SourceState.LISTING)
        wake_sync()
    return source


def preview(*, dataset: Dataset, choice: Choice, so_far: Preview | None = None) -> Preview:
    """Count what a choice would bring, for at most some seconds; call it again to go on.

    Nothing is written and nothing moves. Raises Trouble where the source cannot be listed.
    """
    source = _source_of(choice, dataset, "", db_now())
    found = so_far or Preview()
    if found.cursor is None:
        return found
    until = time.monotonic() + PREVIEW_S
    chosen = is_chosen(source)
    for page in reader_of(source).pages(found.cursor):
        found.skipped += len(page.skipped)
        for entry in page.found:
            if not chosen(entry.path):
                continue
            if names.problem(entry.path):
                found.skipped += 1
                continue
            found.files += 1
            found.size += entry.size
            heapq.heappush(found.largest, (entry.size, entry.path))
            if len(found.largest) > LARGEST:
                heapq.heappop(found.largest)
        found.cursor = page.cursor
        if time.monotonic() > until:
            break
    return found


def pause(*, source: Source, actor: str) -> Source:
    """listing or copying -> paused; what is in the air lands and is kept."""
    reason = SourceReason.BY_PERSON
    with transaction.atomic():
        now = db_now()
        source.refresh_from_db()
        move(
            source,
            SourceState.PAUSED,
            "pause",
            at=now,
            actor=actor,
            reason=reason,
            changes={"reason": reason, "sentence": "", "claimed_until": None},
        )
    return source


def resume(*, source: Source, actor: str) -> Source:
    """paused -> where it was; what had failed is tried at once. Raises NoRoom, with numbers."""
    with transaction.atomic():
        now = db_now()
        _lock(source)
        if source.state != SourceState.PAUSED:
            raise Conflict(f"This sync is {source.state}; there is nothing to resume.")
        if source.listed_at is not None:
            keep_room(source)
        to = SourceState.LISTING if source.listed_at is None else SourceState.COPYING
        _go_on(source, to, "resume", now, actor)
    return source


def retry(*, source: Source, actor: str) -> Source:
    """failed -> copying: the files that could not be had are tried again."""
    with transaction.atomic():
        now = db_now()
        _lock(source)
        if source.state != SourceState.FAILED:
            raise Conflict(f"This sync is {source.state}; there is nothing to try again.")
        if source.reason == SourceReason.NOTHING:
            return list_again(source=source, actor=actor)
        again = source.files.filter(state=SourceFileState.FAILED)
        Part.objects.filter(source=source, done=True).delete()
        files = list(again)
        for start in range(0, len(files), BATCH):
            some = files[start : start + BATCH]
            rows = SourceFile.objects.filter(pk__in=[file.pk for file in some])
            rows.update(state=SourceFileState.OPEN, sentence="", arrived=0)
            cut(source, some)
        keep_room(source)
        _take_up(source.dataset, now, actor)
        _go_on(source, SourceState.COPYING, "retry", now, actor)
    return source


def list_again(*, source: Source, actor: str) -> Source:
    """-> listing: only what is new or changed will move; what is gone leaves the dataset."""
    with transaction.atomic():
        now = db_now()
        _lock(source)
        dataset = source.dataset
        dataset.refresh_from_db()
        _take_up(dataset, now, actor)
        Source.objects.filter(pk=source.pk).update(
            listing=F("listing") + 1,
            cursor={},
            listed_at=None,
            listed_files=0,
            listed_bytes=0,
            there_files=0,
            there_bytes=0,
            moved_files=0,
            moved_bytes=0,
            skipped=0,
            problems=[],
        )
        _go_on(source, SourceState.LISTING, "list again", now, actor)
        source.refresh_from_db()
    return source


def _lock(source: Source) -> None:
    """Write the row first: recording, relisting and cancelling come one after the other."""
    Source.objects.filter(pk=source.pk).update(listing=F("listing"))
    source.refresh_from_db()


def _take_up(dataset: Dataset, at: datetime, actor: str) -> None:
    """stale or failed -> transferring. Raises Conflict where it is past that."""
    dataset.refresh_from_db()
    if dataset.state in (DatasetState.STALE, DatasetState.FAILED):
        move(
            dataset,
            DatasetState.TRANSFERRING,
            "retry",
            at=at,
            actor=actor,
            changes={"sealed_at": None, "reason": "", "expires_at": None, "expiry_set_by": ""},
        )
    elif dataset.state != DatasetState.TRANSFERRING:
        raise Conflict(f"This dataset is {dataset.state}; begin another to sync again.")


def _go_on(source: Source, to: SourceState, verb: str, at: datetime, actor: str) -> None:
    changes = {
        "reason": "",
        "sentence": "",
        "tries": 0,
        "next_try_at": None,
        "claimed_until": None,
        "generation": source.generation + 1,  # whoever lists now lists for nobody
    }
    Part.objects.filter(source=source, done=False).update(tries=0, next_try_at=None)
    Dataset.objects.filter(pk=source.dataset_id, state=DatasetState.TRANSFERRING).update(reason="")
    move(source, to, verb, at=at, actor=actor, changes=changes)
    wake_sync()


def cancel(*, source: Source, actor: str) -> Source:
    """End a sync: room is given back, its dataset cannot become staged. Cancelling twice is once.

    Raises Conflict once everything has arrived: delete the dataset then.
    """
    with transaction.atomic():
        now = db_now()
        _lock(source)
        if source.state == SourceState.DONE:
            raise Conflict("Everything has arrived; delete the dataset if it is not wanted.")
        if end_source(source, at=now, actor=actor):
            dataset = source.dataset
            dataset.refresh_from_db()
            if dataset.state == DatasetState.STALE:
                _take_up(dataset, now, actor)
            if dataset.state == DatasetState.TRANSFERRING:
                reason = DatasetReason.SYNC_CANCELLED
                fail_dataset(dataset=dataset, reason=reason, at=now, actor=actor)
    return source

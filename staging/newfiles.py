"""Rows for files that are new in a dataset: room, folders, files, and uploads for what is sent."""

from dataclasses import dataclass, field
from datetime import datetime

from staging import blobs, usage
from staging.digests import EMPTY
from staging.entries import HAVE, SEND, Entry, FilePlan
from staging.folders import make_folders
from staging.models import Blob, Dataset, File, Upload
from staging.states import FileState
from staging.uploads import address_of, is_lease, new_upload

BATCH = 500


@dataclass
class Batch:
    """One declaration on its way: what is there already, and what comes of it."""

    dataset: Dataset
    holder: str
    source: str
    now: datetime
    known: dict[str, File]
    have: dict[str, Blob]
    sizes: set[int]
    plans: dict[str, FilePlan] = field(default_factory=dict)
    fresh: list[Entry] = field(default_factory=list)
    replaced: list[File] = field(default_factory=list)
    told: list[tuple[Upload, Entry]] = field(default_factory=list)  # digests known only now


def create(batch: Batch) -> None:
    """Rows for everything new: promise the room first, then folders, files and uploads."""
    empty = sum(e.empty for e in batch.fresh)
    if empty:
        batch.have[EMPTY] = blobs.empty_blob(batch.dataset.team_id, empty)
    owned = _take(batch)
    sent = [e for e in batch.fresh if not e.empty and e.path not in owned]
    usage.promise(team_id=batch.dataset.team_id, amount=sum(e.size for e in sent))
    folders = make_folders(batch.dataset, [e.path for e in batch.fresh])
    files = File.objects.bulk_create(
        [_row(batch, entry, folders, entry.path in owned) for entry in batch.fresh],
        batch_size=BATCH,
    )
    for file in files:
        batch.plans[file.path] = FilePlan(file, HAVE, path=file.path)
    _create_uploads(batch, sent)


def _create_uploads(batch: Batch, sent: list[Entry]) -> None:
    """Uploads for the files of `sent`, whose rows are in the plans so far."""
    files = [batch.plans[entry.path].file for entry in sent]
    uploads = Upload.objects.bulk_create(
        [_upload(batch, entry, file) for entry, file in zip(sent, files, strict=True)],
        batch_size=BATCH,
    )
    for entry, file, upload in zip(sent, files, uploads, strict=True):
        batch.plans[entry.path] = FilePlan(
            file,
            SEND,
            upload,
            address_of(upload),
            path=entry.path,
            hash_first=entry.size in batch.sizes,
        )


def _upload(batch: Batch, entry: Entry, file: File | None) -> Upload:
    return new_upload(
        file=file,
        team_id=batch.dataset.team_id,
        length=entry.size,
        holder=batch.holder,
        at=batch.now,
        digest=entry.digest,
        chunks=entry.chunks,
        deferred=entry.deferred,
    )


def _take(batch: Batch) -> set[str]:
    """Paths for which the team's own copy of the bytes serves, now linked once more each.

    What a lease returns is accepted as it stands, so only a copy that was read back serves it.
    """
    wanted: dict[str, list[str]] = {}
    for entry in batch.fresh:
        blob = batch.have.get(entry.digest) if entry.size and entry.digest else None
        if blob is None or blob.size != entry.size:
            continue
        if not is_lease(batch.holder) or blob.verified_at is not None:
            wanted.setdefault(entry.digest, []).append(entry.path)
    alive = blobs.link_all({batch.have[d].pk: len(paths) for d, paths in wanted.items()})
    return {
        path for digest, paths in wanted.items() if batch.have[digest].pk in alive for path in paths
    }


def _row(batch: Batch, entry: Entry, folders: dict[str, int], owned: bool) -> File:
    folder, _, _ = entry.path.rpartition("/")
    file = File(
        dataset=batch.dataset,
        path=entry.path,
        folder_id=folders.get(folder),
        size=entry.size,
        executable=entry.executable,
        modified=entry.modified,
        source=batch.source,
    )
    if owned:
        file.blob, file.digest = batch.have[entry.digest], entry.digest
        file.state, file.changed_at = FileState.UPLOADED, batch.now
    elif entry.empty:
        file.blob, file.digest = batch.have[EMPTY], EMPTY
        file.state, file.changed_at = FileState.UPLOADED, batch.now
    return file

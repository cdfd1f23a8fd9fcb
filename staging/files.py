"""Declaring files: names, room, and for each the answer "have" or "send"."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from portal.base.clock import db_now
from portal.base.errors import Conflict
from portal.base.moves import move
from staging import blobs, usage
from staging.access import check_writer
from staging.datasets import drop_files
from staging.entries import HAVE, SEND, Entry, FilePlan, refusal, refuse, refused_plan
from staging.folders import collisions
from staging.models import Blob, Dataset, File, Upload
from staging.newfiles import Batch, create
from staging.states import TAKES_FILES, DatasetReason, DatasetState, FileState, UploadState
from staging.uploads import LEASE, address_of, is_lease, renew_right

MOST_ENTRIES = 1000
BATCH = 500


def declare_files(
    *,
    dataset: Dataset,
    entries: Iterable[Entry],
    actor: str,
    holder: str | None = None,
    source: str = "",
    strict: bool = True,
) -> list[FilePlan]:
    """List files of a dataset and learn, in the same order, which of them to send where.

    Declaring the same file again returns its open upload with its offset. A file of another size,
    digest or time of change replaces what was there. `strict`: a name that is not accepted raises
    RefusedName and nothing is listed; otherwise its plan says "refused" and why. Raises NoRoom,
    naming the room left, and Conflict once the dataset is being checked.
    """
    entries = list(entries)
    holder = holder or actor
    source = source or _source_of(holder)
    plans: list[FilePlan] = []
    for start in range(0, max(1, len(entries)), MOST_ENTRIES):  # none at all opens the dataset too
        some = entries[start : start + MOST_ENTRIES]
        plans += _declare(dataset, some, actor, holder, source, strict)
    return plans


def _declare(
    dataset: Dataset, entries: list[Entry], actor: str, holder: str, source: str, strict: bool
) -> list[FilePlan]:
    refused = refuse(entries)
    _check(entries, refused, strict)
    if not refused or len(refused) < len(entries):
        with transaction.atomic():
            now = db_now()
            _open_for_files(dataset, now, actor, holder)
            usage.lock(dataset.team_id)
            refused |= _colliding(dataset, entries, refused)
            _check(entries, refused, strict)
            accepted = _accepted(entries, refused)
            batch = _load(dataset, accepted, holder, source, now)
            _list(batch, accepted)
    return [
        refused_plan(e, refused[i]) if i in refused else batch.plans[e.path]
        for i, e in enumerate(entries)
    ]


def _check(entries: list[Entry], refused: dict[int, str], strict: bool) -> None:
    """Raises the refusal of the first refused entry, where one is too many."""
    if strict and refused:
        index, sentence = min(refused.items())
        raise refusal(entries[index], sentence)


def _accepted(entries: list[Entry], refused: dict[int, str]) -> list[Entry]:
    return [entry for index, entry in enumerate(entries) if index not in refused]


def _colliding(dataset: Dataset, entries: list[Entry], refused: dict[int, str]) -> dict[int, str]:
    found = collisions(dataset, _accepted(entries, refused))
    return {i: found[e.path] for i, e in enumerate(entries) if e.path in found}


def _list(batch: Batch, entries: list[Entry]) -> None:
    for entry in entries:
        _plan(batch, entry)
    drop_files(batch.replaced, at=batch.now)
    _tell(batch)
    create(batch)


def _source_of(holder: str) -> str:
    return holder.removeprefix(LEASE) if is_lease(holder) else ""


def _open_for_files(dataset: Dataset, now: datetime, actor: str, holder: str) -> None:
    """Write the row first, so that two declarations for one dataset come one after the other."""
    Dataset.objects.filter(pk=dataset.pk).update(claimed_until=None)
    dataset.refresh_from_db()
    check_writer(dataset, holder)
    if dataset.fed_by:
        raise Conflict("A sync fills this dataset; no file can be added to it by hand.")
    again = (DatasetState.FAILED, DatasetState.STALE)
    if dataset.state not in TAKES_FILES:
        raise Conflict(f"This dataset is {dataset.state}; no file can be added to it.")
    reopened: dict[str, object] = {"sealed_at": None, "reason": DatasetReason.NONE}
    if dataset.state in again:
        reopened |= {"expires_at": None, "expiry_set_by": ""}
    if dataset.state == DatasetState.TRANSFERRING:
        Dataset.objects.filter(pk=dataset.pk).update(**reopened)
        dataset.sealed_at, dataset.reason = None, DatasetReason.NONE
        return
    move(
        dataset,
        DatasetState.TRANSFERRING,
        "list" if dataset.state == DatasetState.DECLARED else "retry",
        at=now,
        actor=actor,
        changes=reopened,
    )


def _load(dataset: Dataset, entries: list[Entry], holder: str, source: str, now: datetime) -> Batch:
    rows = File.objects.filter(dataset=dataset, path__in=[e.path for e in entries])
    undigested = {e.size for e in entries if not e.digest and e.size}
    sizes = Blob.objects.filter(team_id=dataset.team_id, dead_at=None, size__in=undigested)
    return Batch(
        dataset=dataset,
        holder=holder,
        source=source,
        now=now,
        known={file.path: file for file in rows.select_related("upload")},
        have=blobs.live_by_digest(dataset.team_id, [e.digest for e in entries]),
        sizes=set(sizes.values_list("size", flat=True).distinct()),
    )


def _plan(batch: Batch, entry: Entry) -> None:
    """Keep what is there if it is the same file, else take it away and list it anew."""
    file = batch.known.get(entry.path)
    if file is not None:
        upload = getattr(file, "upload", None)
        if _same(file, upload, entry) and (plan := _go_on(batch, file, upload, entry)):
            batch.plans[entry.path] = plan
            return
        batch.replaced.append(file)
    batch.fresh.append(entry)


def _same(file: File, upload: Upload | None, entry: Entry) -> bool:
    """Whether an entry may be the file that is there: nothing known about the two differs."""
    deferred = upload is not None and upload.state == UploadState.OPEN and upload.deferred
    if file.size != entry.size or deferred != entry.deferred:
        return False
    if entry.modified is not None and file.modified not in (None, entry.modified):
        return False
    known = file.digest or (upload.expected_digest if upload else "")
    return not (entry.digest and known and entry.digest != known)


def _go_on(batch: Batch, file: File, upload: Upload | None, entry: Entry) -> FilePlan | None:
    if (file.executable, file.source) != (entry.executable, batch.source):
        file.executable, file.source = entry.executable, batch.source
        File.objects.filter(pk=file.pk).update(executable=file.executable, source=file.source)
    if file.state != FileState.EXPECTED:
        return FilePlan(file, HAVE, path=file.path)
    if entry.digest and entry.digest in batch.have:
        return None
    if upload is None or upload.state != UploadState.OPEN:
        return None
    renew_right(upload, batch.holder)
    if entry.digest and not upload.expected_digest:
        batch.told.append((upload, entry))
    first = upload.offset == 0 and entry.size in batch.sizes
    return FilePlan(file, SEND, upload, address_of(upload), path=file.path, hash_first=first)


def _tell(batch: Batch) -> None:
    """Write the digests that uploads begun without one are now expected to have."""
    if not batch.told:
        return
    for upload, entry in batch.told:
        upload.expected_digest, upload.expected_chunks = entry.digest, entry.chunks
    Upload.objects.bulk_update(
        [upload for upload, _ in batch.told], ["expected_digest", "expected_chunks"], BATCH
    )

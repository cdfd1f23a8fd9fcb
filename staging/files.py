"""Declaring files: names, room, and for each the answer "have" or "send"."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.db import transaction

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError, TooLarge
from portal.base.moves import move
from portal.base.words import in_bytes
from staging import blobs, names, usage
from staging.access import check_writer
from staging.datasets import drop_files
from staging.digests import EMPTY, RAW, chunk_count, combine, is_digest
from staging.errors import RefusedName
from staging.models import Blob, Dataset, File, Folder, Upload
from staging.states import TAKES_FILES, DatasetReason, DatasetState, FileState, UploadState
from staging.uploads import LEASE, address_of, is_lease, new_upload, renew_right

MOST_ENTRIES = 1000
BATCH = 500
HAVE, SEND, REFUSED = "have", "send", "refused"


@dataclass(frozen=True)
class Entry:
    """A file as its source describes it. Sizes in bytes, `modified` in ms since 1970.

    `chunks` are the raw SHA-256 of its chunks, so that a wrong one is told apart; `deferred` says
    that the size is not known yet (and 0 here).
    """

    path: str
    size: int
    digest: str = ""
    executable: bool = False
    modified: int | None = None
    chunks: bytes = b""
    deferred: bool = False

    @property
    def empty(self) -> bool:
        return not self.size and not self.deferred


@dataclass
class FilePlan:
    """What to do about one entry. `address` is where bytes go, from `upload.offset` on.

    `hash_first`: the team has bytes of this size; a digest would tell whether they are these.
    """

    file: File | None
    state: str
    upload: Upload | None = None
    address: str = ""
    message: str = ""
    path: str = ""
    hash_first: bool = False


@dataclass
class _Batch:
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
    if len(entries) > MOST_ENTRIES:
        return [
            plan
            for start in range(0, len(entries), MOST_ENTRIES)
            for plan in declare_files(
                dataset=dataset,
                entries=entries[start : start + MOST_ENTRIES],
                actor=actor,
                holder=holder,
                source=source,
                strict=strict,
            )
        ]
    refused = _refuse(entries)
    if refused and (strict or len(refused) == len(entries)):
        return _all_refused(entries, refused, strict)
    with transaction.atomic():
        now = db_now()
        _open_for_files(dataset, now, actor, holder)
        usage.lock(dataset.team_id)
        accepted = [e for i, e in enumerate(entries) if i not in refused]
        collisions = _collisions(dataset, accepted)
        refused |= {i: collisions[e.path] for i, e in enumerate(entries) if e.path in collisions}
        if strict and refused:
            index, sentence = min(refused.items())
            raise _refusal(entries[index], sentence)
        accepted = [e for i, e in enumerate(entries) if i not in refused]
        batch = _load(dataset, accepted, holder, source or _source_of(holder), now)
        for entry in accepted:
            _plan(batch, entry)
        drop_files(batch.replaced, at=now)
        _tell(batch)
        _create(batch)
    return [
        _refused(e, refused[i]) if i in refused else batch.plans[e.path]
        for i, e in enumerate(entries)
    ]


def _refused(entry: Entry, sentence: str) -> FilePlan:
    return FilePlan(None, REFUSED, message=sentence, path=entry.path)


def _all_refused(entries: list[Entry], refused: dict[int, str], strict: bool) -> list[FilePlan]:
    if strict:
        index, sentence = min(refused.items())
        raise _refusal(entries[index], sentence)
    return [_refused(entry, refused[i]) for i, entry in enumerate(entries)]


def _source_of(holder: str) -> str:
    return holder.removeprefix(LEASE) if is_lease(holder) else ""


def _refusal(entry: Entry, sentence: str) -> DomainError:
    if sentence.startswith("It is larger"):
        return TooLarge(f"{names.shown(entry.path)}: {sentence}", path=names.shown(entry.path))
    return RefusedName(f"{names.shown(entry.path)}: {sentence}", path=names.shown(entry.path))


def _refuse(entries: Sequence[Entry]) -> dict[int, str]:
    """Sentences for entries that are refused whatever else the dataset holds."""
    refused: dict[int, str] = {}
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        sentence = problem_of(entry)
        if not sentence and entry.path in seen:
            sentence = "It is listed twice."
        if sentence:
            refused[index] = sentence
        else:
            seen.add(entry.path)
    return refused


def problem_of(entry: Entry) -> str:
    """Why an entry is refused whatever the dataset holds, or ""."""
    return names.problem(entry.path) or _fact_problem(entry)


def _fact_problem(entry: Entry) -> str:
    if entry.size < 0:
        return "Its size is negative."
    if entry.size > settings.LARGEST_UPLOAD_BYTES:
        return f"It is larger than {in_bytes(settings.LARGEST_UPLOAD_BYTES)}, the most accepted."
    if entry.digest and not is_digest(entry.digest, entry.size):
        return "Its digest does not have the form of a digest of its size."
    if entry.chunks and len(entry.chunks) != chunk_count(entry.size) * RAW:
        return f"A file of its size has {chunk_count(entry.size)} chunks."
    if entry.chunks and entry.digest not in ("", combine(entry.chunks)):
        return "Its digest is not the one of its chunks."
    return ""


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


def _collisions(dataset: Dataset, entries: list[Entry]) -> dict[str, str]:
    """Paths that are a folder here while something is a file there, in the batch or before it."""
    paths = {entry.path for entry in entries}
    above = {folder for path in paths for folder in names.folders_of(path)}
    as_files = paths & above | _existing(File, dataset, above)
    as_folders = {
        path for path in _existing(Folder, dataset, paths) if not _drop_if_empty(dataset, path)
    }
    found = {}
    for path in sorted(paths):
        blocked = next((f for f in names.folders_of(path) if f in as_files - paths), "")
        if blocked:
            found[path] = f"“{names.shown(blocked)}” is a file in this dataset, not a folder."
        elif path in as_files or path in as_folders:
            found[path] = "It is both a file and a folder in this dataset."
    return found


def _drop_if_empty(dataset: Dataset, folder: str) -> bool:
    """Forget a folder whose files were all taken away; whether it was one."""
    below = File.objects.filter(dataset=dataset, path__startswith=f"{folder}/")
    if any(path.startswith(f"{folder}/") for path in below.values_list("path", flat=True)):
        return False
    Folder.objects.filter(dataset=dataset, path=folder).delete()
    return True


def _existing(model: type[File] | type[Folder], dataset: Dataset, paths: set[str]) -> set[str]:
    found: set[str] = set()
    listed = sorted(paths)
    for start in range(0, len(listed), BATCH):
        rows = model.objects.filter(dataset=dataset, path__in=listed[start : start + BATCH])
        found.update(rows.values_list("path", flat=True))
    return found


def _load(
    dataset: Dataset, entries: list[Entry], holder: str, source: str, now: datetime
) -> _Batch:
    rows = File.objects.filter(dataset=dataset, path__in=[e.path for e in entries])
    undigested = {e.size for e in entries if not e.digest and e.size}
    sizes = Blob.objects.filter(team_id=dataset.team_id, dead_at=None, size__in=undigested)
    return _Batch(
        dataset=dataset,
        holder=holder,
        source=source,
        now=now,
        known={file.path: file for file in rows.select_related("upload")},
        have=blobs.live_by_digest(dataset.team_id, [e.digest for e in entries]),
        sizes=set(sizes.values_list("size", flat=True).distinct()),
    )


def _plan(batch: _Batch, entry: Entry) -> None:
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


def _go_on(batch: _Batch, file: File, upload: Upload | None, entry: Entry) -> FilePlan | None:
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


def _tell(batch: _Batch) -> None:
    """Write the digests that uploads begun without one are now expected to have."""
    if not batch.told:
        return
    for upload, entry in batch.told:
        upload.expected_digest, upload.expected_chunks = entry.digest, entry.chunks
    Upload.objects.bulk_update(
        [upload for upload, _ in batch.told], ["expected_digest", "expected_chunks"], BATCH
    )


def _create(batch: _Batch) -> None:
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
    by_path = {file.path: file for file in files}
    uploads = Upload.objects.bulk_create(
        [
            new_upload(
                file=by_path[e.path],
                team_id=batch.dataset.team_id,
                length=e.size,
                holder=batch.holder,
                at=batch.now,
                digest=e.digest,
                chunks=e.chunks,
                deferred=e.deferred,
            )
            for e in sent
        ],
        batch_size=BATCH,
    )
    for file in files:
        batch.plans[file.path] = FilePlan(file, HAVE, path=file.path)
    for entry, upload in zip(sent, uploads, strict=True):
        batch.plans[entry.path] = FilePlan(
            by_path[entry.path],
            SEND,
            upload,
            address_of(upload),
            path=entry.path,
            hash_first=entry.size in batch.sizes,
        )


def _take(batch: _Batch) -> set[str]:
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


def _row(batch: _Batch, entry: Entry, folders: dict[str, int], owned: bool) -> File:
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


def make_folders(dataset: Dataset, paths: list[str]) -> dict[str, int]:
    """Primary keys of all folders of these paths; missing rows are made, outermost first."""
    wanted = {folder for path in paths for folder in names.folders_of(path)}
    known: dict[str, int] = {}
    listed = sorted(wanted)
    for start in range(0, len(listed), BATCH):
        rows = Folder.objects.filter(dataset=dataset, path__in=listed[start : start + BATCH])
        known |= dict(rows.values_list("path", "pk"))
    for depth in sorted({path.count("/") for path in wanted - known.keys()}):
        level = sorted(p for p in wanted - known.keys() if p.count("/") == depth)
        made = Folder.objects.bulk_create(
            [
                Folder(dataset=dataset, path=p, parent_id=known.get(p.rpartition("/")[0]))
                for p in level
            ],
            batch_size=BATCH,
        )
        known |= {folder.path: folder.pk for folder in made}
    return known

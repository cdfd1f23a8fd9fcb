"""Rows for many files whose bytes are already in the store: one transaction, a query per batch."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, connection
from django.db.models import F, QuerySet

from portal.base.clock import db_now
from portal.base.commits import light_atomic
from portal.base.errors import DomainError
from staging import blobs, store, usage
from staging.access import check_writer
from staging.completion import arrived
from staging.digests import SMALLEST_CHUNK
from staging.entries import HAVE, Entry
from staging.files import declare_files
from staging.models import Blob, Dataset, DeadKey, File, Upload
from staging.states import FileState, UploadState

BATCH = 500
TRIES = 3
STAGED_UPLOAD, FAILED = "staged-upload", "failed"


@dataclass
class Arrival:
    """One file that came: its bytes are under `key` unless it is empty or has a `problem`."""

    path: str
    size: int
    digest: str = ""
    key: str = ""
    problem: str = ""
    state: str = ""

    @property
    def answer(self) -> dict[str, str]:
        if self.problem:
            return {"path": self.path, "state": FAILED, "message": self.problem}
        return {"path": self.path, "state": self.state}


def settle_arrivals(
    *, dataset: Dataset, arrivals: list[Arrival], actor: str, listed: bool = False
) -> list[dict[str, str]]:
    """Make these bytes the files of a dataset; an answer for each, in order.

    Files that were not listed are listed now; with `listed` they are refused, so that a pack that
    comes late brings back nothing that was removed. Raises NoRoom and Conflict as declaring does,
    and then nothing of the batch is kept.
    """
    if not arrivals:
        return []
    good = [a for a in arrivals if not a.problem]
    try:
        now = _settle_again(dataset, good, actor, listed)
    except BaseException:
        for arrival in good:
            if arrival.key:
                store.delete(arrival.key)
        raise
    dataset.refresh_from_db()
    arrived(dataset=dataset, at=now, actor=actor)
    return [arrival.answer for arrival in arrivals]


def _settle_again(dataset: Dataset, good: list[Arrival], actor: str, only_listed: bool) -> datetime:
    """Two batches with the same new bytes at once: the one that comes second takes the blob."""
    for left in reversed(range(TRIES)):
        try:
            with light_atomic():
                now = db_now()
                _settle(dataset, good, actor, now, only_listed)
            return now
        except IntegrityError:
            if not left:
                raise
    raise AssertionError


def _settle(
    dataset: Dataset, good: list[Arrival], actor: str, now: datetime, only_listed: bool
) -> None:
    check_writer(dataset, actor)
    usage.lock(dataset.team_id, dataset=dataset)
    listed = _listed(dataset, good)
    rest = [a for a in good if not _fits(listed.get(a.path), a)]
    _list_the_rest(dataset, [a for a in rest if a.path in listed or not only_listed], actor)
    listed = _listed(dataset, good)
    wanted: list[tuple[Arrival, File]] = []
    seen: set[str] = set()
    for arrival in good:
        file = listed.get(arrival.path)
        if arrival.problem or file is None or arrival.path in seen:
            arrival.problem = arrival.problem or "It came twice, or was taken away meanwhile."
        elif file.state != FileState.EXPECTED:
            arrival.state = HAVE
        else:
            seen.add(arrival.path)
            wanted.append((arrival, file))
            arrival.state = STAGED_UPLOAD
    _close(wanted, now)
    blobs_of = _adopt(dataset.team_id, [a for a, _ in wanted])
    _stand(wanted, blobs_of, now)
    used = {blob.key for blob in blobs_of.values()}
    spare = [a for a in good if a.key and a.key not in used]
    DeadKey.objects.bulk_create([DeadKey(key=a.key, size=a.size) for a in spare], BATCH)


def _listed(dataset: Dataset, arrivals: list[Arrival]) -> dict[str, File]:
    rows = File.objects.filter(dataset=dataset, path__in=[a.path for a in arrivals])
    return {file.path: file for file in rows.select_related("upload")}


def _fits(file: File | None, arrival: Arrival) -> bool:
    """Whether a listed file may be the one that came; nothing has to be listed anew then."""
    if file is None or file.size != arrival.size:
        return False
    upload = getattr(file, "upload", None)
    if file.state != FileState.EXPECTED:
        return file.digest == arrival.digest
    return (
        upload is not None
        and upload.state == UploadState.OPEN
        and not upload.deferred
        and upload.expected_digest in ("", arrival.digest)
    )


def _list_the_rest(dataset: Dataset, arrivals: list[Arrival], actor: str) -> None:
    if not arrivals:
        return
    entries = [Entry(a.path, a.size, a.digest) for a in arrivals]
    plans = declare_files(dataset=dataset, entries=entries, actor=actor, strict=False)
    for arrival, plan in zip(arrivals, plans, strict=True):
        if plan.file is None:
            arrival.problem = plan.message


def _close(wanted: list[tuple[Arrival, File]], now: datetime) -> None:
    """The open uploads of these files are complete; a writer that is at one of them is fenced."""
    uploads = [u for _, file in wanted if (u := getattr(file, "upload", None))]
    for start in range(0, len(uploads), BATCH):
        keys = [u.pk for u in uploads[start : start + BATCH]]
        rows = Upload.objects.filter(pk__in=keys, state=UploadState.OPEN)
        done = _complete(rows, now)
        if done != len(keys):
            raise DomainError("An upload ended while its file arrived. Send the pack again.")
    begun = [u for u in uploads if u.offset]
    DeadKey.objects.bulk_create([DeadKey(key=u.key, size=u.offset) for u in begun], BATCH)
    if uploads:
        team_id = uploads[0].team_id
        usage.settle(team_id=team_id, promised=-sum(u.length for u in uploads), stored=0)


def _complete(rows: QuerySet[Upload], now: datetime) -> int:
    return rows.update(
        state=UploadState.COMPLETE,
        offset=F("length"),
        chunk_digests=b"",
        expires_at=now + settings.UPLOAD_LIFETIME,
    )


def _adopt(team_id: int, arrivals: list[Arrival]) -> dict[str, Blob]:
    """The team's live blob of each digest, with as many links more as files came with it."""
    counts = Counter(a.digest for a in arrivals)
    first = {a.digest: a for a in reversed(arrivals)}
    found = blobs.live_by_digest(team_id, counts)
    alive = blobs.link_all({found[d].pk: counts[d] for d in found})
    found = {d: blob for d, blob in found.items() if blob.pk in alive}
    fresh = [first[d] for d in counts if d not in found]
    made = Blob.objects.bulk_create(
        [
            Blob(
                team_id=team_id,
                digest=a.digest,
                size=a.size,
                key=a.key or store.new_key(),
                chunk_size=SMALLEST_CHUNK,
                chunk_digests=bytes.fromhex(a.digest),
                links=counts[a.digest],
            )
            for a in fresh
        ],
        batch_size=BATCH,
    )
    usage.settle(team_id=team_id, promised=0, stored=sum(blob.size for blob in made))
    return found | {blob.digest: blob for blob in made}


def _stand(wanted: list[tuple[Arrival, File]], of: dict[str, Blob], now: datetime) -> None:
    """Each file on its blob: one prepared statement for all rows."""
    table = connection.ops.quote_name(File._meta.db_table)
    at = connection.ops.adapt_datetimefield_value(now)
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {table} SET state = %s, digest = %s, blob_id = %s, changed_at = %s"  # noqa: S608
            " WHERE id = %s",
            [
                (FileState.UPLOADED.value, arrival.digest, of[arrival.digest].pk, at, file.pk)
                for arrival, file in wanted
            ],
        )

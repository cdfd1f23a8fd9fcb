"""Verified means: read back from the store, chunk by chunk, found to be what arrived, and on disk.

verifying -> staged gives the files their positions and the dataset its manifest digest, counts
and date of deletion. Work is cut into pieces by a deadline; progress is on the blobs' rows.
"""

import errno
import hashlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta

import structlog
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from portal.base.clock import db_now
from portal.base.errors import Conflict, NotFound
from portal.base.moves import move
from portal.base.turns import is_over
from staging import blobs, store, usage
from staging.datasets import begin_verifying, fail_dataset, settled
from staging.digests import RAW, chunk_count, manifest_digest
from staging.models import Blob, Dataset, File
from staging.retention import expiry_of
from staging.states import DatasetReason, DatasetState, FileState

CLAIM = timedelta(seconds=60)
BATCH = 500
READERS = 4  # threads that read one large blob back
ACTOR = "system"
BROKEN = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)  # of the disk under a file: its bytes are lost
log = structlog.get_logger(__name__)


def verify_dataset(*, dataset: Dataset, until: float | None = None) -> Dataset:
    """Check a complete dataset to its end, or until a time.monotonic() value; may run twice.

    Does nothing when files are still missing. A dataset whose bytes in the store are wrong fails
    with a reason, and the files concerned are expected again.
    """
    with transaction.atomic():
        dataset.refresh_from_db()
        begin_verifying(dataset=dataset, at=db_now(), actor=ACTOR)
    if dataset.state != DatasetState.VERIFYING:
        return dataset
    bad = None
    with closing(_unverified(dataset)) as waiting:
        for blob in waiting:
            if not _check(blob, until):
                bad = blob
                break
            if blob.verified_at is None or _late(until):
                return dataset  # the next pump goes on from here
    try:
        if bad is not None:
            _condemn(dataset, bad)
        else:
            _stage(dataset)
    except Conflict:
        dataset.refresh_from_db()  # another worker, or a deletion, was first
    return dataset


def _late(until: float | None) -> bool:
    return until is not None and is_over(until)


def _unverified(dataset: Dataset) -> Generator[Blob]:
    """Blobs of the dataset that were never read back, a batch at a time."""
    rows = Blob.objects.filter(files__dataset=dataset, verified_at=None).distinct()
    last = 0
    while batch := list(rows.filter(pk__gt=last).order_by("pk")[:BATCH]):
        try:
            yield from batch
        finally:  # also when the one who checks stops early
            done = [blob for blob in batch if blob.verified_at]
            store.sync([blob.key for blob in done if blob.size])
            Blob.objects.filter(pk__in=[b.pk for b in done]).update(verified_at=db_now())
        last = batch[-1].pk


def _check(blob: Blob, until: float | None) -> bool:
    """Read a blob's chunks back; False when one differs. Sets `verified_at` when all are done."""
    digests = bytes(blob.chunk_digests)
    count = chunk_count(blob.size)
    if len(digests) != count * RAW:
        return False
    at_once = READERS if count > READERS else 1
    for first in range(blob.checked_chunks, count, at_once):
        some = range(first, min(first + at_once, count))
        if not _match(blob, some, digests):
            return False
        blob.checked_chunks = some.stop
        if some.stop < count and _late(until):
            Blob.objects.filter(pk=blob.pk).update(checked_chunks=some.stop)
            return True
    blob.verified_at = timezone.now()  # a mark for the batch, which is written with one time
    return True


def _match(blob: Blob, chunks: range, digests: bytes) -> bool:
    """Whether chunks of a blob are what arrived; several are read and hashed side by side."""

    def one(index: int) -> bool:
        return _matches(blob, index, digests[index * RAW : (index + 1) * RAW])

    if len(chunks) == 1:
        return one(chunks.start)
    with ThreadPoolExecutor(len(chunks)) as readers:
        return all(readers.map(one, chunks))


def _matches(blob: Blob, index: int, digest: bytes) -> bool:
    start = index * blob.chunk_size
    whole = hashlib.sha256()
    try:
        for piece in store.read(blob.key, start, min(start + blob.chunk_size, blob.size)):
            whole.update(piece)
    except NotFound:
        return False
    except OSError as error:
        if error.errno not in BROKEN:
            raise  # the store is away: that says nothing about the bytes
        log.error("bytes_unreadable", key=blob.key, chunk=index, error=str(error))
        return False
    return whole.digest() == digest


def _condemn(dataset: Dataset, blob: Blob) -> None:
    whole = store.length_of(blob.key) == blob.size
    reason = DatasetReason.BYTES_CORRUPT if whole else DatasetReason.BYTES_MISSING
    with transaction.atomic():
        now = db_now()
        fail_dataset(dataset=dataset, reason=reason, at=now, actor=ACTOR)
        blobs.condemn(blob, at=now)


def _stage(dataset: Dataset) -> None:
    """verifying -> staged. The manifest is made of the rows as they are inside the transaction."""
    with transaction.atomic():
        now = db_now()
        Dataset.objects.filter(pk=dataset.pk).update(claimed_until=now)
        dataset.refresh_from_db()
        if dataset.state != DatasetState.VERIFYING:
            return
        usage.lock(dataset.team_id)
        files = list(
            dataset.files.values_list("path", "pk", "digest", "size", "executable", "state")
        )
        if any(state == FileState.EXPECTED for *_, state in files):
            fail_dataset(dataset=dataset, reason=DatasetReason.BYTES_MISSING, at=now, actor=ACTOR)
            return
        files.sort(key=lambda file: file[0].encode())
        _number([pk for _, pk, *_ in files])
        digest = manifest_digest((d, s, x, p) for p, _, d, s, x, _ in files)
        _move_to_staged(dataset, digest, len(files), sum(f[3] for f in files), now)
    settled(dataset)


def _number(keys: list[int]) -> None:
    """Positions in the order of `keys`; one prepared statement for all rows."""
    table = connection.ops.quote_name(File._meta.db_table)
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {table} SET position = %s, state = %s WHERE id = %s",  # noqa: S608
            [(position, FileState.STAGED.value, pk) for position, pk in enumerate(keys)],
        )


def _move_to_staged(dataset: Dataset, digest: str, count: int, size: int, now: datetime) -> None:
    expires_at, set_by = expiry_of(dataset, now)
    move(
        dataset,
        DatasetState.STAGED,
        "verify",
        at=now,
        actor=ACTOR,
        detail={"files": count, "bytes": size},
        changes={
            "staged_at": now,
            "manifest_digest": digest,
            "file_count": count,
            "byte_count": size,
            "expires_at": expires_at,
            "expiry_set_by": set_by,
            "claimed_until": None,
        },
    )


def waiting_for_check(at: datetime) -> QuerySet[Dataset]:
    """Datasets that a worker may claim: being checked, or sealed with every file there."""
    missing = File.objects.filter(state=FileState.EXPECTED).values("dataset")
    arrived = Q(state=DatasetState.TRANSFERRING, sealed_at__isnull=False) & ~Q(pk__in=missing)
    free = Q(claimed_until=None) | Q(claimed_until__lte=at)
    return Dataset.objects.filter(free & (Q(state=DatasetState.VERIFYING) | arrived)).order_by(
        "sealed_at"
    )


def claim(dataset: Dataset, at: datetime) -> bool:
    free = Q(claimed_until=None) | Q(claimed_until__lte=at)
    return bool(Dataset.objects.filter(free, pk=dataset.pk).update(claimed_until=at + CLAIM))


def release_claim(dataset: Dataset) -> None:
    Dataset.objects.filter(pk=dataset.pk).update(claimed_until=None)

"""The last byte of an upload: its file stands on a blob of the team, its dataset may be whole."""

from datetime import datetime

from django.conf import settings
from django.db import connection, transaction

from portal.base.clock import db_now
from portal.base.commits import light_atomic
from portal.base.rows import execute, fetch, table, when
from staging import blobs, store, usage
from staging.datasets import begin_verifying
from staging.errors import WrongOffset
from staging.models import Dataset, DeadKey, File, Upload
from staging.states import Concat, DatasetReason, DatasetState, FileState, UploadState
from staging.takeover import check_open
from staging.uploads import for_a_lease


def complete(*, upload: Upload, digest: str, chunks: bytes) -> None:
    """open -> complete: the file stands on the team's blob of these bytes.

    A part of a concatenation stays under its key, and its room promised, until it is used.
    """
    durable = for_a_lease(upload)
    with transaction.atomic() if durable else light_atomic():
        now = db_now()
        usage.lock(upload.team_id)
        _close(upload, now)
        if upload.concat == Concat.PARTIAL:
            return
        blob, fresh = blobs.adopt(
            team_id=upload.team_id,
            digest=digest,
            size=upload.length,
            key=upload.key,
            chunk_size=upload.chunk_size,
            chunks=chunks,
        )
        if not fresh:
            if durable and blob.verified_at is None:
                store.sync([blob.key])
            DeadKey.objects.create(
                key=upload.key,
                size=upload.length,
                dataset=Dataset.objects.filter(files__upload=upload).first(),
            )
        stored = upload.length if fresh else 0
        usage.settle(team_id=upload.team_id, promised=-upload.length, stored=stored)
        if upload.file_id is None:
            return
        execute(
            f"UPDATE {table(File)} SET state = %s, digest = %s, blob_id = %s, changed_at = %s"  # noqa: S608
            " WHERE id = %s",
            [FileState.UPLOADED.value, digest, blob.pk, when(now), upload.file_id],
        )
    if _may_be_the_last(upload.file_id):
        arrived(dataset=Dataset.objects.get(files=upload.file_id), at=now, actor=upload.holder)


def _may_be_the_last(file_id: int) -> bool:
    """Whether a dataset waits for its files, or has a reason that their arrival ends."""
    row = fetch(
        f"SELECT d.sealed_at, d.reason FROM {table(Dataset)} d"  # noqa: S608
        f" JOIN {table(File)} f ON f.dataset_id = d.id WHERE f.id = %s",
        [file_id],
    )
    return row is not None and any(row)


def _close(upload: Upload, now: datetime) -> None:
    expires_at = now + settings.UPLOAD_LIFETIME
    offset = connection.ops.quote_name("offset")
    swapped = execute(
        f"UPDATE {table(Upload)} SET state = %s, {offset} = length, chunk_digests = %s,"  # noqa: S608
        f" expires_at = %s WHERE id = %s AND state = %s AND {offset} = %s",
        [
            UploadState.COMPLETE.value,
            b"",
            when(expires_at),
            upload.pk,
            UploadState.OPEN.value,
            upload.offset,
        ],
    )
    if not swapped:
        upload.refresh_from_db()
        check_open(upload)
        raise WrongOffset(upload.offset)
    upload.state, upload.offset, upload.expires_at = (
        UploadState.COMPLETE,
        upload.length,
        expires_at,
    )


def arrived(*, dataset: Dataset, at: datetime, actor: str) -> None:
    """The last file of a sealed dataset starts its check; the pump does so too, if we do not."""
    from staging.tasks import wake_verify

    if dataset.reason == DatasetReason.DISK_FULL:
        Dataset.objects.filter(pk=dataset.pk, state=DatasetState.TRANSFERRING).update(reason="")
    if dataset.sealed_at is None:
        return
    with transaction.atomic():
        if begin_verifying(dataset=dataset, at=at, actor=actor):
            wake_verify(dataset)

"""How long data is kept, and its end: staged -> expiring -> purged, with a receipt.

The receipt is written after the fact: a dataset is purged once its last byte has left the store.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from portal.base.moves import move
from portal.base.turns import is_over
from staging import blobs, usage
from staging.datasets import MOST_DAYS, ON_ITS_WAY_OUT, fail_dataset
from staging.models import Dataset, DeadKey, File, Source, Upload
from staging.states import Concat, DatasetReason, DatasetState, FileState, UploadState
from staging.sync.ending import end_source
from staging.uploads import PARTS, end_upload, end_uploads

BATCH = 500
POLICY = "retention policy"
TEAM_POLICY = "the team's policy"
PORTAL_POLICY = "this portal's policy"
UPLOAD_LIMIT = "the limit for unfinished uploads"


def expiry_of(dataset: Dataset, now: datetime) -> tuple[datetime | None, str]:
    """(date of deletion or None, who set it), as it is stored when a dataset becomes staged."""
    if dataset.expires_at is not None:
        return dataset.expires_at, dataset.expiry_set_by
    if dataset.keep_days is not None:
        days, by = dataset.keep_days, dataset.created_by
    else:
        days = dataset.team.policy_days or 0
        by = PORTAL_POLICY if dataset.team.retention_days is None else TEAM_POLICY
    return (
        (now + timedelta(days=days), by) if days else (None, by if dataset.keep_days == 0 else "")
    )


def set_expiry(*, dataset: Dataset, days: int, actor: str) -> Dataset:
    """A person sets the date: `days` from now, 0 for none. Raises Conflict when it is too late."""
    if not 0 <= days <= MOST_DAYS:
        raise DomainError(f"A dataset is kept for 0 to {MOST_DAYS} days.")
    with transaction.atomic():
        now = db_now()
        expires_at = now + timedelta(days=days) if days else None
        rows = Dataset.objects.filter(pk=dataset.pk).exclude(state__in=ON_ITS_WAY_OUT)
        if not rows.update(expires_at=expires_at, expiry_set_by=actor, keep_days=days):
            raise Conflict("This dataset is being deleted; its date cannot change.")
        dataset.refresh_from_db()
        dataset.note("keep", at=now, actor=actor, detail={"days": days})
    return dataset


def delete_dataset(
    *, dataset: Dataset, actor: str, reason: str, at: datetime | None = None
) -> Dataset:
    """Decide the end of a dataset; the bytes go right after the commit.

    `at`: the time of the transaction that this is a part of. Raises Conflict, naming who needs
    it, while it is held. Deleting twice does nothing.
    """
    from staging.tasks import wake_purge

    with transaction.atomic():
        now = at or db_now()
        # The row is written before it is judged: a hold that comes now waits and then finds
        # another state, on PostgreSQL as on SQLite.
        free = Dataset.objects.filter(pk=dataset.pk, holds=0).exclude(state__in=ON_ITS_WAY_OUT)
        swapped = free.update(purged_by=actor[:254])
        dataset.refresh_from_db()
        if not swapped:
            if dataset.holds:
                raise _held(dataset)
            return dataset
        move(
            dataset,
            DatasetState.EXPIRING,
            "delete",
            at=now,
            actor=actor,
            reason=reason,
            changes={"reason": reason, "claimed_until": None},
        )
        wake_purge(dataset)
    return dataset


def _held(dataset: Dataset) -> Conflict:
    labels = list(dataset.hold_rows.values_list("label", flat=True)[:5])
    more = dataset.holds - len(labels)
    who = "; ".join(labels) + (f"; and {more} more" if more > 0 else "")
    return Conflict(f"{dataset.name} is needed and cannot be deleted: {who}.", holders=labels)


def purge_dataset(*, dataset: Dataset, until: float | None = None) -> Dataset:
    """expiring -> purged: free the blobs no other file stands on, remove their bytes, then write
    the receipt. Goes on where an earlier call stopped; stops at a time.monotonic() value."""
    dataset.refresh_from_db()
    if dataset.state != DatasetState.EXPIRING:
        return dataset
    _end_sync(dataset)
    while _free_some(dataset) or _bury_some(dataset):
        if until is not None and is_over(until):
            return dataset
    with transaction.atomic():
        now = db_now()
        dataset.refresh_from_db()
        if dataset.state == DatasetState.EXPIRING:
            move(
                dataset,
                DatasetState.PURGED,
                "purge",
                at=now,
                actor=dataset.purged_by,
                reason=dataset.reason,
                detail={"bytes": dataset.purged_bytes},
                changes={"purged_at": now},
            )
    return dataset


def _end_sync(dataset: Dataset) -> None:
    source = Source.objects.filter(dataset=dataset).first() if dataset.fed_by else None
    if source is not None:
        with transaction.atomic():
            end_source(source, at=db_now(), actor=dataset.purged_by, reason=dataset.reason)


def _free_some(dataset: Dataset) -> bool:
    """Take one batch of files off their blobs and end their uploads; whether there was one."""
    with transaction.atomic():
        now = db_now()
        rows = dataset.files.filter(Q(blob__isnull=False) | Q(upload__isnull=False)).select_related(
            "dataset"
        )
        files = list(rows.order_by("pk")[:BATCH])
        if not files:
            return False
        usage.lock(dataset.team_id, dataset=dataset)
        end_uploads(files=files, at=now)
        freed = blobs.unlink(files, at=now, dataset=dataset)
        Dataset.objects.filter(pk=dataset.pk).update(purged_bytes=F("purged_bytes") + freed)
    return True


def _bury_some(dataset: Dataset) -> bool:
    dead = list(DeadKey.objects.filter(dataset=dataset)[:BATCH])
    blobs.bury(dead)
    return bool(dead)


def expire_uploads(*, at: datetime) -> int:
    """Sweep uploads that were not finished in time, give their room back; how many.

    A dataset left with files that no upload brings any more fails with that reason.
    """
    part = Q(state=UploadState.COMPLETE, concat=Concat.PARTIAL)
    due = Upload.objects.filter(
        Q(state=UploadState.OPEN) | part, expires_at__lte=at
    ).select_related("file__dataset")
    swept = 0
    datasets: dict[int, Dataset] = {}
    for upload in due.order_by("pk")[:BATCH]:
        with transaction.atomic():
            usage.lock(upload.team_id)
            # The date is part of the condition: bytes that arrived meanwhile moved it.
            still = Upload.objects.filter(pk=upload.pk, expires_at__lte=at)
            if still.update(expires_at=at) and end_upload(
                upload=upload, to=UploadState.EXPIRED, at=at
            ):
                swept += 1
        if upload.file:
            datasets[upload.file.dataset_id] = upload.file.dataset
    for dataset in datasets.values():
        _fail_unfinished(dataset, at)
    return swept


def _fail_unfinished(dataset: Dataset, at: datetime) -> None:
    with transaction.atomic():
        Dataset.objects.filter(pk=dataset.pk).update(claimed_until=None)
        dataset.refresh_from_db()
        open_ones = Upload.objects.filter(file__dataset=dataset, state=UploadState.OPEN)
        if dataset.state != DatasetState.TRANSFERRING or open_ones.exists():
            return
        if not File.objects.filter(dataset=dataset, state=FileState.EXPECTED).exists():
            return
        fail_dataset(
            dataset=dataset,
            reason=DatasetReason.UPLOAD_EXPIRED,
            at=at,
            actor="system",
            expires_at=at + settings.UPLOAD_LIFETIME,
            expiry_set_by=UPLOAD_LIMIT,
        )


def abandon_datasets(*, at: datetime) -> int:
    """Delete datasets that were named and never got a file; how many."""
    rows = Dataset.objects.filter(
        state=DatasetState.DECLARED, holds=0, created_at__lte=at - settings.UPLOAD_LIFETIME
    )
    return _delete_all(list(rows[:BATCH]), "system", DatasetReason.ABANDONED, at)


def expire_datasets(*, at: datetime) -> int:
    """Delete datasets whose date has come and that nobody holds; how many."""
    due = list(Dataset.objects.due_for_deletion(at).order_by("expires_at")[:BATCH])
    unfinished = [dataset for dataset in due if dataset.reason == DatasetReason.UPLOAD_EXPIRED]
    begun = set(
        File.objects.filter(dataset__in=unfinished)
        .filter(Q(blob__isnull=False) | Q(upload__offset__gt=0))
        .values_list("dataset", flat=True)
    )
    deleted = 0
    for dataset in due:
        actor, reason = POLICY, DatasetReason.RETENTION
        if dataset in unfinished:
            actor = "system"
            reason = DatasetReason.UNFINISHED if dataset.pk in begun else DatasetReason.ABANDONED
        deleted += _delete_all([dataset], actor, reason, at)
    return deleted


def _delete_all(datasets: list[Dataset], actor: str, reason: str, at: datetime) -> int:
    deleted = 0
    for dataset in datasets:
        try:
            delete_dataset(dataset=dataset, actor=actor, reason=reason, at=at)
        except Conflict:
            continue  # a job took hold of it since the list was made
        deleted += 1
    return deleted


def forget_tombstones(*, at: datetime) -> int:
    """Remove rows of ended uploads whose time is over; their files stay. How many."""
    old = Upload.objects.exclude(state=UploadState.OPEN).filter(expires_at__lte=at)
    old = old.exclude(state=UploadState.COMPLETE, concat__in=PARTS)
    return Upload.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:BATCH])).delete()[0]

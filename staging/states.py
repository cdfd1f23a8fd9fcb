"""The states of a dataset and the moves between them."""

from django.db import models

from portal.base.moves import MoveTable


class DatasetState(models.TextChoices):
    DECLARED = "declared"  # it has a name; no file has been listed yet
    TRANSFERRING = "transferring"  # files are on their way to the store
    VERIFYING = "verifying"  # everything has arrived; digests and manifest are being checked
    STAGED = "staged"  # verified, on stable storage, may be used by jobs
    EXPIRING = "expiring"  # its end was decided; bytes are being deleted
    PURGED = "purged"  # bytes are gone; this row is the receipt
    FAILED = "failed"  # it cannot become staged as it is; `reason` says why
    STALE = "stale"  # the source changed after it was listed


# Nothing was decided about it yet: its files are on their way, and it may be sealed.
FILLING = (DatasetState.DECLARED, DatasetState.TRANSFERRING)
# A file may be listed or taken away: what failed is taken up again so.
TAKES_FILES = (*FILLING, DatasetState.FAILED, DatasetState.STALE)


class DatasetKind(models.TextChoices):
    INPUT = "input"  # data that jobs read
    OUTPUT = "output"  # what a job wrote
    CODE = "code"  # a job's folder of code


class DatasetReason(models.TextChoices):
    """Why a dataset failed, went stale or was deleted; the label is the sentence on the page."""

    NONE = "", ""
    DISK_FULL = "disk_full", "The store ran out of disk. Retry once there is room."
    BYTES_MISSING = "bytes_missing", "Bytes that had been stored are no longer there."
    BYTES_CORRUPT = (
        "bytes_corrupt",
        "Bytes in the store are no longer those that arrived: they are corrupt. Send them again.",
    )
    UPLOAD_EXPIRED = (
        "upload_expired",
        "It was not finished in time, so the parts of files were removed.",
    )
    SOURCE_CHANGED = "source_changed", "The source changed while it was being copied."
    SOURCE_UNREADABLE = "source_unreadable", "Some files could not be read at the source."
    NOTHING_FOUND = "nothing_found", "The source held no file that was chosen and could be taken."
    SYNC_CANCELLED = "sync_cancelled", "The sync was cancelled before everything had arrived."
    DELETED_BY_PERSON = "deleted_by_person", "Deleted by a member of the team."
    RETENTION = "retention", "Its date of deletion had come."
    AFTER_JOB = "after_job", "The job that used it declared that it be deleted after release."
    ABANDONED = "abandoned", "Nothing was ever uploaded to it."
    UNFINISHED = "unfinished", "Its upload was not finished in time, nor taken up again."


class FileState(models.TextChoices):
    EXPECTED = "expected"  # listed; its bytes have not all arrived
    UPLOADED = "uploaded"  # every byte arrived and matched its digest; not yet on the manifest
    STAGED = "staged"  # verified in the store as part of a staged dataset


class UploadState(models.TextChoices):
    OPEN = "open"  # bytes may be added
    COMPLETE = "complete"  # every byte arrived; its file has its blob
    EXPIRED = "expired"  # swept; the room was given back
    TERMINATED = "terminated"  # ended by its owner or by its dataset's deletion


class Concat(models.TextChoices):
    """What an upload is in a concatenation; most are none."""

    PARTIAL = "partial"  # a part of a file; belongs to no dataset by itself
    TAKEN = "taken"  # a part that a final upload is being made of
    FINAL = "final"  # made of parts


S = DatasetState
DATASET_MOVES: MoveTable = {
    S.DECLARED: frozenset({S.TRANSFERRING, S.FAILED, S.EXPIRING}),
    S.TRANSFERRING: frozenset({S.VERIFYING, S.FAILED, S.STALE, S.EXPIRING}),
    S.VERIFYING: frozenset({S.STAGED, S.TRANSFERRING, S.FAILED, S.STALE, S.EXPIRING}),
    S.STAGED: frozenset({S.EXPIRING, S.STALE, S.FAILED}),
    S.FAILED: frozenset({S.TRANSFERRING, S.EXPIRING}),
    S.STALE: frozenset({S.TRANSFERRING, S.EXPIRING}),
    S.EXPIRING: frozenset({S.PURGED}),
    S.PURGED: frozenset(),
}

U = UploadState
UPLOAD_MOVES: MoveTable = {
    U.OPEN: frozenset({U.COMPLETE, U.EXPIRED, U.TERMINATED}),
    U.COMPLETE: frozenset({U.EXPIRED, U.TERMINATED}),  # parts, once used or given up
    U.EXPIRED: frozenset(),
    U.TERMINATED: frozenset(),
}

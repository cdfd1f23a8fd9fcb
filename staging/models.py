"""Datasets, their files, the blobs that hold the bytes, uploads, and holds against deletion."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from portal.base.codes import new_code
from portal.base.moves import REASON_LENGTH, STATE_LENGTH, Event, Stateful
from portal.teams.models import Team
from staging.states import (
    DATASET_MOVES,
    UPLOAD_MOVES,
    Concat,
    DatasetKind,
    DatasetReason,
    DatasetState,
    FileState,
    UploadState,
)

PATH_LENGTH = 4096  # room for the longest path in characters; staging.names sets the limit in bytes
DIGEST_LENGTH = 80  # 64 hex digits, "-", number of chunks


class DatasetQuerySet(models.QuerySet["Dataset"]):
    def of_team(self, team: Team) -> "DatasetQuerySet":
        return self.filter(team=team)

    def inputs(self) -> "DatasetQuerySet":
        return self.filter(kind=DatasetKind.INPUT)

    def usable(self) -> "DatasetQuerySet":
        """Not on its way out: may be named by a job."""
        return self.exclude(
            state__in=[DatasetState.EXPIRING, DatasetState.PURGED, DatasetState.FAILED]
        )

    def due_for_deletion(self, at) -> "DatasetQuerySet":
        return self.filter(
            state__in=[DatasetState.STAGED, DatasetState.FAILED, DatasetState.STALE],
            expires_at__lte=at,
            holds=0,
        )


class Dataset(Stateful):
    """A named set of files that a team declared (input, code) or that a job wrote (output).

    `holds` counts Hold rows: a dataset with holds is never deleted. `expires_at` is its own stored
    date; a later change of policy does not move it.
    """

    MOVES = DATASET_MOVES

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    team = models.ForeignKey(Team, models.PROTECT, related_name="datasets")
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=8, choices=DatasetKind, default=DatasetKind.INPUT)
    state = models.CharField(
        max_length=STATE_LENGTH, choices=DatasetState, default=DatasetState.DECLARED
    )
    reason = models.CharField(max_length=REASON_LENGTH, choices=DatasetReason, blank=True)
    partial = models.BooleanField(default=False, help_text="The work did not finish.")
    fed_by = models.CharField(
        max_length=8, blank=True, help_text="The kind of source that fills it. Empty: uploads."
    )
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    staged_at = models.DateTimeField(null=True)
    sealed_at = models.DateTimeField(null=True, help_text="No file will be added any more.")
    keep_days = models.PositiveIntegerField(
        null=True, help_text="Days it is kept once staged; 0 for no date. Empty: the policy's."
    )
    claimed_until = models.DateTimeField(null=True, help_text="A worker checks it until then.")
    file_count = models.BigIntegerField(default=0)
    byte_count = models.BigIntegerField(default=0)
    manifest_digest = models.CharField(max_length=64, blank=True)
    holds = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField(null=True)
    expiry_set_by = models.CharField(max_length=254, blank=True)
    purged_at = models.DateTimeField(null=True)
    purged_by = models.CharField(max_length=254, blank=True)
    purged_bytes = models.BigIntegerField(default=0)

    objects = DatasetQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=DatasetState.values), name="dataset_state"
            ),
            models.CheckConstraint(
                condition=~Q(state=DatasetState.STAGED)
                | (Q(staged_at__isnull=False) & ~Q(manifest_digest="")),
                name="dataset_staged_has_manifest",
            ),
            models.CheckConstraint(
                condition=Q(holds=0) | ~Q(state__in=[DatasetState.EXPIRING, DatasetState.PURGED]),
                name="dataset_held_is_not_deleted",
            ),
            models.CheckConstraint(
                condition=~Q(state=DatasetState.PURGED) | Q(purged_at__isnull=False),
                name="dataset_purged_has_receipt",
            ),
        ]
        indexes = [models.Index(fields=["team", "kind", "-created_at"])]

    def __str__(self) -> str:
        return self.name

    @property
    def shown(self) -> str:
        """The state as pages name it: what failed only for want of time has expired."""
        expired = self.reason == DatasetReason.UPLOAD_EXPIRED
        return "expired" if expired and self.state == DatasetState.FAILED else self.state


class DatasetEvent(Event):
    subject = models.ForeignKey(Dataset, models.CASCADE, related_name="events")


class Blob(models.Model):
    """One copy of some bytes in the store, under a random key that is never reused.

    The digest is a column, never the key: "already here" is a look-up on live rows of the team.
    `chunk_digests` holds the raw 32-byte SHA-256 of each chunk, concatenated. `links` counts the
    files that stand on it; adding and taking one away write this row, so a blob cannot die under
    a file that is being linked to it. `checked_chunks` chunks were read back and matched.
    """

    team = models.ForeignKey(Team, models.PROTECT, related_name="blobs")
    digest = models.CharField(max_length=DIGEST_LENGTH)
    size = models.BigIntegerField()
    key = models.CharField(max_length=64, unique=True)
    chunk_size = models.BigIntegerField()
    chunk_digests = models.BinaryField()
    checked_chunks = models.PositiveIntegerField(default=0)
    verified_at = models.DateTimeField(null=True, help_text="Read back from the store; they match.")
    links = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    dead_at = models.DateTimeField(null=True, help_text="Unlinked from every file; key may go.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(dead_at=None) | Q(links=0), name="dead_blob_has_no_file"
            ),
            models.UniqueConstraint(
                fields=["team", "digest"],
                condition=Q(dead_at=None),
                name="one_live_blob_per_digest",
            ),
            models.CheckConstraint(condition=Q(size__gte=0), name="blob_size"),
        ]

    def __str__(self) -> str:
        return f"{self.digest[:12]} ({self.size} bytes)"


class Folder(models.Model):
    """A folder that files of a dataset lie in, at any depth; the top has no row."""

    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="folders")
    parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="children")
    path = models.CharField(max_length=PATH_LENGTH)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "path"], name="one_folder_per_path")
        ]

    def __str__(self) -> str:
        return self.path


class File(models.Model):
    """One file of a dataset. `position` orders a staged dataset by the bytes of its paths.

    `source` is the code of the lease that wrote it, for outputs. `modified` is the time of change
    at the source (milliseconds since 1970), where the source told one: another time is another
    content, so an upload that was begun with the old one starts again.
    """

    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="files")
    folder = models.ForeignKey(Folder, models.SET_NULL, null=True, related_name="files")
    modified = models.BigIntegerField(null=True)
    path = models.CharField(max_length=PATH_LENGTH)
    size = models.BigIntegerField()
    digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    executable = models.BooleanField(default=False)
    state = models.CharField(max_length=STATE_LENGTH, choices=FileState, default=FileState.EXPECTED)
    blob = models.ForeignKey(Blob, models.PROTECT, null=True, related_name="files")
    position = models.BigIntegerField(null=True)
    source = models.CharField(max_length=16, blank=True)
    changed_at = models.DateTimeField(null=True, help_text="Every byte of it had arrived.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "path"], name="one_file_per_path"),
            models.CheckConstraint(condition=Q(size__gte=0), name="file_size"),
            models.CheckConstraint(
                condition=Q(state=FileState.EXPECTED) | ~Q(digest=""), name="file_has_digest"
            ),
        ]
        indexes = [
            models.Index(fields=["dataset", "position"]),
            models.Index(fields=["dataset", "changed_at"], name="file_changed"),
            models.Index(
                fields=["dataset"], condition=Q(state=FileState.EXPECTED), name="file_expected"
            ),
        ]

    def __str__(self) -> str:
        return self.path


class Upload(models.Model):
    """A tus upload of one file: `offset` bytes are on disk and acknowledged.

    `code` is long enough to be unguessable; the address also carries a token, stored as a hash.
    `chunk_digests` covers the complete chunks below `offset`, `expected_chunks` holds the digests
    that the client declared for all of them, if it did. `holder` is the person or the lease on
    whose behalf bytes arrive; when that right ends, so does the capability. While `deferred` the
    length is not known, and `length` is the room promised so far. `concat` is "partial" for a
    part, whose bytes stay under its own key until a final upload has copied them, and "final" for
    one that is made of `parts` (their codes, in order).
    """

    code = models.CharField(max_length=40, unique=True)
    token_hash = models.CharField(max_length=64)
    file = models.OneToOneField(File, models.CASCADE, null=True, related_name="upload")
    team = models.ForeignKey(Team, models.CASCADE, related_name="uploads")
    state = models.CharField(max_length=STATE_LENGTH, choices=UploadState, default=UploadState.OPEN)
    length = models.BigIntegerField()
    offset = models.BigIntegerField(default=0)
    chunk_size = models.BigIntegerField()
    chunk_digests = models.BinaryField(default=bytes)
    expected_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    expected_chunks = models.BinaryField(default=bytes)
    deferred = models.BooleanField(default=False)
    concat = models.CharField(max_length=8, choices=Concat, blank=True)
    parts = models.JSONField(default=list, blank=True)
    metadata = models.CharField(max_length=8192, blank=True)
    key = models.CharField(max_length=64, unique=True)
    generation = models.BigIntegerField(default=0, help_text="Raised to stop the one who writes.")
    holder = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    MOVES = UPLOAD_MOVES

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(offset__gte=0) & Q(offset__lte=models.F("length")),
                name="upload_offset_within_length",
            ),
            models.CheckConstraint(
                condition=~Q(state=UploadState.COMPLETE) | Q(offset=models.F("length")),
                name="upload_complete_is_whole",
            ),
            models.CheckConstraint(
                condition=~Q(state=UploadState.COMPLETE) | Q(deferred=False),
                name="upload_complete_has_length",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "expires_at"]),
            models.Index(
                fields=["offset"],
                condition=Q(state=UploadState.OPEN, offset__gt=0),
                name="upload_begun",
            ),
            models.Index(
                fields=["length"],
                condition=Q(concat__in=["partial", "taken"]),
                name="upload_part",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.offset} of {self.length} bytes"


class Hold(models.Model):
    """Somebody needs a dataset. `holder` is a public code (a job's), `label` what the page says."""

    dataset = models.ForeignKey(Dataset, models.PROTECT, related_name="hold_rows")
    holder = models.CharField(max_length=16)
    label = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "holder"], name="one_hold_per_holder")
        ]

    def __str__(self) -> str:
        return self.label


class DeadKey(models.Model):
    """A key whose bytes are to be removed from the store; the row goes after the bytes."""

    key = models.CharField(max_length=64, unique=True)
    dataset = models.ForeignKey(Dataset, models.CASCADE, null=True, related_name="dead_keys")
    size = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.key


class TeamUsage(models.Model):
    """Bytes of a team in the store, and bytes promised to its open uploads.

    Every check against the quota is an update of this row whose condition is the quota.
    """

    team = models.OneToOneField(Team, models.CASCADE, primary_key=True, related_name="usage")
    stored_bytes = models.BigIntegerField(default=0)
    promised_bytes = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(stored_bytes__gte=0) & Q(promised_bytes__gte=0), name="usage_counts"
            )
        ]

    def __str__(self) -> str:
        return f"{self.stored_bytes} bytes stored, {self.promised_bytes} promised"


class StoreRoom(models.Model):
    """One row: who promises room in the store writes it first, so promises are made one by one."""

    promises = models.BigIntegerField(default=0, help_text="How many were made.")

    def __str__(self) -> str:
        return f"{self.promises} promises"


class DeletionMail(models.Model):
    """The receipt of a mail that told somebody what of a team is deleted soon; at most one a day.

    It is claimed before it is sent; one that was claimed and not sent is tried again.
    """

    team = models.ForeignKey(Team, models.CASCADE, related_name="deletion_mails")
    address = models.CharField(max_length=254)
    day = models.DateField(help_text="In UTC.")
    claimed_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team", "address", "day"], name="one_deletion_mail_a_day"
            )
        ]

    def __str__(self) -> str:
        return f"{self.team} to {self.address}, {self.day}"


class DeletionNotice(models.Model):
    """A line of such a mail: this dataset, `days` ahead of this date."""

    mail = models.ForeignKey(DeletionMail, models.CASCADE, related_name="notices")
    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="notices")
    days = models.PositiveSmallIntegerField()
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["mail", "dataset"], name="one_notice_per_mail")
        ]

    def __str__(self) -> str:
        return f"{self.dataset}, {self.days} days ahead"


from staging.estimates.models import Estimate, Link, Transfer  # noqa: E402
from staging.sync.models import (  # noqa: E402  its rows point at those above
    Connection,
    Part,
    PumpSeat,
    ServerFolder,
    Source,
    SourceEvent,
    SourceFile,
)

__all__ = [
    "Blob",
    "Connection",
    "Dataset",
    "DatasetEvent",
    "DeadKey",
    "DeletionMail",
    "DeletionNotice",
    "Estimate",
    "File",
    "Folder",
    "Hold",
    "Link",
    "Part",
    "PumpSeat",
    "ServerFolder",
    "Source",
    "SourceEvent",
    "SourceFile",
    "StoreRoom",
    "TeamUsage",
    "Transfer",
    "Upload",
]

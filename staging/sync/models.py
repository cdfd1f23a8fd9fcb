"""Connections to sources, sources, what they list, and the parts that are copied."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from portal.base.codes import new_code
from portal.base.moves import REASON_LENGTH, STATE_LENGTH, Event, Stateful
from portal.teams.models import Team
from staging.sync.states import (
    SOURCE_MOVES,
    Access,
    PartKind,
    SourceFileState,
    SourceKind,
    SourceReason,
    SourceState,
)

KEY_LENGTH = 4096
ETAG_LENGTH = 200
SENTENCE_LENGTH = 300


class ConnectionQuerySet(models.QuerySet["Connection"]):
    def of_team(self, team: Team) -> "ConnectionQuerySet":
        return self.filter(team=team, deleted_at=None)


class Connection(models.Model):
    """A way to an S3 bucket. Members use it; nobody sees its secret again.

    `sealed` holds key and secret, encrypted. `prefix` is the most that may be read through it,
    "" for the whole bucket. Endpoint, bucket and prefix never change: a secret goes to no other
    place than the one it was given for.
    """

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="connections")
    name = models.CharField(max_length=120)
    endpoint = models.CharField(max_length=300, help_text="https://host or http://host:port")
    region = models.CharField(max_length=60, default="us-east-1")
    bucket = models.CharField(max_length=255)
    prefix = models.CharField(max_length=1024, blank=True)
    path_style = models.BooleanField(
        default=True, help_text="The bucket is a part of the path, not of the host name."
    )
    access = models.CharField(max_length=12, choices=Access, default=Access.KEYS)
    sealed = models.TextField(blank=True, editable=False)
    md5_etags = models.BooleanField(
        default=True, help_text="The ETag of an object that was sent whole is its MD5 sum."
    )
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())
    tested_at = models.DateTimeField(null=True)
    test_code = models.CharField(max_length=40, blank=True, help_text="Empty: it worked.")
    test_sentence = models.CharField(max_length=SENTENCE_LENGTH, blank=True)
    deleted_at = models.DateTimeField(null=True)

    objects = ConnectionQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "name"],
                condition=Q(deleted_at=None),
                name="one_connection_per_name",
            ),
            models.CheckConstraint(
                condition=Q(access=Access.KEYS, deleted_at=None) ^ Q(sealed=""),
                name="connection_keys_are_sealed",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def origin(self) -> str:
        """Endpoint and bucket: what a key is a key of."""
        return f"{self.endpoint}/{self.bucket}"


class ServerFolder(models.Model):
    """A folder of this server (an NFS mount, say) that the operator lets teams read."""

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    name = models.CharField(max_length=120, unique=True)
    path = models.CharField(max_length=1024, help_text="Absolute; every worker must see it there.")
    teams = models.ManyToManyField(Team, related_name="server_folders", blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Source(Stateful):
    """Where the files of a dataset come from, how far the listing is, and how far the copying.

    `cursor` is where the listing goes on. `listing` numbers the listings, so that what an earlier
    one found and this one did not is told apart. The counts are of the present listing.
    """

    MOVES = SOURCE_MOVES

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    dataset = models.OneToOneField("staging.Dataset", models.CASCADE, related_name="sync")
    kind = models.CharField(max_length=8, choices=SourceKind)
    connection = models.ForeignKey(Connection, models.PROTECT, null=True, related_name="sources")
    folder = models.ForeignKey(ServerFolder, models.SET_NULL, null=True, related_name="sources")
    prefix = models.CharField(max_length=1024, blank=True)
    include = models.JSONField(default=list, blank=True)
    exclude = models.JSONField(default=list, blank=True)
    addresses = models.TextField(blank=True, help_text="Of a list of addresses: its lines.")
    state = models.CharField(
        max_length=STATE_LENGTH, choices=SourceState, default=SourceState.LISTING
    )
    reason = models.CharField(max_length=REASON_LENGTH, choices=SourceReason, blank=True)
    sentence = models.CharField(
        max_length=SENTENCE_LENGTH, blank=True, help_text="The latest trouble, in words."
    )
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    listed_at = models.DateTimeField(null=True, help_text="The present listing is complete.")
    listing = models.PositiveIntegerField(default=1)
    cursor = models.JSONField(default=dict, blank=True)
    claimed_until = models.DateTimeField(null=True, help_text="A worker lists it until then.")
    generation = models.BigIntegerField(default=0, help_text="Raised with each claim of a listing.")
    tries = models.PositiveIntegerField(default=0, help_text="Failures of the source in a row.")
    next_try_at = models.DateTimeField(null=True)
    listed_files = models.BigIntegerField(default=0)
    listed_bytes = models.BigIntegerField(default=0)
    there_files = models.BigIntegerField(default=0, help_text="Listed, and here already.")
    there_bytes = models.BigIntegerField(default=0)
    moved_files = models.BigIntegerField(default=0, help_text="Copied, and verified on arrival.")
    moved_bytes = models.BigIntegerField(default=0)
    promised_bytes = models.BigIntegerField(default=0, help_text="Room kept for what is to come.")
    skipped = models.BigIntegerField(default=0, help_text="Keys that were not taken.")
    problems = models.JSONField(default=list, blank=True, help_text="The first of them, by name.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=SourceState.values), name="source_state"),
            models.CheckConstraint(condition=Q(promised_bytes__gte=0), name="source_promise"),
        ]
        indexes = [
            models.Index(
                fields=["state"],
                condition=Q(state__in=[SourceState.LISTING, SourceState.COPYING]),
                name="source_at_work",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.dataset_id}"


class SourceEvent(Event):
    subject = models.ForeignKey(Source, models.CASCADE, related_name="events")


class Part(models.Model):
    """A bounded piece of copying. A worker owns it while `claimed_until` lies ahead and its number
    is the `generation`; what it brings is accepted once.

    Of a range [start, stop) the first `arrived` bytes are on disk; `digests` are the raw SHA-256
    of its complete chunks.
    """

    source = models.ForeignKey(Source, models.CASCADE, related_name="parts")
    kind = models.CharField(max_length=8, choices=PartKind)
    file = models.ForeignKey("SourceFile", models.CASCADE, null=True, related_name="ranges")
    start = models.BigIntegerField(default=0)
    stop = models.BigIntegerField(default=0, help_text="Of a pack: its bytes.")
    arrived = models.BigIntegerField(default=0)
    digests = models.BinaryField(default=bytes)
    done = models.BooleanField(default=False)
    claimed_until = models.DateTimeField(null=True)
    generation = models.BigIntegerField(default=0)
    tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True)
    sentence = models.CharField(max_length=SENTENCE_LENGTH, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind=PartKind.PACK) ^ Q(file__isnull=False), name="part_has_its_file"
            ),
            models.CheckConstraint(
                condition=Q(start__gte=0)
                & Q(stop__gte=models.F("start"))
                & Q(arrived__gte=0)
                & Q(arrived__lte=models.F("stop") - models.F("start")),
                name="part_arrived_within",
            ),
        ]
        indexes = [
            models.Index(fields=["source", "id"], condition=Q(done=False), name="part_open"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.start}-{self.stop}"


class SourceFile(models.Model):
    """What pins a file at its source: key, size, ETag, version.

    `pin` is a digest over these and the origin, "" where nothing would show a change; equal pins
    are equal bytes. `store_key` is where the bytes go. `sha256` is what the source's owner
    declared. `listing` is the number of the latest listing that found it so.
    """

    source = models.ForeignKey(Source, models.CASCADE, related_name="files")
    file = models.OneToOneField("staging.File", models.CASCADE, related_name="origin")
    part = models.ForeignKey(Part, models.SET_NULL, null=True, related_name="pack")
    key = models.CharField(max_length=KEY_LENGTH)
    size = models.BigIntegerField()
    etag = models.CharField(max_length=ETAG_LENGTH, blank=True)
    version = models.CharField(max_length=ETAG_LENGTH, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    pin = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=8, choices=SourceFileState, default=SourceFileState.OPEN)
    sentence = models.CharField(max_length=SENTENCE_LENGTH, blank=True)
    store_key = models.CharField(max_length=64)
    arrived = models.BigIntegerField(default=0, help_text="Bytes of its ranges that are on disk.")
    listing = models.PositiveIntegerField(default=1)

    class Meta:
        indexes = [
            models.Index(fields=["pin"], condition=~Q(pin=""), name="source_file_pin"),
            models.Index(
                fields=["source", "id"],
                condition=~Q(state=SourceFileState.DONE),
                name="source_file_open",
            ),
            models.Index(
                fields=["arrived"],
                condition=Q(arrived__gt=0) & ~Q(state=SourceFileState.DONE),
                name="source_file_begun",
            ),
        ]

    def __str__(self) -> str:
        return self.key


class PumpSeat(models.Model):
    """One of the places for workers that copy at the same time; free when the claim has passed.

    `air` has for each source what its worker has copied and nobody has written down yet: [files,
    bytes] by the source's key.
    """

    number = models.PositiveIntegerField(primary_key=True)
    claimed_until = models.DateTimeField()
    air = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"seat {self.number}"

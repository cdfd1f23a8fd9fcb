"""Links, the transfers over them, and what was said of each transfer when."""

from django.db import models
from django.db.models import Q

SUBJECT_LENGTH = 64


class LinkKind(models.TextChoices):
    """What moves over a link, and in which direction."""

    UPLOAD = "upload", "uploads of a team"
    S3 = "s3", "sync from S3"
    FOLDER = "folder", "sync from a server folder"
    URLS = "urls", "sync from a list of addresses"
    FETCH = "fetch", "data on its way to a node"
    OUTPUT = "output", "output on its way from a node"


class Link(models.Model):
    """A way that bytes take, with what was learned of its speed from its own history.

    `origin` and `target` are an endpoint, the code of a team or node, or the name of the store.
    `fit` and `errors` are those of `staging.estimates.pace`. `version` grows with each change: of
    two transfers that teach a link at the same moment one is left out, and nothing is mixed.
    """

    kind = models.CharField(max_length=8, choices=LinkKind)
    origin = models.CharField(max_length=300)
    target = models.CharField(max_length=300)
    fit = models.JSONField(default=list)
    errors = models.JSONField(default=dict)
    version = models.BigIntegerField(default=0)
    used_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "origin", "target"], name="one_link_a_way")
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.origin} to {self.target}"


class Transfer(models.Model):
    """One transfer over a link, as it was seen last. `subject` names what moves: a dataset on its
    way to the store, or the data or output of a lease.

    Counts never fall while it goes on, except where bytes that had come are sent again. `free_*` is
    what was there without being moved. `learned` is the transfer's memory (`pace.Track`). `p50_s`
    and `p90_s` are seconds from `seen_at`, null while they are not known.
    """

    link = models.ForeignKey(Link, models.CASCADE, related_name="transfers")
    subject = models.CharField(max_length=SUBJECT_LENGTH)
    files = models.BigIntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    files_done = models.BigIntegerField(default=0)
    bytes_done = models.BigIntegerField(default=0)
    bytes_free = models.BigIntegerField(default=0)
    bytes_recorded = models.BigIntegerField(
        default=0, help_text="Done, without what is in the air."
    )
    moving = models.BooleanField(
        default=True, help_text="It is not paused, nor waits to try again."
    )
    paused = models.BooleanField(default=False, help_text="It stood still by itself for a while.")
    began_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    moved_at = models.DateTimeField(help_text="Until then its time is learned from.")
    next_look_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    complete = models.BooleanField(default=False)
    rate = models.FloatField(null=True, help_text="Bytes a second.")
    p50_s = models.FloatField(null=True)
    p90_s = models.FloatField(null=True)
    learned = models.JSONField(default=dict)
    version = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["subject"], condition=Q(ended_at=None), name="one_transfer_a_subject"
            ),
            models.CheckConstraint(
                condition=Q(bytes_done__lte=models.F("bytes"), files_done__lte=models.F("files")),
                name="transfer_within_its_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["subject", "began_at"], name="transfer_subject"),
            models.Index(fields=["ended_at"], name="transfer_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.subject}: {self.bytes_done} of {self.bytes} bytes"


class Estimate(models.Model):
    """What was said of a transfer at one moment: with `Transfer.ended_at`, how right it was."""

    transfer = models.ForeignKey(Transfer, models.CASCADE, related_name="estimates")
    at = models.DateTimeField()
    files_left = models.BigIntegerField()
    bytes_left = models.BigIntegerField()
    rate = models.FloatField()
    p50_s = models.FloatField()
    p90_s = models.FloatField()

    class Meta:
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.p50_s:.0f} to {self.p90_s:.0f} s from {self.at}"

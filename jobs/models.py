"""Jobs with their four declarations (work, data, request, output), and the shards they run as."""

from datetime import timedelta

from django.db import models
from django.db.models import Q

from jobs.states import (
    JOB_MOVES,
    SHARD_MOVES,
    JobState,
    Outcome,
    Reason,
    ShardKind,
    ShardState,
)
from portal.base.codes import new_code
from portal.base.crypto import decrypt, encrypt
from portal.base.moves import REASON_LENGTH, STATE_LENGTH, Event, Stateful
from portal.teams.models import Team
from staging.models import Dataset

MAX_ATTEMPTS = 3
GIB = 2**30


class WorkKind(models.TextChoices):
    SCRIPT = "script", "A script"
    COMMAND = "command", "A command line"
    CODE = "code", "A folder or zip of code with its start command"


class Language(models.TextChoices):
    BASH = "bash", "Bash"
    PYTHON = "python", "Python"


class Runtime(models.TextChoices):
    NODE = "node", "The node's own Python and system tools, read-only"


class After(models.TextChoices):
    KEEP = "keep", "Keep"
    DELETE = "delete", "Delete after release"


class JobQuerySet(models.QuerySet["Job"]):
    def of_team(self, team: Team) -> "JobQuerySet":
        return self.filter(team=team)

    def live(self) -> "JobQuerySet":
        """Submitted and not ended."""
        return self.exclude(state__in=[JobState.DRAFT, JobState.ENDED])

    def ended(self) -> "JobQuerySet":
        return self.filter(state=JobState.ENDED)


class Job(Stateful):
    """What a team asked for, in four parts, and where it stands.

    Bytes are bytes, lengths of time are timedeltas. `parallel` is the most shards that may hold
    compute at once (null: no limit of its own). `draft` keeps a draft's form as it was typed.
    """

    MOVES = JOB_MOVES

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    team = models.ForeignKey(Team, models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=120)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    rerun_of = models.ForeignKey("self", models.PROTECT, null=True, related_name="reruns")
    draft = models.JSONField(default=dict, blank=True)
    form_key = models.CharField(
        max_length=20,
        blank=True,
        editable=False,
        help_text="The page it was declared on: one page makes one job, however often it is sent.",
    )

    state = models.CharField(max_length=STATE_LENGTH, choices=JobState, default=JobState.DRAFT)
    outcome = models.CharField(max_length=STATE_LENGTH, choices=Outcome, blank=True)
    reason = models.CharField(max_length=REASON_LENGTH, choices=Reason, blank=True)
    submitted_at = models.DateTimeField(null=True)
    queued_at = models.DateTimeField(null=True)
    active_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    cancel_asked_at = models.DateTimeField(null=True)
    cancel_asked_by = models.CharField(max_length=254, blank=True)
    version = models.BigIntegerField(default=0, help_text="Written by whoever counts its shards.")

    # Work
    work_kind = models.CharField(max_length=8, choices=WorkKind, default=WorkKind.SCRIPT)
    language = models.CharField(max_length=8, choices=Language, default=Language.PYTHON)
    script = models.TextField(blank=True)
    command = models.TextField(blank=True, help_text="The command line, or the code's start.")
    finish_command = models.TextField(blank=True)
    code_dataset = models.ForeignKey(Dataset, models.PROTECT, null=True, related_name="+")
    runtime = models.CharField(max_length=16, choices=Runtime, default=Runtime.NODE)

    # Request
    gpus = models.PositiveIntegerField(default=1, help_text="GPUs for each shard.")
    gpu_memory_bytes = models.BigIntegerField(default=0, help_text="Least memory of each GPU.")
    cpus = models.PositiveIntegerField(default=1)
    memory_bytes = models.BigIntegerField(default=GIB)
    scratch_bytes = models.BigIntegerField(default=GIB)
    time_limit = models.DurationField(default=timedelta(hours=1))
    shard_count = models.PositiveIntegerField(default=1)
    parallel = models.PositiveIntegerField(null=True, blank=True)
    needed_by = models.DateTimeField(null=True, blank=True)
    work_retries = models.PositiveIntegerField(default=0)
    finish_gpus = models.PositiveIntegerField(default=0)

    # Output
    output = models.OneToOneField(Dataset, models.PROTECT, null=True, related_name="written_by_job")
    output_keep_days = models.PositiveIntegerField(null=True, blank=True)
    output_limit_bytes = models.BigIntegerField(default=10 * GIB)
    keep_log = models.BooleanField(default=True)
    keep_code = models.BooleanField(default=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=JobState.values), name="job_state"),
            models.CheckConstraint(
                condition=Q(state=JobState.ENDED, ended_at__isnull=False) & ~Q(outcome="")
                | ~Q(state=JobState.ENDED) & Q(ended_at=None, outcome=""),
                name="job_outcome_when_ended",
            ),
            models.CheckConstraint(condition=Q(shard_count__gte=1), name="job_shard_count"),
            models.UniqueConstraint(
                fields=["team", "form_key"], condition=~Q(form_key=""), name="one_job_per_form"
            ),
            models.CheckConstraint(condition=Q(time_limit__gt=timedelta(0)), name="job_time_limit"),
        ]
        indexes = [models.Index(fields=["team", "state", "-created_at"])]

    def __str__(self) -> str:
        return self.name


class JobInput(models.Model):
    """An input of a job: a dataset or the part of it that `patterns` choose, at /data/<mount>.

    No patterns choose every file. With `split`, each shard gets its own part of the files;
    otherwise every shard gets all of them. `file_count` and `byte_count` are of the chosen part.
    """

    job = models.ForeignKey(Job, models.CASCADE, related_name="inputs")
    dataset = models.ForeignKey(Dataset, models.PROTECT, related_name="+")
    mount = models.CharField(max_length=100)
    patterns = models.JSONField(default=list, blank=True)
    split = models.BooleanField(default=False)
    after = models.CharField(max_length=8, choices=After, default=After.KEEP)
    file_count = models.BigIntegerField(default=0)
    byte_count = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["job", "mount"], name="one_input_per_mount")]

    def __str__(self) -> str:
        return self.mount


class OutputPath(models.Model):
    """What comes back from /output. Missing after exit 0: failed, unless optional."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="output_paths")
    pattern = models.CharField(max_length=500)
    optional = models.BooleanField(default=False)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.pattern


class Variable(models.Model):
    """An environment variable of the work. A secret's value is encrypted and never shown again."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="variables")
    name = models.CharField(max_length=128)
    secret = models.BooleanField(default=False)
    stored = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "name"], name="one_variable_per_name")
        ]

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: str) -> None:
        self.stored = encrypt(value) if self.secret else value

    def value_for_node(self) -> str:
        """The plain value; only the spec that a live lease's agent reads may carry it."""
        return decrypt(self.stored) if self.secret else self.stored


class ShardQuerySet(models.QuerySet["Shard"]):
    def live(self) -> "ShardQuerySet":
        return self.exclude(state=ShardState.ENDED)


class Shard(Stateful):
    """The elements that one lease runs, with its own part of the inputs.

    `attempts` counts leases that were granted; `faults` those of them that a node's fault ended,
    `work_failures` those that the work itself ended. `kept_lease` is the code of the attempt whose
    result counts.
    """

    MOVES = SHARD_MOVES

    job = models.ForeignKey(Job, models.CASCADE, related_name="shards")
    index = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=ShardKind, default=ShardKind.MAIN)
    state = models.CharField(max_length=STATE_LENGTH, choices=ShardState, default=ShardState.QUEUED)
    outcome = models.CharField(max_length=STATE_LENGTH, choices=Outcome, blank=True)
    reason = models.CharField(max_length=REASON_LENGTH, choices=Reason, blank=True)
    detail = models.CharField(max_length=500, blank=True)
    exit_code = models.IntegerField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    faults = models.PositiveIntegerField(default=0)
    quarantines = models.PositiveIntegerField(default=0)
    work_failures = models.PositiveIntegerField(default=0)
    kept_lease = models.CharField(max_length=16, blank=True)
    avoid_gpus = models.JSONField(default=list, blank=True)
    queued_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    input_files = models.BigIntegerField(default=0)
    input_bytes = models.BigIntegerField(default=0)
    output_files = models.BigIntegerField(default=0)
    output_bytes = models.BigIntegerField(default=0)
    log_bytes = models.BigIntegerField(default=0)

    objects = ShardQuerySet.as_manager()

    class Meta:
        ordering = ["kind", "index"]
        constraints = [
            models.UniqueConstraint(fields=["job", "kind", "index"], name="one_shard_per_index"),
            models.CheckConstraint(condition=Q(state__in=ShardState.values), name="shard_state"),
            models.CheckConstraint(
                condition=Q(state=ShardState.ENDED, ended_at__isnull=False) & ~Q(outcome="")
                | ~Q(state=ShardState.ENDED) & Q(ended_at=None, outcome=""),
                name="shard_outcome_when_ended",
            ),
        ]
        indexes = [models.Index(fields=["state", "queued_at"])]

    def __str__(self) -> str:
        return "finish" if self.kind == ShardKind.FINISH else str(self.index)

    @property
    def folder(self) -> str:
        """Where its files lie in the job's output; empty for a plain job of one shard."""
        if self.kind == ShardKind.FINISH:
            return "finish/"
        many = self.job.shard_count > 1 or bool(self.job.finish_command)
        return f"{self.index}/" if many else ""


class ShardPart(models.Model):
    """The run of an input's chosen files that a shard gets: those whose position in the staged
    dataset is start <= n < stop. A shard that gets none of an input has no part of it."""

    shard = models.ForeignKey(Shard, models.CASCADE, related_name="parts")
    input = models.ForeignKey(JobInput, models.CASCADE, related_name="+")
    start = models.BigIntegerField()
    stop = models.BigIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(start__lte=models.F("stop")), name="part_range")
        ]

    def __str__(self) -> str:
        return f"{self.start}-{self.stop}"


class JobEvent(Event):
    """A move or act of a job; those of its shards are ShardEvent rows."""

    subject = models.ForeignKey(Job, models.CASCADE, related_name="events")


class ShardEvent(Event):
    subject = models.ForeignKey(Shard, models.CASCADE, related_name="events")


class JobRecord(models.Model):
    """What a finished job leaves: slices of held time, digests, GPU ids, signed. Append-only."""

    job = models.OneToOneField(Job, models.PROTECT, related_name="record")
    body = models.JSONField()
    signature = models.CharField(max_length=120)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"record of {self.job}"

"""Nodes, their GPUs, leases on them, and the ledger of held time."""

from collections.abc import Iterable

from django.conf import settings
from django.db import models
from django.db.models import Exists, F, OuterRef, Q

from jobs.models import Shard
from jobs.states import ShardState
from nodes.states import (
    BEFORE_GRANT,
    LEASE_MOVES,
    LIVE,
    METERED,
    NODE_MOVES,
    TERMINAL,
    IncidentCause,
    IncidentState,
    LeaseReason,
    LeaseState,
    NodeState,
    OutputWaits,
)
from portal.base.codes import new_code
from portal.base.errors import DomainError
from portal.base.moves import REASON_LENGTH, STATE_LENGTH, Event, Stateful

NO_ISOLATION = "process"  # the runtime that runs work beside everything else of its user


class Installation(models.Model):
    """One row: which portal this is. Restoring a backup raises `epoch`, which fences old tokens."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.PositiveIntegerField(default=1)
    last_pass_at = models.DateTimeField(null=True)
    watched_at = models.DateTimeField(null=True, help_text="When silence was last looked at.")
    up_since = models.DateTimeField(null=True, help_text="Silence before this is the portal's own.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_installation")]

    def __str__(self) -> str:
        return f"epoch {self.epoch}"


class NodeQuerySet(models.QuerySet["Node"]):
    def taking_work(self) -> "NodeQuerySet":
        """The rule of `Node.takes_work`, as a condition of an update."""
        rows = self.filter(state=NodeState.ONLINE)
        return rows if settings.ALLOW_PROCESS_ISOLATION else rows.exclude(isolation=NO_ISOLATION)


class Node(Stateful):
    """A machine that runs leases. `reserved_*` is what its live leases were promised.

    `version` grows with every reservation: capacity changes by compare-and-swap on it.
    """

    MOVES = NODE_MOVES

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    name = models.CharField(max_length=60, unique=True)
    state = models.CharField(max_length=STATE_LENGTH, choices=NodeState, default=NodeState.PENDING)
    reason = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    simulated = models.BooleanField(default=False, help_text="Its GPUs are made up, for demos.")

    enrol_token_hash = models.CharField(max_length=64, blank=True)
    enrol_expires_at = models.DateTimeField(null=True, blank=True)
    credential_hash = models.CharField(max_length=64, blank=True, db_index=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    instance = models.CharField(max_length=64, blank=True, help_text="The agent process in charge.")
    sequence = models.BigIntegerField(default=0, help_text="The latest poll of that process.")
    boot = models.CharField(max_length=64, blank=True)
    agent_version = models.CharField(max_length=32, blank=True)
    last_seen_at = models.DateTimeField(null=True)
    facts = models.JSONField(default=dict, blank=True)
    isolation = models.CharField(max_length=16, blank=True)

    cpus = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    disk_bytes = models.BigIntegerField(default=0, help_text="Disk that leases may use.")
    reserved_cpus = models.PositiveIntegerField(default=0)
    reserved_memory_bytes = models.BigIntegerField(default=0)
    reserved_disk_bytes = models.BigIntegerField(default=0)
    version = models.BigIntegerField(default=0)

    objects = NodeQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=NodeState.values), name="node_state"),
            models.CheckConstraint(
                condition=Q(reserved_memory_bytes__gte=0, reserved_disk_bytes__gte=0),
                name="node_reserved_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def takes_work(self) -> bool:
        """Whether it may be given work: online, and with a sandbox unless settings allow none."""
        isolated = self.isolation != NO_ISOLATION or settings.ALLOW_PROCESS_ISOLATION
        return self.state == NodeState.ONLINE and isolated


class NodeEvent(Event):
    subject = models.ForeignKey(Node, models.CASCADE, related_name="events")


class Gpu(models.Model):
    """One GPU as NVML names it. A simulated one says so wherever it is shown."""

    node = models.ForeignKey(Node, models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=96, unique=True)
    index = models.PositiveIntegerField()
    model = models.CharField(max_length=120)
    memory_bytes = models.BigIntegerField()
    simulated = models.BooleanField(default=False)
    usable = models.BooleanField(default=True)
    reason = models.CharField(max_length=300, blank=True)
    present = models.BooleanField(default=True, help_text="In the agent's last report.")
    quarantined = models.BooleanField(default=False)

    class Meta:
        ordering = ["node", "index"]
        verbose_name = "GPU"

    def __str__(self) -> str:
        return f"GPU {self.index}, {self.model}"


class LeaseQuerySet(models.QuerySet["Lease"]):
    def live(self) -> "LeaseQuerySet":
        return self.filter(state__in=LIVE)

    def metered(self) -> "LeaseQuerySet":
        return self.filter(state__in=METERED)

    def unsettled(self) -> "LeaseQuerySet":
        """Leases that were allocated and have no ledger row yet: they go on, or are in doubt."""
        return self.filter(allocated_at__isnull=False, ledger=None)

    def behind(self) -> "LeaseQuerySet":
        """Leases that their node has begun without this portal's knowing: an operator decides."""
        same = Incident.objects.open().filter(lease=OuterRef("code"), node=OuterRef("node"))
        return self.filter(Exists(same), state__in=BEFORE_GRANT)

    def delivering(self) -> "LeaseQuerySet":
        """Released leases whose output is still on its way, as far as anybody knows."""
        return self.unsettled().filter(state=LeaseState.RELEASED, in_doubt=False)

    def awaited(self) -> "LeaseQuerySet":
        """Those of them whose piece waits for nothing but that output."""
        return self.delivering().filter(shard__state=ShardState.DELIVERING)


class Lease(Stateful):
    """One numbered attempt to run a shard on a node. `token` = epoch.number fences it.

    The `*_at` columns are the portal's clock; the meter is derived from them, never counted up.
    `ready_at` <= `granted_at` <= `allocated_at` <= `running_at` <= `returning_at` <=
    `releasing_at` <= `released_at` wherever they are set.
    """

    MOVES = LEASE_MOVES

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    shard = models.ForeignKey(Shard, models.PROTECT, related_name="leases")
    node = models.ForeignKey(Node, models.PROTECT, related_name="leases")
    epoch = models.PositiveIntegerField()
    number = models.PositiveIntegerField(help_text="Counts the leases of its shard from 1.")
    state = models.CharField(max_length=STATE_LENGTH, choices=LeaseState, default=LeaseState.PLACED)
    reason = models.CharField(max_length=REASON_LENGTH, choices=LeaseReason, blank=True)
    detail = models.CharField(max_length=500, blank=True)

    gpu_count = models.PositiveIntegerField()
    cpus = models.PositiveIntegerField()
    memory_bytes = models.BigIntegerField()
    disk_bytes = models.BigIntegerField()
    time_limit = models.DurationField()
    output_window = models.DurationField()
    cleared_gpus = models.JSONField(null=True, help_text="GPU uuids that plan() named for it.")

    placed_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True)
    granted_at = models.DateTimeField(null=True)
    allocated_at = models.DateTimeField(null=True)
    running_at = models.DateTimeField(null=True)
    returning_at = models.DateTimeField(null=True)
    releasing_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    last_report_at = models.DateTimeField(null=True)

    exit_code = models.IntegerField(null=True)
    work_reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    fetched_files = models.BigIntegerField(default=0)
    fetched_bytes = models.BigIntegerField(default=0)
    moved_bytes = models.BigIntegerField(
        default=0, help_text="Of the fetched bytes those that were not on the node already."
    )
    output_state = models.CharField(
        max_length=12,
        default="none",
        help_text="none, pending, delivering, sealed, delivered, refused, discarded",
    )
    output_waits = models.CharField(max_length=16, choices=OutputWaits, blank=True)
    output_verified_at = models.DateTimeField(null=True)
    evidence = models.JSONField(default=dict, blank=True)
    log_bytes = models.BigIntegerField(
        null=True, help_text="How long its log is, by the report of its release: it ends there."
    )
    in_doubt = models.BooleanField(
        default=False,
        help_text="Lost by silence, or released with its output still on a node that fell silent; "
        "its node has not said yet how far it is.",
    )

    objects = LeaseQuerySet.as_manager()

    class Meta:
        ordering = ["placed_at", "id"]
        verbose_name = "attempt"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=LeaseState.values), name="lease_state"),
            models.UniqueConstraint(
                fields=["shard"],
                condition=Q(state__in=sorted(LIVE)),
                name="one_live_lease_per_shard",
            ),
            models.UniqueConstraint(
                fields=["shard", "epoch", "number"], name="one_lease_per_number"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=False, state__in=sorted(TERMINAL))
                | Q(ended_at=None, state__in=sorted(LIVE)),
                name="lease_ended_when_terminal",
            ),
            models.CheckConstraint(
                condition=Q(in_doubt=False) | Q(state__in=[LeaseState.LOST, LeaseState.RELEASED]),
                name="lease_in_doubt_after_silence",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=sorted(METERED)) | Q(allocated_at__isnull=False),
                name="lease_metered_has_start",
            ),
            *[
                models.CheckConstraint(
                    condition=Q(**{f"{later}__isnull": True})
                    | Q(**{f"{earlier}__isnull": True})
                    | Q(**{f"{later}__gte": F(earlier)}),
                    name=f"lease_{later}_after_{earlier}",
                )
                for earlier, later in [
                    ("placed_at", "ready_at"),
                    ("ready_at", "granted_at"),
                    ("granted_at", "allocated_at"),
                    ("allocated_at", "running_at"),
                    ("running_at", "returning_at"),
                    ("returning_at", "releasing_at"),
                    ("releasing_at", "released_at"),
                ]
            ],
        ]
        indexes = [models.Index(fields=["node", "state"])]

    def __str__(self) -> str:
        return self.code

    @property
    def token(self) -> str:
        return f"{self.epoch}.{self.number}"

    @property
    def actor(self) -> str:
        """Who an event names when the lease's node has spoken."""
        return f"node {self.node.name}"


class LeaseEvent(Event):
    subject = models.ForeignKey(Lease, models.CASCADE, related_name="events")


class LeaseGpu(models.Model):
    """A GPU is held by a lease from `since` until `until`, which is written only on evidence."""

    lease = models.ForeignKey(Lease, models.PROTECT, related_name="gpus")
    gpu = models.ForeignKey(Gpu, models.PROTECT, related_name="leases")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["gpu"], condition=Q(until=None), name="one_holder_per_gpu"
            ),
            models.CheckConstraint(
                condition=Q(until=None) | Q(until__gte=F("since")), name="lease_gpu_order"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.gpu} by {self.lease}"


class IncidentQuerySet(models.QuerySet["Incident"]):
    def open(self) -> "IncidentQuerySet":
        return self.filter(state=IncidentState.OPEN)

    def blocking(self) -> "IncidentQuerySet":
        """Those that the node still lists and no lease of this portal stands for."""
        undone = (IncidentState.OPEN, IncidentState.ENDED)
        return self.filter(state__in=undone, gone_at=None)


class Incident(models.Model):
    """A lease that a node lists and this portal does not know, or knows as less far on.

    One row per node, lease and token. What the node said of it stands in `report`, as in its poll;
    `gpus` are the uuids that it uses, null where an older agent does not say.
    """

    node = models.ForeignKey(Node, models.CASCADE, related_name="incidents")
    lease = models.CharField("attempt", max_length=16, help_text="Its code.")
    token = models.CharField(max_length=20)
    cause = models.CharField(max_length=8, choices=IncidentCause)
    state = models.CharField(
        max_length=STATE_LENGTH, choices=IncidentState, default=IncidentState.OPEN
    )
    job = models.CharField(max_length=16, blank=True, help_text="Code of its job.")
    kind = models.CharField(max_length=8, blank=True)
    index = models.PositiveIntegerField(null=True)
    gpus = models.JSONField(null=True)
    phase = models.CharField(max_length=16)
    report = models.JSONField(default=dict)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, help_text="When the node listed it no more.")
    decided_by = models.CharField(max_length=254, blank=True)
    decided_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=300, blank=True)

    objects = IncidentQuerySet.as_manager()

    class Meta:
        ordering = ["-first_seen_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["node", "lease", "token"], name="one_incident_a_lease"),
            models.CheckConstraint(
                condition=Q(state__in=IncidentState.values), name="incident_state"
            ),
        ]

    def __str__(self) -> str:
        return self.lease

    def uses(self, uuid: str) -> bool:
        """Whether it may be on this GPU of its node."""
        if self.gpus is None:
            return self.phase not in ("fetching", "ready")
        return uuid in self.gpus


def using(incidents: Iterable[Incident], uuid: str) -> str:
    """The sentence why a GPU is kept for an incident; empty where it is not."""
    found = next((incident for incident in incidents if incident.uses(uuid)), None)
    if found is None:
        return ""
    return f"In use by attempt {found.lease}, which this portal does not know."


class LedgerRow(models.Model):
    """The held time of one lease, in whole milliseconds; written once, never changed.

    launch + run + output + release = held. `counted_ms` is what the team's hours are charged with;
    `uncounted_reason` says why the rest is not.
    """

    lease = models.OneToOneField(
        Lease, models.PROTECT, related_name="ledger", verbose_name="attempt"
    )
    gpus = models.PositiveIntegerField()
    allocated_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    launch_ms = models.BigIntegerField()
    run_ms = models.BigIntegerField()
    output_ms = models.BigIntegerField()
    release_ms = models.BigIntegerField()
    held_ms = models.BigIntegerField()
    counted_ms = models.BigIntegerField()
    uncounted_reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["allocated_at", "id"]
        verbose_name, verbose_name_plural = "row of the ledger", "rows of the ledger"
        constraints = [
            models.CheckConstraint(
                condition=Q(launch_ms__gte=0, run_ms__gte=0, output_ms__gte=0, release_ms__gte=0),
                name="ledger_slices_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(
                    held_ms=F("launch_ms") + F("run_ms") + F("output_ms") + F("release_ms")
                ),
                name="ledger_slices_add_up",
            ),
            models.CheckConstraint(
                condition=Q(counted_ms__gte=0) & Q(counted_ms__lte=F("held_ms")),
                name="ledger_counted_within_held",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.held_ms} ms of {self.lease}"

    def save(self, *args: object, **kwargs: object) -> None:
        if self.pk is not None:
            raise DomainError("A ledger row is never changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: object, **kwargs: object) -> tuple[int, dict[str, int]]:
        raise DomainError("A ledger row is never deleted.")


class SchedulerReason(models.Model):
    """Why a waiting shard waits, in numbers, and when it is predicted to start.

    A new row is added only when class, cause or time changed enough; the rows are the history.
    """

    shard = models.ForeignKey(Shard, models.CASCADE, related_name="waits")
    at = models.DateTimeField()
    cause = models.CharField(max_length=REASON_LENGTH)
    sentence = models.CharField(max_length=300)
    predicted_start = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return self.sentence

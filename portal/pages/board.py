"""The node board of operators: facts and sizes of nodes, never the contents of jobs."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Prefetch, Q

from nodes.meter import slices
from nodes.models import Gpu, Incident, Lease, LeaseGpu, Node, using
from nodes.states import LIVE, IncidentState, NodeState
from portal.base.words import in_words

HOURS = 24


@dataclass(frozen=True)
class GpuRow:
    """`state` is free, held or unusable; `reason` says why it cannot be used."""

    gpu: Gpu
    state: str
    reason: str


@dataclass(frozen=True)
class LeaseRow:
    lease: Lease
    held_ms: int


@dataclass(frozen=True)
class Bar:
    """One hour of a node: the share of its GPUs that leases held, 0 to 1."""

    hour: datetime
    share: float
    x: int

    @property
    def height(self) -> float:
        return round(self.share * 32, 1)

    @property
    def top(self) -> float:
        return round(32 - self.share * 32, 1)

    @property
    def percent(self) -> int:
        return round(self.share * 100)


@dataclass(frozen=True)
class Share:
    """Something that live leases have reserved, of what there is."""

    name: str
    used: int
    total: int
    unit: str


@dataclass(frozen=True)
class ModelCount:
    number: int
    model: str
    memory_bytes: int
    simulated: bool


@dataclass(frozen=True)
class NodeRow:
    node: Node
    contact: str
    gpus: list[GpuRow]
    leases: list[LeaseRow]
    bars: list[Bar]
    shares: list[Share]
    undecided: int = 0  # attempts that it lists and this portal does not know

    @property
    def urgency(self) -> int:
        """The place in the list: what waits for a person comes first, what is at rest last."""
        if self.undecided or self.node.state == NodeState.QUARANTINED:
            return 0
        if self.node.state in (NodeState.OFFLINE, NodeState.PENDING):
            return 1
        if self.node.state == NodeState.ONLINE:
            return 2 if self.unusable else 3
        return 4

    @property
    def models(self) -> list["ModelCount"]:
        """What its GPUs are, each kind once."""
        kinds = Counter((r.gpu.model, r.gpu.memory_bytes, r.gpu.simulated) for r in self.gpus)
        return [ModelCount(number, *kind) for kind, number in sorted(kinds.items())]

    def tally(self, state: str) -> int:
        return sum(row.state == state for row in self.gpus)

    @property
    def free(self) -> int:
        return self.tally("free")

    @property
    def held(self) -> int:
        return self.tally("held")

    @property
    def unusable(self) -> int:
        return self.tally("unusable")


def page_context(at: datetime) -> dict:
    """All nodes that are not history, in a number of queries that does not grow with them."""
    begun = at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    recent = LeaseGpu.objects.filter(Q(until=None) | Q(until__gt=begun))
    live = Lease.objects.filter(state__in=LIVE).select_related("shard__job__team")
    nodes = Node.objects.exclude(state=NodeState.RETIRED).prefetch_related(
        Prefetch("gpus", Gpu.objects.order_by("index")),
        Prefetch("gpus__leases", recent, to_attr="recent"),
        Prefetch("incidents", Incident.objects.blocking(), to_attr="blocking"),
        Prefetch("leases", live.order_by("placed_at"), to_attr="live"),
    )
    found = sorted((node_row(node, begun, at) for node in nodes), key=lambda row: row.urgency)
    return {
        "at": at,
        "rows": found,
        "free": sum(row.free for row in found),
        "held": sum(row.held for row in found),
        "unusable": sum(row.unusable for row in found),
        "retired": Node.objects.filter(state=NodeState.RETIRED).count(),
    }


def node_row(node: Node, begun: datetime, at: datetime) -> NodeRow:
    gpus = list(node.gpus.all())
    return NodeRow(
        node=node,
        contact=contact(node, at),
        gpus=[_gpu_row(node, gpu) for gpu in gpus],
        leases=[LeaseRow(x, slices(x, at).held_ms) for x in node.live],  # type: ignore[attr-defined]
        bars=utilization(gpus, begun, at) if gpus else [],
        shares=[
            Share("CPUs", node.reserved_cpus, node.cpus, ""),
            Share("Memory", node.reserved_memory_bytes, node.memory_bytes, "bytes"),
            Share("Disk", node.reserved_disk_bytes, node.disk_bytes, "bytes"),
        ],
        undecided=sum(row.state == IncidentState.OPEN for row in node.blocking),  # type: ignore[attr-defined]
    )


def contact(node: Node, at: datetime) -> str:
    """How long ago the node was heard of, in words."""
    if node.last_seen_at is None:
        return "Its agent has never reported."
    silence = max(timedelta(0), at - node.last_seen_at)
    if silence < timedelta(seconds=60):
        return f"In contact, {in_words(silence)} ago."
    return f"No contact for {in_words(silence)}. Work may still be running; nothing has been ended."


def _gpu_row(node: Node, gpu: Gpu) -> GpuRow:
    if any(row.until is None for row in gpu.recent):  # type: ignore[attr-defined]
        return GpuRow(gpu, "held", gpu.reason)
    if not gpu.present:
        return GpuRow(gpu, "unusable", gpu.reason or "Not in the agent's last report.")
    if gpu.quarantined or not gpu.usable:
        return GpuRow(gpu, "unusable", gpu.reason or "Quarantined.")
    if incident := using(node.blocking, gpu.uuid):  # type: ignore[attr-defined]
        return GpuRow(gpu, "unusable", incident)
    # Said once for the node, not for each of its GPUs.
    return GpuRow(gpu, "free" if node.state == NodeState.ONLINE else "unusable", "")


def utilization(gpus: list[Gpu], begun: datetime, at: datetime) -> list[Bar]:
    """For each of the last 24 hours, the share of GPU time that leases held."""
    bars = []
    for number in range(HOURS):
        start = begun + timedelta(hours=number)
        end = min(start + timedelta(hours=1), at)
        length = max((end - start).total_seconds(), 1) * len(gpus)
        held = sum(
            max(0.0, (min(row.until or at, end) - max(row.since, start)).total_seconds())
            for gpu in gpus
            for row in gpu.recent  # type: ignore[attr-defined]
        )
        bars.append(Bar(start, min(1.0, held / length), number * 10))
    return bars

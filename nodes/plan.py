"""Who gets which compute: a pure, deterministic function of what is waiting and what is there.

This version is first in, first out with first fit. It places a shard where its data can be
fetched (disk, no GPU), clears placed leases for named idle GPUs, and says why the rest waits.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

AHEAD_PER_GPU = 2  # leases placed ahead of a GPU that is still busy


@dataclass(frozen=True)
class GpuView:
    """A GPU that exists on a node; `holder` is the code of the lease that has it, or empty."""

    uuid: str
    memory_bytes: int
    usable: bool = True
    holder: str = ""


@dataclass(frozen=True)
class LeaseView:
    """A live lease. `ends_at` is the latest end that its declared hours allow, once granted.

    Its CPUs and memory are free again then, with its GPUs.
    """

    code: str
    shard: int
    state: str  # placed, ready, or holding
    ends_at: datetime | None = None
    cpus: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True)
class NodeView:
    """A node that takes new leases. Free amounts already lack what live leases were promised.

    CPUs and memory are promised with the grant, disk with the placement.
    """

    code: str
    gpus: tuple[GpuView, ...]
    cpus: int
    memory_bytes: int
    disk_bytes: int
    free_cpus: int
    free_memory_bytes: int
    free_disk_bytes: int
    leases: tuple[LeaseView, ...] = ()
    online: bool = True
    away: str = "not online"  # what it is where it is not online, in a word or two


@dataclass(frozen=True)
class ShardView:
    """A shard that has no compute yet, with what one lease of it needs.

    `order` sorts the queue. `job` groups shards for `parallel`, the most that may be live at once.
    """

    id: int
    job: str
    order: tuple
    gpus: int
    gpu_memory_bytes: int
    cpus: int
    memory_bytes: int
    disk_bytes: int
    hours: timedelta
    parallel: int | None = None
    holding: int = 0  # leases of the same job that are granted or later
    avoid_gpus: frozenset[str] = frozenset()
    reads: bool = True  # whether a node has data or code to fetch for it


@dataclass(frozen=True)
class Placement:
    """Where a shard's data is to be fetched; with `gpus` where idle compute is there for it now."""

    shard: int
    node: str
    gpus: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Clearance:
    lease: str
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Reservation:
    """The earliest start that declared hours allow for a shard that waits for GPUs of a node."""

    shard: int
    node: str
    at: datetime | None


@dataclass(frozen=True)
class Reason:
    shard: int
    cause: str
    sentence: str
    predicted_start: datetime | None = None


@dataclass
class Plan:
    placements: list[Placement] = field(default_factory=list)
    clearances: list[Clearance] = field(default_factory=list)
    voids: list[str] = field(default_factory=list)  # codes of leases that make way
    reservations: list[Reservation] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)


@dataclass(frozen=True)
class _End:
    """What becomes free again at a declared end."""

    at: datetime
    gpus: tuple[GpuView, ...]
    cpus: int
    memory_bytes: int


def _end_of(lease: LeaseView, node: NodeView) -> _End:
    gpus = tuple(g for g in node.gpus if g.holder == lease.code)
    return _End(lease.ends_at or datetime.max, gpus, lease.cpus, lease.memory_bytes)


class _Room:
    """What is still free on one node while the pass goes on."""

    def __init__(self, node: NodeView) -> None:
        self.node = node
        self.idle = [g for g in node.gpus if g.usable and not g.holder]
        self.cpus = node.free_cpus
        self.memory = node.free_memory_bytes
        self.disk = node.free_disk_bytes
        self.ahead = 0  # placed leases that got no clearance
        self.ends = [_end_of(lease, node) for lease in node.leases if lease.ends_at]
        self.blocked = False  # an earlier lease waits here, so later ones must not overtake it

    def fitting(self, shard: ShardView) -> list[GpuView] | None:
        """The idle GPUs that it would get now, smallest first; None where it does not fit."""
        if shard.cpus > self.cpus or shard.memory_bytes > self.memory:
            return None
        able = [g for g in self.idle if _suits(g, shard)]
        if len(able) < shard.gpus:
            return None
        return sorted(able, key=lambda g: (g.memory_bytes, g.uuid))[: shard.gpus]

    def take(self, shard: ShardView, gpus: Iterable[GpuView], now: datetime) -> None:
        """Promise compute to a shard; it is free again when its declared hours are over."""
        taken = tuple(gpus)
        self.idle = [g for g in self.idle if g not in taken]
        self.cpus -= shard.cpus
        self.memory -= shard.memory_bytes
        self.ends.append(_End(now + shard.hours, taken, shard.cpus, shard.memory_bytes))

    def may_place_ahead(self, shard: ShardView) -> bool:
        usable = sum(1 for g in self.node.gpus if g.usable)
        return self.ahead < AHEAD_PER_GPU * max(1, usable if shard.gpus else self.node.cpus)


@dataclass(frozen=True)
class _Place:
    """Where a waiting shard has a lease already, whether that still fetches, and whether this pass
    has promised it compute: that is no longer free, and it is this shard's own."""

    room: _Room | None
    fetching: bool
    promised: str = ""  # the code of the node


def _suits(gpu: GpuView, shard: ShardView) -> bool:
    return (
        gpu.usable
        and gpu.memory_bytes >= shard.gpu_memory_bytes
        and gpu.uuid not in shard.avoid_gpus
    )


def could_ever_run(node: NodeView, shard: ShardView) -> bool:
    """Whether the empty node would do."""
    return (
        sum(1 for g in node.gpus if _suits(g, shard)) >= shard.gpus
        and shard.cpus <= node.cpus
        and shard.memory_bytes <= node.memory_bytes
        and shard.disk_bytes <= node.disk_bytes
    )


def plan(now: datetime, shards: Sequence[ShardView], nodes: Sequence[NodeView]) -> Plan:
    """One scheduling pass over every waiting shard, placed or not, and every node.

    Nothing is written here: the caller applies the answer by compare-and-swap, and whatever has
    changed meanwhile simply fails and is planned again.
    """
    result = Plan()
    rooms = {n.code: _Room(n) for n in sorted(nodes, key=lambda n: n.code)}
    queue = sorted(shards, key=lambda s: (s.order, s.id))
    by_id = {s.id: s for s in queue}
    live = _live_by_job(queue)
    placed = _placed_leases(rooms, by_id)
    _clear(result, now, placed, by_id, live)
    waiting = [s for s in queue if s.id not in placed]
    for shard in waiting:
        _place(result, now, shard, rooms, live)
    cleared = {c.lease for c in result.clearances}
    chosen = {p.shard: p for p in result.placements}
    for shard in queue:
        room, lease = placed.get(shard.id, (None, None))
        if lease is not None and lease.code in cleared and lease.state == "ready":
            continue
        fetching = shard.id in chosen or (lease is not None and lease.state == "placed")
        promised = ""
        if room is not None and lease is not None and lease.code in cleared:
            promised = room.node.code
        elif (choice := chosen.get(shard.id)) and choice.gpus is not None:
            promised = choice.node
        _explain(result, now, shard, rooms, _Place(room, fetching, promised))
    return result


def _live_by_job(queue: Sequence[ShardView]) -> dict[str, int]:
    live: dict[str, int] = defaultdict(int)
    for shard in queue:
        live[shard.job] = max(live[shard.job], shard.holding)
    return live


def _placed_leases(
    rooms: dict[str, _Room], by_id: dict[int, ShardView]
) -> dict[int, tuple[_Room, LeaseView]]:
    return {
        lease.shard: (room, lease)
        for room in rooms.values()
        for lease in room.node.leases
        if lease.state in ("placed", "ready") and lease.shard in by_id
    }


def _allowed(shard: ShardView, live: dict[str, int]) -> bool:
    return shard.parallel is None or live[shard.job] < shard.parallel


def _clear(
    result: Plan,
    now: datetime,
    placed: dict[int, tuple[_Room, LeaseView]],
    by_id: dict[int, ShardView],
    live: dict[str, int],
) -> None:
    """Name idle GPUs for placed leases: those that are ready first, each in queue order.

    On one node a ready lease is never overtaken by a later one, so a large request is not starved
    by a stream of small ones. A lease that still fetches blocks nobody: compute never waits for
    data.
    """
    turn = sorted(
        placed.items(), key=lambda kv: (kv[1][1].state != "ready", by_id[kv[0]].order, kv[0])
    )
    for shard_id, (room, lease) in turn:
        shard = by_id[shard_id]
        gpus = None if room.blocked else room.fitting(shard)
        if gpus is None or not _allowed(shard, live) or not room.node.online:
            room.ahead += 1
            room.blocked |= lease.state == "ready" and _allowed(shard, live)
            continue
        room.take(shard, gpus, now)
        live[shard.job] += 1
        result.clearances.append(Clearance(lease.code, tuple(g.uuid for g in gpus)))


def _place(
    result: Plan, now: datetime, shard: ShardView, rooms: dict[str, _Room], live: dict[str, int]
) -> None:
    """Choose the node that fetches: one with idle compute now, tightest fit, else one ahead."""
    if not _allowed(shard, live):
        return
    able = [r for r in rooms.values() if r.node.online and could_ever_run(r.node, shard)]
    idle = [(r, g) for r in able if not r.blocked and (g := r.fitting(shard)) is not None]
    idle = [(r, g) for r, g in idle if r.disk >= shard.disk_bytes]
    if idle:
        room, gpus = min(idle, key=lambda rg: (len(rg[0].idle) - shard.gpus, rg[0].node.code))
        room.take(shard, gpus, now)
        live[shard.job] += 1
        named = tuple(g.uuid for g in gpus)
    else:
        named = None
        later = [r for r in able if r.disk >= shard.disk_bytes and r.may_place_ahead(shard)]
        if not later:
            return
        room = min(later, key=lambda r: (r.ahead, r.node.code))
        room.ahead += 1
    room.disk -= shard.disk_bytes
    result.placements.append(Placement(shard.id, room.node.code, named))


def _explain(
    result: Plan, now: datetime, shard: ShardView, rooms: dict[str, _Room], place: _Place
) -> None:
    """Say why a shard has no compute yet, in numbers, and when declared ends would let it start."""
    online = [r for r in rooms.values() if r.node.online]
    able = [place.room] if place.room else [r for r in online if could_ever_run(r.node, shard)]
    start, node = (now, place.promised) if place.promised else _earliest(now, shard, able)
    away = [r.node for r in rooms.values() if not r.node.online and could_ever_run(r.node, shard)]
    cause, sentence = _cause(shard, online, able, place, start)
    if cause in ("no_node", "no_fit"):
        sentence += _elsewhere(away)
    result.reasons.append(Reason(shard.id, cause, sentence, start))
    if node:
        result.reservations.append(Reservation(shard.id, node, start))


def _cause(
    shard: ShardView,
    online: Sequence[_Room],
    able: Sequence[_Room],
    place: _Place,
    start: datetime | None,
) -> tuple[str, str]:
    """The first of: fetching, no node, no fit, job's own limit, disk, compute."""
    if place.fetching:
        coming = "Its data is on its way to a node" if shard.reads else "A node gets ready for it"
        return "fetching", f"{coming}; no compute is held."
    if not online:
        return "no_node", "No node that takes work is online."
    if not able:
        return "no_fit", _fit_sentence(shard, [room.node for room in online])
    if shard.parallel is not None and shard.holding >= shard.parallel:
        return "parallel", f"At most {shard.parallel} pieces of this job hold compute at once."
    most_disk = max(r.disk for r in able)
    if place.room is None and most_disk < shard.disk_bytes:
        return "no_disk", (
            f"Needs {_gib(shard.disk_bytes)} of disk on a node; the most free is {_gib(most_disk)}."
        )
    return "waits_for_compute", _compute_sentence(shard, able, start)


def _fit_sentence(shard: ShardView, nodes: Sequence[NodeView]) -> str:
    """What even the empty nodes lack, in numbers: on the one that has most of the request."""
    able = {n.code: sum(1 for g in n.gpus if _suits(g, shard)) for n in nodes}
    node = max(nodes, key=lambda n: (able[n.code], n.cpus, n.memory_bytes, n.disk_bytes, n.code))
    short = []
    if able[node.code] < shard.gpus:
        of = f" of {_gib(shard.gpu_memory_bytes)}" if shard.gpu_memory_bytes else ""
        short.append((_count(shard.gpus, "GPU") + of, f"{able[node.code]}"))
    if node.cpus < shard.cpus:
        short.append((_count(shard.cpus, "CPU"), f"{node.cpus}"))
    if node.memory_bytes < shard.memory_bytes:
        short.append((f"{_gib(shard.memory_bytes)} of memory", _gib(node.memory_bytes)))
    if node.disk_bytes < shard.disk_bytes:
        short.append((f"{_gib(shard.disk_bytes)} of disk", _gib(node.disk_bytes)))
    needs = " and ".join(need for need, _ in short)
    has = " and ".join(all_of_it for _, all_of_it in short)
    return f"Needs {needs} on one node; the largest that is online has {has}."


def _elsewhere(nodes: Sequence[NodeView]) -> str:
    """Which nodes would do if they took work, by what keeps them from it."""
    counts = Counter(node.away for node in nodes)
    would = [f"{count} that {_is(count)} {away}" for away, count in sorted(counts.items())]
    return f" It would fit {' and '.join(would)}." if would else ""


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _compute_sentence(shard: ShardView, rooms: Sequence[_Room], start: datetime | None) -> str:
    """What is short, in numbers: on the node where most of the request is free."""
    until = f" until {start:%H:%M} UTC" if start else ""
    room = max(rooms, key=lambda r: (_free_gpus(r, shard), r.cpus, r.memory, r.node.code))
    short = []
    if (free := _free_gpus(room, shard)) < shard.gpus:
        short.append((_count(shard.gpus, "GPU"), f"{free}"))
    if room.cpus < shard.cpus:
        short.append((_count(shard.cpus, "CPU"), f"{max(0, room.cpus)}"))
    if room.memory < shard.memory_bytes:
        short.append((f"{_gib(shard.memory_bytes)} of memory", _gib(max(0, room.memory))))
    if not short:
        return "Earlier work on its node goes first."
    needs = " and ".join(need for need, _ in short)
    has = " and ".join(free for _, free in short)
    return f"Needs {needs} on one node; the most free is {has}{until}."


def _free_gpus(room: _Room, shard: ShardView) -> int:
    return sum(1 for g in room.idle if _suits(g, shard))


def _earliest(
    now: datetime, shard: ShardView, rooms: Sequence[_Room]
) -> tuple[datetime | None, str]:
    """When declared ends of what runs would free enough, on the node where that is first."""
    times = [(at, room.node.code) for room in rooms if (at := _free_at(now, shard, room))]
    return min(times) if times else (None, "")


def _free_at(now: datetime, shard: ShardView, room: _Room) -> datetime | None:
    """The declared end whose GPUs, CPUs and memory, with those before it, are enough."""
    gpus, cpus, memory = _free_gpus(room, shard), room.cpus, room.memory
    ends = sorted(room.ends, key=lambda end: end.at)
    for end in [_End(now, (), 0, 0), *ends]:
        gpus += sum(1 for g in end.gpus if _suits(g, shard))
        cpus += end.cpus
        memory += end.memory_bytes
        if gpus >= shard.gpus and cpus >= shard.cpus and memory >= shard.memory_bytes:
            return max(now, end.at)
    return None


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"

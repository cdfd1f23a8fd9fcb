"""plan() is pure: everything here is values in, values out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from nodes.plan import Clearance, GpuView, LeaseView, NodeView, Placement, ShardView, plan

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
GIB = 2**30


def shard(number: int, gpus: int = 1, **fields) -> ShardView:
    values = {
        "job": f"job{number}",
        "order": (number,),
        "gpu_memory_bytes": 0,
        "cpus": 1,
        "memory_bytes": GIB,
        "disk_bytes": GIB,
        "hours": timedelta(hours=1),
    } | fields
    return ShardView(id=number, gpus=gpus, **values)


def node(code: str = "a", gpus: int = 4, held: int = 0, **fields) -> NodeView:
    views = tuple(
        GpuView(f"{code}{i}", 24 * GIB, holder=f"held-{code}" if i < held else "")
        for i in range(gpus)
    )
    values = {
        "cpus": 16,
        "memory_bytes": 64 * GIB,
        "disk_bytes": 100 * GIB,
        "free_cpus": 16,
        "free_memory_bytes": 64 * GIB,
        "free_disk_bytes": 100 * GIB,
    } | fields
    return NodeView(code=code, gpus=views, **values)


def ready(code: str, number: int, state: str = "ready") -> LeaseView:
    return LeaseView(code, number, state)


def test_a_waiting_shard_is_placed_and_a_ready_lease_gets_named_gpus():
    answer = plan(NOW, [shard(1, gpus=2)], [node()])
    assert answer.placements == [Placement(1, "a", ("a0", "a1"))]
    assert answer.clearances == []
    answer = plan(NOW, [shard(1, gpus=2)], [node(leases=(ready("L", 1),))])
    assert answer.placements == []
    assert answer.clearances == [Clearance("L", ("a0", "a1"))]


def test_first_in_first_out():
    answer = plan(
        NOW,
        [shard(2, gpus=3), shard(1, gpus=2)],
        [node(leases=(ready("second", 2), ready("first", 1)))],
    )
    assert answer.clearances == [Clearance("first", ("a0", "a1"))]


def test_a_large_request_is_not_overtaken_on_its_node():
    """Q1: one 8-GPU lease under a stream of 1-GPU leases."""
    leases = (ready("large", 1), *(ready(f"small{n}", n) for n in range(2, 6)))
    held = (LeaseView("held-a", 99, "holding", NOW + timedelta(hours=2)),)
    busy = node(gpus=8, held=1, leases=leases + held)
    answer = plan(NOW, [shard(1, gpus=8), *(shard(n) for n in range(2, 6))], [busy])
    assert answer.clearances == []
    reason = next(r for r in answer.reasons if r.shard == 1)
    assert reason.predicted_start == NOW + timedelta(hours=2)
    assert reason.sentence == "Needs 8 GPUs on one node; the most free is 7 until 14:00 UTC."


def test_compute_never_waits_for_data():
    """A lease that still fetches does not keep GPUs from one that is ready."""
    waiting = node(gpus=1, leases=(ready("fetches", 1, "placed"), ready("ready", 2)))
    answer = plan(NOW, [shard(1), shard(2)], [waiting])
    assert answer.clearances == [Clearance("ready", ("a0",))]


def test_a_gpu_that_failed_this_shard_is_avoided():
    avoiding = shard(1, avoid_gpus=frozenset({"a0"}))
    answer = plan(NOW, [avoiding], [node(gpus=2, leases=(ready("L", 1),))])
    assert answer.clearances == [Clearance("L", ("a1",))]


def test_at_most_so_many_pieces_at_once():
    shards = [shard(n, job="j", parallel=2, holding=1) for n in range(1, 5)]
    answer = plan(NOW, shards, [node(gpus=8)])
    assert len(answer.placements) == 1
    full = [replace(s, holding=2) for s in shards]
    answer = plan(NOW, full, [node(gpus=8)])
    assert answer.placements == []
    assert answer.reasons[0].sentence == "At most 2 pieces of this job hold compute at once."


def test_too_little_disk_is_said_with_both_numbers():
    answer = plan(NOW, [shard(1, disk_bytes=50 * GIB)], [node(free_disk_bytes=20 * GIB)])
    assert answer.placements == []
    assert answer.reasons[0].sentence == (
        "Needs 50.0 GiB of disk on a node; the most free is 20.0 GiB."
    )


def test_only_two_leases_per_gpu_are_placed_ahead():
    answer = plan(NOW, [shard(n) for n in range(1, 9)], [node(gpus=1)])
    assert len(answer.placements) == 3  # one for the idle GPU, two ahead of it


def test_a_cpu_job_waits_for_cpus_in_words():
    answer = plan(NOW, [shard(1, gpus=0, cpus=8)], [node(gpus=0, free_cpus=2)])
    assert answer.placements == [Placement(1, "a")]  # ahead: its data can be fetched meanwhile
    held = node(gpus=0, free_cpus=2, leases=(ready("L", 1),))
    answer = plan(NOW, [shard(1, gpus=0, cpus=8)], [held])
    assert answer.clearances == []
    assert answer.reasons[0].sentence == "Needs 8 CPUs on one node; the most free is 2."


def test_what_is_short_is_named_and_nothing_else():
    """GPUs are idle and CPUs are not: the sentence is about CPUs."""
    held = node(gpus=8, free_cpus=0, leases=(ready("L", 1),))
    answer = plan(NOW, [shard(1)], [held])
    assert answer.reasons[0].sentence == "Needs 1 CPU on one node; the most free is 0."


def test_nodes_that_take_nothing_new_get_nothing():
    answer = plan(NOW, [shard(1)], [node(online=False)])
    assert answer.placements == []
    assert answer.reasons[0].cause == "no_node"
    answer = plan(NOW, [shard(1)], [node(online=False, leases=(ready("L", 1),))])
    assert answer.clearances == []


@st.composite
def situations(draw):
    """Random queues over random nodes, some shards already placed."""
    nodes = draw(st.integers(1, 3))
    queue = [
        shard(
            n,
            gpus=draw(st.integers(0, 5)),
            cpus=draw(st.integers(1, 8)),
            disk_bytes=draw(st.integers(0, 60)) * GIB,
            parallel=draw(st.none() | st.integers(1, 2)),
            job=f"job{draw(st.integers(0, 2))}",
        )
        for n in range(1, draw(st.integers(1, 9)))
    ]
    spots: dict[str, list[LeaseView]] = {"abc"[i]: [] for i in range(nodes)}
    for item in queue:
        where = draw(st.sampled_from(["", *spots]))
        if where:
            state = draw(st.sampled_from(["placed", "ready"]))
            spots[where].append(ready(f"L{item.id}", item.id, state))
    views = [
        node(
            code,
            gpus=(size := draw(st.integers(0, 5))),
            held=draw(st.integers(0, size)),
            free_cpus=draw(st.integers(0, 16)),
            free_disk_bytes=draw(st.integers(0, 100)) * GIB,
            online=draw(st.booleans()),
            leases=tuple(leases),
        )
        for code, leases in spots.items()
    ]
    return queue, views


def test_a_piece_without_data_waits_for_no_data():
    answer = plan(NOW, [shard(1, reads=False)], [node()])
    assert answer.reasons[0].sentence == "A node gets ready for it; no compute is held."
    answer = plan(NOW, [shard(1)], [node()])
    assert "data is on its way" in answer.reasons[0].sentence


def test_what_fits_no_node_is_said_in_numbers():
    small, large = node("a", gpus=2), node("b", gpus=3, cpus=4)
    reason = plan(NOW, [shard(1, gpus=4, cpus=8)], [small, large]).reasons[0]
    assert reason.cause == "no_fit"
    assert reason.sentence == (
        "Needs 4 GPUs and 8 CPUs on one node; the largest that is online has 3 and 4."
    )
    reason = plan(NOW, [shard(1, gpu_memory_bytes=40 * GIB)], [small]).reasons[0]
    assert reason.sentence.startswith("Needs 1 GPU of 40.0 GiB on one node; the largest")


def test_nodes_that_would_fit_and_take_no_work_are_said():
    drained = [node(code, online=False, away="drained") for code in "bc"]
    lost, small = node("d", online=False, away="offline"), node("e", gpus=1, online=False)
    reason = plan(NOW, [shard(1, gpus=2)], [node(gpus=0), *drained, lost, small]).reasons[0]
    assert reason.sentence == (
        "Needs 2 GPUs on one node; the largest that is online has 0. "
        "It would fit 2 that are drained and 1 that is offline."
    )
    reason = plan(NOW, [shard(1, gpus=2)], [lost]).reasons[0]
    assert reason.sentence == ("No node that takes work is online. It would fit 1 that is offline.")


def test_pieces_that_get_compute_in_this_pass_start_now():
    """Not when their own hours are over: what they were promised is no longer free."""
    fields = {"job": "j", "hours": timedelta(minutes=30)}
    idle = node(gpus=8, free_cpus=2)
    answer = plan(NOW, [shard(1, **fields), shard(2, **fields)], [idle])
    assert [r.predicted_start for r in answer.reasons] == [NOW, NOW]


@settings(max_examples=300, deadline=None)
@given(situations())
def test_what_this_pass_gives_compute_is_predicted_for_now(situation):
    queue, views = situation
    answer = plan(NOW, queue, views)
    cleared = {c.lease for c in answer.clearances}
    shards = {lease.shard for v in views for lease in v.leases if lease.code in cleared}
    shards |= {p.shard for p in answer.placements if p.gpus is not None}
    starts = {r.shard: r.predicted_start for r in answer.reasons}
    assert {starts[number] for number in shards if number in starts} <= {NOW}
    where = {p.shard: p.node for p in answer.placements if p.gpus is not None}
    assert all(r.node == where[r.shard] for r in answer.reservations if r.shard in where)


@settings(max_examples=300, deadline=None)
@given(situations())
def test_no_plan_promises_what_is_not_there(situation):
    queue, views = situation
    answer = plan(NOW, queue, views)
    shards = {s.id: s for s in queue}
    placed = {lease.shard for view in views for lease in view.leases}
    assert plan(NOW, list(reversed(queue)), list(reversed(views))) == answer  # deterministic
    assert not placed & {p.shard for p in answer.placements}
    assert len({p.shard for p in answer.placements}) == len(answer.placements)
    for view in views:
        here = {lease.code: shards[lease.shard] for lease in view.leases}
        given_out = [c for c in answer.clearances if c.lease in here]
        named = [uuid for c in given_out for uuid in c.gpus]
        idle = {g.uuid for g in view.gpus if g.usable and not g.holder}
        assert len(named) == len(set(named))
        assert set(named) <= idle
        assert all(len(c.gpus) == here[c.lease].gpus for c in given_out)
        assert sum(here[c.lease].cpus for c in given_out) <= max(0, view.free_cpus)
        disk = sum(shards[p.shard].disk_bytes for p in answer.placements if p.node == view.code)
        assert disk <= view.free_disk_bytes
        if not view.online:
            assert not given_out
            assert not [p for p in answer.placements if p.node == view.code]
    explained = {r.shard for r in answer.reasons}
    cleared = {
        lease.shard
        for v in views
        for lease in v.leases
        if lease.code in {c.lease for c in answer.clearances}
    }
    assert explained | cleared == set(shards)  # nobody waits without a reason


def test_what_was_promised_in_this_pass_counts_as_ending_after_its_hours():
    """Otherwise a predicted start is lost for one pass whenever another lease is cleared (Q3)."""
    busy = node(gpus=1, leases=(ready("first", 1), ready("second", 2)))
    answer = plan(NOW, [shard(1), shard(2)], [busy])
    waiting = next(r for r in answer.reasons if r.shard == 2)
    assert waiting.predicted_start == NOW + timedelta(hours=1)

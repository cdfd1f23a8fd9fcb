"""R4: a node is silent past the limit, its piece is leased again, and the node comes back."""

from datetime import timedelta

import pytest
from django.db.models import Sum

from jobs import services as jobs
from jobs.held import held_ms
from jobs.models import Job, JobRecord, Shard
from nodes import fleet, leases, returns, scheduler, watch
from nodes.errors import LeaseInDoubt
from nodes.models import Installation, Lease, LeaseGpu, LedgerRow, Node
from nodes.states import TERMINAL
from portal.base.clock import db_now
from portal.pages import attempts
from tests.factories import make_job, make_node
from tests.nodes.agent_model import ModelAgent, ModelLease

pytestmark = [pytest.mark.django_db, pytest.mark.db]

PLACES = ["none", "placed", "ready", "granted", "allocated", "running"]
FURTHER = ["returning", "delivering", "ended"]
FILE = {"path": "a.txt", "size": 3, "digest": "a" * 64}


@pytest.fixture
def job(team):
    return make_job(team)


@pytest.fixture
def one(job) -> ModelAgent:
    return ModelAgent(make_node("n1", gpus=1), 1)


def lease_of(agent: ModelAgent) -> Lease:
    return Lease.objects.filter(node=agent.node).latest("id")


def start(agent: ModelAgent) -> ModelLease:
    """The agent's lease runs."""
    for _ in range(10):
        scheduler.run_pass()
        agent.poll()
        for lease in agent.leases.values():
            if lease.phase == "running":
                agent.poll()
                return lease
            agent.advance(lease)
    raise AssertionError("It never ran.")


def silence(agent: ModelAgent) -> None:
    """The node's last word was an hour ago, while the portal was up."""
    then = db_now() - timedelta(hours=1)
    Node.objects.filter(pk=agent.node.pk).update(last_seen_at=then)
    Installation.objects.update(up_since=then, watched_at=db_now())
    watch.watch()


def finish(agent: ModelAgent, lease: ModelLease) -> None:
    """What happens on the node while nobody hears of it: the work ends, the output is sealed."""
    lease.exit = {"code": 0, "signal": None, "reason": "exited"}
    lease.output = "sealed"
    for phase in ("returning", "releasing", "released"):
        lease.go(phase)
    lease.evidence = agent.evidence(lease)


def begin_again(place: str) -> ModelAgent | None:
    """The second attempt, on a second node, as far as `place`."""
    if place == "none":
        return None
    agent = ModelAgent(make_node("n2", gpus=1), 1)
    scheduler.run_pass()
    agent.poll()
    if place == "placed":
        return agent
    lease = agent.leases[lease_of(agent).code]
    agent.advance(lease)
    if place == "ready":
        Lease.objects.filter(code=lease.code).update(cleared_gpus=None)
    agent.poll(heed=place not in ("ready", "granted"))
    while lease_of(agent).state != place and place in ("allocated", "running", "returning"):
        agent.poll()
        if lease_of(agent).state != place:
            agent.advance(lease)
    if place in ("delivering", "ended"):
        finish(agent, lease)
        agent.poll()
    if place == "ended":
        agent.deliver(lease)
    state = Shard.objects.get().state
    assert place in (lease_of(agent).state, state)
    return agent


def play(*agents: ModelAgent | None) -> None:
    """Everything goes on without trouble until nothing is left to do."""
    for _ in range(12):
        scheduler.run_pass()
        for agent in agents:
            if agent is None:
                continue
            agent.poll()
            for lease in list(agent.leases.values()):
                if lease.phase == "released" and lease.output == "sealed":
                    if lease.wanted == "release":
                        agent.deliver(lease)
                else:
                    agent.advance(lease)


def assert_one_result(kept: Lease) -> None:
    shard = Shard.objects.select_related("job").get()
    assert (shard.job.state, shard.outcome, shard.kept_lease) == ("ended", "succeeded", kept.code)
    record = JobRecord.objects.get()
    assert record.body["output"]["verified"]
    began = Lease.objects.exclude(allocated_at=None)
    rows = {row.lease_id: row for row in LedgerRow.objects.all()}
    assert set(rows) == set(began.values_list("pk", flat=True))
    counted = [row.lease.code for row in rows.values() if row.uncounted_reason == ""]
    assert counted == [kept.code]
    for row in rows.values():
        assert row.held_ms == row.launch_ms + row.run_ms + row.output_ms + row.release_ms
        assert row.lease_id == kept.pk or (row.counted_ms, row.uncounted_reason) == (0, "fenced")
    assert record.body["held_ms"] == sum(row.held_ms for row in rows.values())
    assert record.body["counted_ms"] == rows[kept.pk].counted_ms
    assert kept.events.filter(verb="output_verified").count() == 1
    assert not Lease.objects.filter(in_doubt=True).exists()
    assert not Lease.objects.exclude(state__in=TERMINAL).exists()
    assert not LeaseGpu.objects.filter(until=None).exists()
    for node in Node.objects.all():
        reserved = (node.reserved_cpus, node.reserved_memory_bytes, node.reserved_disk_bytes)
        assert reserved == (0, 0, 0)


@pytest.mark.parametrize("place", PLACES + FURTHER)
@pytest.mark.parametrize("came_back", ["running", "finished"])
def test_the_attempt_that_is_further_on_is_kept(job, one, came_back, place):
    lease = start(one)
    silence(one)
    first = lease_of(one)
    assert (first.state, first.in_doubt) == ("lost", True)
    assert not LedgerRow.objects.exists()
    assert LeaseGpu.objects.filter(until=None).count() == 1
    two = begin_again(place)
    if came_back == "finished":
        finish(one, lease)
    answer = one.poll()["leases"]
    first.refresh_from_db()
    wins = place in PLACES
    assert (first.state in TERMINAL - {"released"}) != wins
    if not wins:
        assert [item["wanted"] for item in answer if item["lease"] == first.code] == ["drop"]
    shard = Shard.objects.get()
    assert shard.faults == int(not wins)
    assert shard.leases.live().count() <= 1
    play(one, two)
    kept = first if wins else lease_of(two)
    assert_one_result(Lease.objects.get(pk=kept.pk))
    if two is not None and wins:
        other = lease_of(two)
        assert other.reason == "fenced"
        assert other.state == ("void" if place in ("placed", "ready", "granted") else "lost")


@pytest.mark.parametrize("place", PLACES + FURTHER)
def test_a_sealed_output_whose_node_falls_silent(job, one, place):
    """The compute was released; the node is silent before the output has arrived."""
    finish(one, start(one))
    one.poll()
    first = lease_of(one)
    assert (first.state, Shard.objects.get().state) == ("released", "delivering")
    held = held_ms([job])
    silence(one)
    first.refresh_from_db()
    assert (first.in_doubt, first.reason, Shard.objects.get().state) == (True, "silent", "queued")
    assert held_ms([job]) == held
    two = begin_again(place)
    one.poll()
    play(one, two)
    assert_one_result(Lease.objects.get(pk=first.pk) if place in PLACES else lease_of(two))


def on_its_page(job: Job) -> int:
    return attempts.held_of(job, attempts.live_of(job), db_now()).meter.held_ms


def test_held_time_is_the_same_before_and_after_its_row_is_written(job, one):
    start(one)
    before = held_ms([job])[job.pk]
    silence(one)
    lost = held_ms([job])[job.pk]
    assert 0 < lost <= before
    assert on_its_page(job) == lost
    one.leases.clear()
    one.poll()
    assert on_its_page(job) == lost
    assert LedgerRow.objects.aggregate(held=Sum("held_ms"))["held"] == lost
    assert held_ms([job])[job.pk] == lost


@pytest.mark.parametrize("place", ["none", "running"])
def test_a_node_that_comes_back_without_the_attempt(job, one, place):
    start(one)
    silence(one)
    two = begin_again(place)
    one.leases.clear()
    one.poll()
    row = LedgerRow.objects.get()
    assert (row.lease, row.counted_ms, row.uncounted_reason) == (lease_of(one), 0, "silent")
    assert not LeaseGpu.objects.filter(until=None, lease=row.lease).exists()
    play(two or one)
    assert Shard.objects.get().outcome == "succeeded"
    assert LedgerRow.objects.filter(uncounted_reason="").count() == 1


@pytest.mark.parametrize("place", ["none", "running"])
def test_an_attempt_that_a_fault_of_its_node_ended_is_not_kept(job, one, place):
    lease = start(one)
    silence(one)
    two = begin_again(place)
    one.fail(lease, "node_rebooted")
    answer = one.poll(heed=False)
    assert [item["wanted"] for item in answer["leases"] if item["lease"] == lease.code] == ["drop"]
    assert lease_of(one).state == "lost"
    assert LedgerRow.objects.get().counted_ms == 0
    assert (two is None) == (Shard.objects.get().state == "queued")


def test_a_grant_that_began_in_the_silence_is_kept_and_metered_from_its_begin(job, one):
    """The grant was answered; the acknowledgement never came through."""
    scheduler.run_pass()
    one.poll()
    lease = one.leases[lease_of(one).code]
    one.advance(lease)
    one.poll()
    assert (lease.phase, lease_of(one).state) == ("allocated", "granted")
    silence(one)
    assert (lease_of(one).state, lease_of(one).in_doubt) == ("lost", True)
    one.advance(lease)
    one.poll()
    assert lease_of(one).state == "running"
    play(one)
    assert_one_result(lease_of(one))


def test_of_two_lost_attempts_that_run_the_earlier_is_kept(job, one):
    start(one)
    silence(one)
    two = begin_again("running")
    silence(two)
    assert Lease.objects.filter(in_doubt=True).count() == 2
    two.poll()
    assert lease_of(two).state == "running"
    assert Shard.objects.get().faults == 1
    one.poll()
    assert lease_of(one).state == "running"
    assert (lease_of(two).state, lease_of(two).reason) == ("lost", "fenced")
    assert Shard.objects.get().faults == 0
    play(one, two)
    assert_one_result(lease_of(one))


def test_a_cancel_while_in_doubt_ends_the_piece_and_the_attempt(job, one):
    lease = start(one)
    silence(one)
    jobs.cancel(job=job, actor="owner")
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "cancelled")
    assert JobRecord.objects.get().body["held_ms"] == LedgerRow.objects.get().held_ms
    assert [i["wanted"] for i in one.poll()["leases"] if i["lease"] == lease.code] == ["drop"]


def test_a_job_that_is_being_cancelled_keeps_no_other_attempt(job, one):
    start(one)
    silence(one)
    two = begin_again("running")
    jobs.cancel(job=job, actor="owner")
    one.poll()
    assert lease_of(one).state == "lost"
    play(one, two)
    job.refresh_from_db()
    assert job.outcome == "cancelled"


def test_a_cancel_while_the_output_is_on_its_way_ends_the_piece_at_once(job, one):
    lease = start(one)
    finish(one, lease)
    one.poll()
    returns.declare_output(lease=lease_of(one), files=[FILE])
    jobs.cancel(job=job, actor="owner")
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "cancelled")
    assert LedgerRow.objects.get().uncounted_reason == ""
    assert not job.output.files.exists()
    one.poll()
    assert lease.code not in one.leases  # forgotten, and the sealed output with it


def test_an_output_that_is_lost_on_its_node_is_worked_for_again(job, one):
    start(one)
    finish(one, next(iter(one.leases.values())))
    one.poll()
    one.leases.clear()
    one.poll()
    first = Lease.objects.get()
    assert (first.reason, Shard.objects.get().state) == ("output_lost", "queued")
    assert LedgerRow.objects.get().uncounted_reason == "output_lost"
    play(one)
    assert Shard.objects.get().outcome == "succeeded"
    assert LedgerRow.objects.filter(uncounted_reason="").count() == 1


@pytest.mark.parametrize("verb", ["retire", "revoke"])
@pytest.mark.parametrize("delivering", [False, True])
def test_what_a_node_kept_goes_with_it(job, one, verb, delivering):
    lease = start(one)
    if delivering:
        finish(one, lease)
        one.poll()
    if not delivering or verb == "retire":
        silence(one)
    getattr(fleet, verb)(node=Node.objects.get(), actor="operator", reason="broken")
    assert LedgerRow.objects.get().counted_ms == 0
    assert not Lease.objects.filter(in_doubt=True).exists()
    assert Shard.objects.get().state == "queued"


def test_a_lost_attempt_whose_output_is_verified_is_the_result(job, one):
    lease = start(one)
    one.advance(lease)
    one.poll()
    one.deliver(lease)
    one.poll()
    assert lease_of(one).state == "returning"
    silence(one)
    first = lease_of(one)
    assert (first.state, first.reason, first.in_doubt) == ("lost", "exited", False)
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "succeeded")
    row = LedgerRow.objects.get()
    assert (row.ended_at, row.uncounted_reason) == (first.last_report_at, "")
    assert row.counted_ms == row.held_ms


def test_files_in_doubt_make_way_when_another_attempt_is_granted(job, one):
    start(one)
    first = lease_of(one)
    returns.declare_output(lease=first, files=[FILE])
    silence(one)
    with pytest.raises(LeaseInDoubt):
        returns.declare_output(lease=first, files=[FILE])
    two = begin_again("placed")
    assert job.output.files.count() == 1
    two.advance(two.leases[lease_of(two).code])
    two.poll()
    assert not job.output.files.exists()
    one.poll()
    assert lease_of(one).state == "running"
    assert returns.declare_output(lease=lease_of(one), files=[FILE])[0]["state"] == "send"


def test_the_attempts_used_up_by_silence_end_the_piece(job, one):
    for _ in range(3):
        start(one)
        silence(one)
        Lease.objects.filter(in_doubt=True).first()
        LeaseGpu.objects.update(until=db_now())
        one.leases.clear()
        Node.objects.update(last_seen_at=db_now(), state="online")
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "lost")
    assert LedgerRow.objects.count() == 3
    assert not LedgerRow.objects.exclude(uncounted_reason="silent").exists()


def test_a_kept_attempt_may_be_lost_again(job, one):
    start(one)
    for _ in range(2):
        silence(one)
        assert lease_of(one).in_doubt
        one.poll()
        assert (lease_of(one).state, lease_of(one).reason) == ("running", "")
    assert Shard.objects.get().faults == 0
    play(one)
    assert_one_result(lease_of(one))
    assert leases.LeaseReason.SILENT not in Lease.objects.values_list("reason", flat=True)


def test_the_gpus_of_a_node_that_died_are_free_under_its_new_name(job, one):
    start(one)
    silence(one)
    fleet.retire(node=Node.objects.get(), actor="op", reason="installed anew")
    two = ModelAgent(make_node("n2"), 0)
    gpus = one.body()["facts"]["gpus"]
    used = {"processes": [{"pid": 1, "user": "work", "since_ms": 0}]}

    def report(gpus: list[dict]) -> None:
        body = two.body()
        body["facts"]["gpus"] = gpus
        two.poll(body)

    report([gpus[0] | used, *gpus[1:]])
    assert LeaseGpu.objects.filter(until=None).count() == 1
    report(gpus)
    assert not LeaseGpu.objects.filter(until=None).exists()


def test_an_output_that_the_node_no_longer_has_is_worked_for_again(job, one):
    """The portal was restored from a dump of the time before the output came."""
    lease = start(one)
    finish(one, lease)
    one.poll()
    lease.output = "delivered"
    one.poll()
    assert (lease_of(one).reason, Shard.objects.get().state) == ("output_lost", "queued")
    assert LedgerRow.objects.get().uncounted_reason == "output_lost"
    one.poll()
    play(one)
    assert Shard.objects.get().outcome == "succeeded"

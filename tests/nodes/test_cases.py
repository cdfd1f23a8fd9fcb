"""Cases of the portal's side of leases, each named by what must happen."""

import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.db import IntegrityError
from django.urls import reverse

from jobs import services as jobs
from jobs.held import held_ms
from jobs.models import JobRecord, Shard
from nodes import fleet, polls, scheduler, watch
from nodes.meter import slices
from nodes.models import Gpu, Installation, Lease, LeaseGpu, LedgerRow, Node
from portal.base.clock import db_now
from portal.base.errors import Conflict, Stale
from portal.pages.attempts import left_of
from tests.factories import make_job, make_node
from tests.nodes.agent_model import ModelAgent, time_passes

pytestmark = [pytest.mark.django_db, pytest.mark.db]
ask_portal = watch.portal_answers  # tests answer in its place
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def node():
    return make_node("n1", gpus=2)


@pytest.fixture
def agent(node):
    return ModelAgent(node, 2)


@pytest.fixture
def job(team, node):
    return make_job(team)


def drive(agent: ModelAgent, phase: str, exit_code: int = 0):
    """Go on until the one lease of the agent is in `phase`, telling the portal each step."""
    for _ in range(20):
        scheduler.run_pass()
        agent.poll()
        lease = next(iter(agent.leases.values()), None)
        if lease is None:
            continue
        if lease.phase == phase:
            agent.poll()
            return lease
        agent.advance(lease, exit_code=exit_code)
    raise AssertionError(f"The lease never came to {phase}.")


def the_lease() -> Lease:
    return Lease.objects.latest("id")


def silence(length: timedelta) -> None:
    """The node's last word was that long ago, while the portal was up."""
    then = db_now() - length
    Node.objects.update(last_seen_at=then)
    Installation.objects.update(up_since=then, watched_at=db_now())


PHASES = ["fetching", "ready", "allocated", "running", "returning", "releasing"]


@pytest.mark.parametrize("phase", PHASES)
def test_nothing_is_metered_before_the_acknowledgement(job, agent, phase):
    """S1: GPU-seconds allocated are 0 until everything is on the node."""
    drive(agent, phase) if phase not in ("fetching", "ready") else agent.poll()
    before = the_lease() if Lease.objects.exists() else None
    if phase in ("fetching", "ready") or before is None:
        assert not LeaseGpu.objects.exists()
        assert not Lease.objects.exclude(allocated_at=None).exists()
    else:
        assert before.allocated_at >= before.granted_at >= before.ready_at


@pytest.mark.parametrize("phase", PHASES)
def test_cancel_in_every_state_ends_cancelled_once(job, agent, phase):
    """R1: nothing is left behind, and the meter is right."""
    if phase in ("fetching", "ready"):
        scheduler.run_pass()
        agent.poll()
        if phase == "ready":
            agent.leases[the_lease().code].go("ready")
    else:
        drive(agent, phase)
    jobs.cancel(job=job, actor="owner")
    for _ in range(4):
        agent.poll()
        for lease in list(agent.leases.values()):
            agent.advance(lease)
    agent.poll()
    job.refresh_from_db()
    assert job.state == "ended"
    delivered = phase == "releasing"  # its work had ended and its output had arrived by itself
    assert job.outcome == ("succeeded" if delivered else "cancelled")
    assert JobRecord.objects.filter(job=job).count() == 1
    assert not LeaseGpu.objects.filter(until=None).exists()
    assert not agent.leases
    metered = phase not in ("fetching", "ready")
    assert LedgerRow.objects.count() == int(metered)
    node = Node.objects.get()
    assert (node.reserved_cpus, node.reserved_disk_bytes) == (0, 0)


def test_a_grant_that_is_never_acknowledged_costs_nothing(job, agent, settings):
    scheduler.run_pass()
    agent.poll()
    agent.leases[the_lease().code].go("ready")
    scheduler.run_pass()
    agent.poll(heed=False)
    assert the_lease().state == "granted"
    silence(settings.SILENCE_LIMIT + MINUTE)
    watch.watch()
    assert (the_lease().state, the_lease().reason) == ("lost", "silent")
    assert not LedgerRow.objects.exists()
    assert Shard.objects.get().state == "queued"


def test_a_node_that_will_not_start_is_told_to_stop(job, agent, settings):
    """In contact, granted, and still not started after the limit."""
    scheduler.run_pass()
    agent.poll()
    lease = agent.leases[the_lease().code]
    lease.go("ready")
    scheduler.run_pass()
    agent.poll(heed=False)
    late = db_now() - settings.GRANT_LIMIT - MINUTE
    Lease.objects.update(granted_at=late, ready_at=late, placed_at=late)
    agent.poll()
    assert lease.phase == "released"
    agent.poll()
    assert (the_lease().state, the_lease().reason) == ("void", "not_acknowledged")
    assert not LeaseGpu.objects.filter(until=None).exists()
    assert not LedgerRow.objects.exists()


def test_a_silent_node_keeps_its_gpus_until_it_proves_them_free(job, agent, settings):
    """Invariant 1: until is written only on evidence."""
    lease = drive(agent, "running")
    silence(settings.SILENCE_LIMIT + MINUTE)
    watch.watch()
    assert the_lease().state == "lost"
    assert LeaseGpu.objects.filter(until=None).count() == 1
    assert not LedgerRow.objects.exists()  # in doubt
    lease.fault = {"code": "node_rebooted", "detail": "test"}
    answer = agent.poll(heed=False)
    row = LedgerRow.objects.get()
    assert (row.counted_ms, row.uncounted_reason) == (0, "silent")
    assert {i["lease"]: i["wanted"] for i in answer["leases"]}[lease.code] == "drop"
    assert LeaseGpu.objects.filter(until=None).count() == 1  # it still lists the lease
    agent.poll()
    agent.poll()
    assert not LeaseGpu.objects.filter(until=None).exists()


def test_the_portals_own_down_time_is_nobodys_silence(job, agent, settings):
    """R10: two hours away in the middle of a lease; nothing stops, nothing extra is metered."""
    drive(agent, "running")
    away = db_now() - 2 * HOUR
    Node.objects.update(last_seen_at=away)
    Installation.objects.update(up_since=away - HOUR, watched_at=away)
    watch.watch()
    assert the_lease().state == "running"
    assert Node.objects.get().state == "online"
    agent.advance(next(iter(agent.leases.values())))
    agent.poll()
    assert the_lease().state == "returning"


def test_pages_that_are_down_are_nobodys_silence(job, agent, settings, monkeypatch):
    """R10: the worker runs on and no agent can reach the portal; afterwards silence counts anew."""
    drive(agent, "running")
    silence(settings.SILENCE_LIMIT + MINUTE)
    monkeypatch.setattr(watch, "portal_answers", lambda: False)
    watch.watch()
    assert the_lease().state == "running"
    monkeypatch.setattr(watch, "portal_answers", lambda: True)
    watch.watch()
    assert the_lease().state == "running"
    assert Node.objects.get().state == "online"
    silence(settings.SILENCE_LIMIT + MINUTE)
    watch.watch()
    assert the_lease().state == "lost"


@pytest.mark.parametrize(
    ("status", "answers"), [(200, True), (403, True), (502, False), (0, False)]
)
def test_whether_the_portal_answers_is_asked_where_agents_ask(settings, status, answers):
    class Portal(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Portal) as server:
        settings.PUBLIC_URL = f"http://127.0.0.1:{server.server_port}"
        if status:
            threading.Thread(target=server.handle_request, daemon=True).start()
        else:
            server.server_close()
        assert ask_portal() is answers


def test_an_outage_lengthens_no_slice(job, agent):
    """What happened on the node is dated by its age, not by when the portal heard of it."""
    lease = drive(agent, "running")
    for minutes in (20, 5, 5, 30):
        time_passes(minutes * MINUTE)
        agent.advance(lease)
    agent.poll()
    row = LedgerRow.objects.get()
    minutes = [round(ms / 60_000) for ms in (row.run_ms, row.output_ms, row.release_ms)]
    assert minutes == [20, 5, 5]


@pytest.mark.parametrize("age", [0, 5 * 60_000, 10**10])
def test_a_nodes_clock_lengthens_nothing(job, agent, age):
    """M1: ages from a clock that is off are placed between the step before and now."""
    drive(agent, "allocated")
    lease = next(iter(agent.leases.values()))
    for _ in range(4):
        agent.advance(lease)
        agent.poll(agent.body(age))
    row = LedgerRow.objects.get()
    assert 0 <= row.held_ms < 60_000
    assert row.held_ms == row.launch_ms + row.run_ms + row.output_ms + row.release_ms


def test_a_restored_portal_stops_nothing(job, agent):
    """R11: leases that this portal does not know are kept as they are."""
    lease = drive(agent, "running")
    LeaseGpu.objects.all().delete()
    Lease.objects.all().delete()
    answer = agent.poll()
    assert [i["wanted"] for i in answer["leases"]] == ["keep"]
    assert agent.leases[lease.code].phase == "running"


def test_messages_that_arrive_twice_change_nothing_more(job, agent):
    """R7: one lease, one run, one record."""
    lease = drive(agent, "releasing")
    lease.go("released")
    lease.evidence = agent.evidence(lease)
    body = agent.body()
    agent.poll(body, heed=False)
    with pytest.raises(polls.StalePoll):
        agent.poll(body)
    for _ in range(2):
        agent.poll(heed=False)  # its answer got lost: it says the same again
    assert LedgerRow.objects.count() == JobRecord.objects.count() == 1
    assert Shard.objects.get().outcome == "succeeded"


def test_the_store_away_at_the_end_of_the_run(job, agent):
    """O1, O4: sealed, released and not metered while it waits; delivered once, then succeeded."""
    lease = drive(agent, "running")
    lease.exit = {"code": 0, "signal": None, "reason": "exited"}
    lease.output = "sealed"
    for phase in ("returning", "releasing", "released"):
        lease.go(phase)
    lease.evidence = agent.evidence(lease)
    agent.poll()
    job.refresh_from_db()
    shard = Shard.objects.get()
    assert (the_lease().state, shard.state, job.state) == ("released", "delivering", "active")
    held = slices(the_lease(), db_now()).held_ms
    assert held_ms([job]) == {job.pk: held}
    assert not LedgerRow.objects.exists()  # whether it counts is not known yet
    assert not LeaseGpu.objects.filter(until=None).exists()
    assert agent.leases[lease.code].wanted == "release"
    fleet.drain(node=agent.node, actor="operator")
    assert Node.objects.get().state == "draining"  # the output is not here yet
    with pytest.raises(Conflict, match="An output is still on its way"):
        fleet.retire(node=Node.objects.get(), actor="operator")
    agent.deliver(lease)
    assert Node.objects.get().state == "draining"
    agent.poll()
    assert Node.objects.get().state == "drained"
    shard.refresh_from_db()
    assert (shard.state, shard.outcome) == ("ended", "succeeded")
    assert LedgerRow.objects.get().held_ms == held
    agent.poll()
    assert lease.code not in agent.leases  # forgotten: the node may delete the sealed output


def test_a_cancel_that_comes_after_the_last_byte_keeps_the_result(job, agent, owner_client):
    """R1: the node discards what it had; what is said of it is what became of it."""
    lease = drive(agent, "returning")
    agent.deliver(lease)
    lease.output = "delivering"  # the answer to its last request is on its way
    jobs.cancel(job=job, actor="owner@climate.example")
    agent.poll()
    assert (lease.phase, lease.output) == ("releasing", "discarded")
    agent.advance(lease)
    for _ in range(2):  # said again, as the answer was lost
        agent.poll(heed=False)
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "succeeded")
    row = the_lease()
    assert (row.output_state, row.evidence["output"]) == ("delivered", "delivered")
    assert JobRecord.objects.get().body["shards"][0]["leases"][0]["evidence"] == row.evidence
    page = owner_client.get(reverse("job", args=[job.code])).content.decode()
    assert "The result was already complete when the cancel came to its node" in page


@pytest.mark.parametrize(
    ("waits", "sentence"),
    [
        (None, "it did not arrive within the output window."),
        ("store_full", "the portal&#x27;s store has no room for it."),
        ("store_away", "the portal&#x27;s store cannot be written."),
        ("unreachable", "the portal could not be reached."),
        ("not_taken", "the portal did not take it when it was sent last."),
    ],
)
def test_the_page_says_why_output_waits_and_where(job, agent, owner_client, waits, sentence):
    """O1, O4: sealed where, since when and why; the compute is released, nothing is metered."""
    lease = drive(agent, "running")
    lease.exit = {"code": 0, "signal": None, "reason": "exited"}
    lease.output, lease.waits = "sealed", waits
    for phase in ("returning", "releasing", "released"):
        lease.go(phase)
    lease.evidence = agent.evidence(lease)
    agent.poll()
    page = owner_client.get(reverse("job", args=[job.code])).content.decode()
    since = f"{the_lease().releasing_at:%d %b, %H:%M} UTC"
    assert f"The output waits sealed on node n1 since {since}: {sentence}" in page
    assert "The compute is released and nothing is metered." in page
    assert "It is sent by itself as soon as it is taken." in page
    assert "not yet" not in page[page.index("steps-title") : page.index("step-sentence")]
    lease.waits = "store_full"
    agent.poll()
    assert the_lease().output_waits == "store_full"


def test_the_page_sums_up_where_the_output_of_several_pieces_waits(team, node, agent, owner_client):
    job = make_job(team, shards=2)
    for _ in range(6):
        scheduler.run_pass()
        agent.poll()
        for lease in agent.leases.values():
            if lease.phase != "running":
                agent.advance(lease)
    for lease, waits in zip(agent.leases.values(), ("store_full", "store_away"), strict=True):
        lease.exit = {"code": 0, "signal": None, "reason": "exited"}
        lease.output, lease.waits = "sealed", waits
        for phase in ("returning", "releasing", "released"):
            lease.go(phase)
        lease.evidence = agent.evidence(lease)
    agent.poll()
    page = owner_client.get(reverse("job", args=[job.code])).content.decode()
    assert "The output of 2 pieces waits sealed on node n1 since" in page
    assert "has no room for it. The portal&#x27;s store cannot be written." in page


def test_an_output_window_that_is_over_releases_the_compute(job, agent, settings):
    lease = drive(agent, "running")
    lease.exit = {"code": 0, "signal": None, "reason": "exited"}
    lease.output = "delivering"
    lease.go("returning")
    agent.poll()
    time_passes(settings.OUTPUT_WINDOW + MINUTE)
    agent.poll()
    assert (lease.phase, lease.output) == ("releasing", "sealed")
    agent.advance(lease)
    agent.poll()
    agent.deliver(lease)
    row = LedgerRow.objects.get()
    window = settings.OUTPUT_WINDOW.total_seconds() * 1000
    assert row.counted_ms == window + row.launch_ms + row.run_ms
    assert row.uncounted_reason == "past_the_window"


@pytest.mark.parametrize(
    ("code", "reason", "outcome", "because"),
    [
        (0, "exited", "succeeded", ""),
        (3, "exited", "failed", "exit_code"),
        (137, "killed", "failed", "killed"),
        (143, "time_limit", "timed_out", "told_to_stop"),
        (None, "memory_limit", "failed", "memory_limit"),
        (None, "could_not_start", "failed", "could_not_start"),
    ],
)
def test_how_the_work_ended_is_how_the_piece_ends(job, agent, code, reason, outcome, because):
    """O2: whatever it wrote comes back, marked partial unless it succeeded."""
    lease = drive(agent, "running")
    lease.exit = {"code": code, "signal": None, "reason": reason}
    for _ in range(4):
        agent.advance(lease)
        agent.poll()
    shard = Shard.objects.get()
    assert (shard.outcome, shard.reason) == (outcome, because)
    job.refresh_from_db()
    assert (job.outcome, job.reason) == (outcome, because)
    assert LedgerRow.objects.get().uncounted_reason == ""


@pytest.mark.parametrize(("hours", "because"), [(3, "told_to_stop"), (2, "time_limit")])
def test_only_work_that_came_to_its_limit_is_said_to_have(job, agent, hours, because):
    """Work that heeds the signal ends before its hours do; the page says which it was."""
    lease = drive(agent, "running")
    Lease.objects.update(time_limit=timedelta(hours=hours))
    time_passes(timedelta(hours=2))
    lease.exit = {"code": 143, "signal": None, "reason": "time_limit"}
    for _ in range(4):
        agent.advance(lease)
        agent.poll()
    shard = Shard.objects.get()
    assert (shard.outcome, shard.reason) == ("timed_out", because)
    told = "The work was told to stop 0:00:30 before its 3:00:00 ran out, and ended."
    assert shard.detail == (told if because == "told_to_stop" else "")


def test_exit_0_without_a_declared_path_is_output_missing(job, agent):
    lease = drive(agent, "running")
    lease.problem = {"code": "output_missing", "detail": "stats/** matched nothing."}
    for _ in range(4):
        agent.advance(lease)
        agent.poll()
    shard = Shard.objects.get()
    assert (shard.outcome, shard.reason) == ("failed", "output_missing")
    assert shard.detail == "stats/** matched nothing."


def test_a_failure_of_the_work_is_tried_again_only_where_the_job_asks(team, node, agent):
    job = make_job(team, work_retries=1)
    for _ in range(2):
        lease = drive(agent, "running")
        for _ in range(4):
            agent.advance(lease, exit_code=1)
            agent.poll()
    shard = job.shards.get()
    assert (shard.outcome, shard.work_failures, shard.attempts) == ("failed", 1, 2)
    assert LedgerRow.objects.count() == 2
    assert not LedgerRow.objects.exclude(uncounted_reason="").exists()


def test_a_fault_of_the_node_is_tried_elsewhere_and_not_counted(job, agent):
    lease = drive(agent, "running")
    agent.fail(lease, "gpu_fault")
    agent.poll()
    agent.advance(lease)
    agent.poll()
    shard = Shard.objects.get()
    assert (shard.state, shard.faults) == ("queued", 1)
    assert shard.avoid_gpus == lease.gpus
    assert LedgerRow.objects.get().counted_ms == 0
    again = drive(agent, "running")
    assert not set(again.gpus) & set(lease.gpus)  # R8: the retry goes elsewhere
    assert the_lease().token == "1.2"


def test_a_process_that_cannot_be_removed_quarantines_the_node_and_stops_the_meter(job, agent):
    """R3"""
    lease = drive(agent, "releasing")
    lease.go("released")
    lease.evidence = agent.evidence(lease, processes="left")
    agent.poll()
    assert the_lease().state == "released"
    node = Node.objects.get()
    assert node.state == "quarantined"
    assert "processes could not be removed" in node.reason
    assert LedgerRow.objects.get().held_ms >= 0


def test_a_gpu_of_which_nothing_was_found_out_stays_held(job, agent):
    """Invariant 1: the agent's look at what was left failed."""
    lease = drive(agent, "releasing")
    lease.go("released")
    lease.evidence = agent.evidence(lease, processes="not checked") | {
        "gpus": {},
        "scratch": "left",
    }
    agent.poll()
    assert (the_lease().state, Node.objects.get().state) == ("released", "quarantined")
    assert LeaseGpu.objects.get().until is None


def test_a_report_that_the_database_refuses_stops_no_other(team, agent, monkeypatch):
    make_job(team, shards=2)
    agent.poll()
    scheduler.run_pass()
    agent.poll()
    first, second = agent.leases.values()
    applied = polls.apply_report

    def apply(*, lease, report, at):
        if lease.code == first.code:
            raise IntegrityError("node_reserved_not_negative")
        applied(lease=lease, report=report, at=at)

    monkeypatch.setattr(polls, "apply_report", apply)
    for lease in (first, second):
        lease.go("ready")
    agent.poll()
    states = dict(Lease.objects.values_list("code", "state"))
    assert (states[first.code], states[second.code]) == ("placed", "granted")
    monkeypatch.undo()
    agent.poll()
    assert Lease.objects.get(code=first.code).state == "granted"


def test_a_busy_gpu_is_quarantined_alone(job, agent):
    lease = drive(agent, "releasing")
    lease.go("released")
    lease.evidence = agent.evidence(lease)
    lease.evidence["gpus"] = dict.fromkeys(lease.gpus, "busy")
    agent.poll()
    agent.leases.clear()
    agent.poll()
    assert Node.objects.get().state == "online"
    gpu = Gpu.objects.get(uuid=lease.gpus[0])
    assert gpu.quarantined
    assert LeaseGpu.objects.filter(until=None).get().gpu == gpu
    fleet.drain(node=Node.objects.get(), actor="op")
    fleet.resume(node=Node.objects.get(), actor="op", reason="its process is gone")
    agent.poll()
    assert not Gpu.objects.filter(quarantined=True).exists()
    assert not LeaseGpu.objects.filter(until=None).exists()


def test_a_node_in_contact_that_proves_nothing_is_quarantined(job, agent):
    drive(agent, "releasing")
    long_ago = db_now() - watch.RELEASE_LIMIT - MINUTE
    Lease.objects.update(
        placed_at=long_ago, ready_at=long_ago, granted_at=long_ago, allocated_at=long_ago,
        running_at=long_ago, returning_at=long_ago, releasing_at=long_ago,
    )  # fmt: skip
    watch.watch()
    assert the_lease().state == "releasing"  # the portal itself was away until now
    Installation.objects.update(up_since=long_ago)
    Node.objects.update(last_seen_at=long_ago)
    watch.watch()
    assert (the_lease().state, Node.objects.get().state) == ("releasing", "offline")
    agent.poll()
    watch.watch()
    assert the_lease().state == "released"
    assert Node.objects.get().state == "quarantined"
    assert LeaseGpu.objects.filter(until=None).exists()  # the node may still use it
    event = the_lease().events.get(verb="released")
    assert (event.actor, event.reason) == ("system", "no_evidence")
    assert left_of(the_lease().shard.job).proved == 0
    agent.leases.clear()
    agent.poll()
    assert not LeaseGpu.objects.filter(until=None).exists()


def test_a_silent_node_is_offline_and_what_it_had_not_started_goes_elsewhere(job, agent, node):
    scheduler.run_pass()
    agent.poll()
    silence(5 * MINUTE)
    watch.watch()
    watch.watch()
    assert Node.objects.get(pk=node.pk).state == "offline"
    assert (the_lease().state, the_lease().reason) == ("void", "node_left")
    other = make_node("n2", gpus=1)
    scheduler.run_pass()
    assert the_lease().node == other
    answer = agent.poll()
    assert [i["wanted"] for i in answer["leases"]] == ["drop"]
    assert Node.objects.get(pk=node.pk).state == "online"


def test_drain_finishes_what_runs_and_takes_nothing_new(team, job, agent, node):
    lease = drive(agent, "running")
    fleet.drain(node=Node.objects.get(), actor="operator", reason="new disk")
    make_job(team)
    for _ in range(4):
        scheduler.run_pass()
        agent.advance(lease)
        agent.poll()
    job.refresh_from_db()
    assert job.outcome == "succeeded"
    assert Lease.objects.count() == 1
    assert Node.objects.get().state == "drained"
    event = Node.objects.get().events.get(verb="drain")
    assert (event.actor, event.detail["reason"]) == ("operator", "new disk")
    fleet.resume(node=Node.objects.get(), actor="operator")
    scheduler.run_pass()
    assert Lease.objects.count() == 2


def test_a_finish_step_waits_for_all_others(team, node, agent):
    job = make_job(team, shards=2, finish_command="true")
    finish = job.shards.create(index=0, kind="finish", queued_at=db_now())
    scheduler.run_pass()
    assert not finish.leases.exists()
    for _ in range(12):
        scheduler.run_pass()
        agent.poll()
        for lease in list(agent.leases.values()):
            agent.advance(lease)
    job.refresh_from_db()
    assert job.outcome == "succeeded"
    last = finish.leases.get()
    others = Lease.objects.exclude(pk=last.pk)
    assert all(last.placed_at >= lease.released_at for lease in others)
    assert last.gpu_count == 0


def test_without_isolation_a_node_gets_no_work(job, node, agent):
    Node.objects.update(isolation="process")
    scheduler.run_pass()
    assert not Lease.objects.exists()
    reason = job.shards.get().waits.get()
    assert reason.sentence == (
        "No node that takes work is online. It would fit 1 that is without a sandbox."
    )


def test_a_node_that_lost_its_isolation_is_granted_nothing(job, node, agent):
    scheduler.run_pass()
    agent.poll()
    agent.advance(agent.leases[the_lease().code])
    agent.isolation = "process"
    agent.poll()
    assert the_lease().granted_at is None
    watch.watch()
    assert (the_lease().state, the_lease().reason) == ("void", "node_left")


def test_settings_may_allow_work_without_isolation(settings, job, node, agent):
    settings.ALLOW_PROCESS_ISOLATION = True
    agent.isolation = "process"
    drive(agent, "running")


def test_a_node_that_speaks_while_its_silence_is_judged_keeps_its_lease(job, node, agent):
    drive(agent, "running")
    lease = Lease.objects.select_related("node", "shard__job").get()
    agent.poll()
    with pytest.raises(Stale):
        watch._lose(lease)
    assert the_lease().state == "running"


def test_a_draining_node_that_cannot_remove_its_last_work_is_quarantined(job, node, agent):
    lease = drive(agent, "releasing")
    fleet.drain(node=Node.objects.get(), actor="operator")
    lease.go("released")
    lease.evidence = agent.evidence(lease, processes="left")
    agent.poll()
    assert Node.objects.get().state == "quarantined"


def test_a_node_that_lost_what_it_had_fetched_is_no_longer_ready(job, node, agent):
    make_job(job.team, gpus=2)
    scheduler.run_pass()
    agent.poll()
    for lease in agent.leases.values():
        agent.advance(lease)
    agent.poll(heed=False)
    waiting = Lease.objects.get(state="ready")
    agent.leases.pop(waiting.code)
    agent.poll()
    agent.poll()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.ready_at) == ("placed", None)
    agent.advance(agent.leases[waiting.code])
    agent.poll()
    waiting.refresh_from_db()
    assert waiting.state == "ready"


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({}, "3 kB of input were fetched; copies stay"),
        (
            {"moved_bytes": 1000},
            "1 kB of input were fetched, 2 kB were on the node already; copies",
        ),
        ({"moved_bytes": 0}, "Nothing was fetched: 3 kB of input were on the node already; copies"),
    ],
)
def test_what_the_node_had_already_is_not_called_fetched(job, agent, owner_client, told, sentence):
    """S9: the second job on the same bytes moves nothing, and the page says so."""
    scheduler.run_pass()
    agent.poll()
    (lease,) = agent.leases.values()
    lease.about |= {"fetched_bytes": 3000} | told
    lease = drive(agent, "releasing")
    agent.advance(lease)
    agent.poll()
    page = owner_client.get(reverse("job", args=[job.code])).content.decode()
    assert sentence in page

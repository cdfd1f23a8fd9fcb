"""R11: the portal is restored from a dump while work runs on its nodes."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import transaction
from django.urls import reverse

from jobs import services as jobs
from jobs.models import Shard
from nodes import fleet, incidents, returns, scheduler, watch
from nodes.models import Incident, Installation, Lease, LeaseGpu, LedgerRow, Node
from portal.base.clock import db_now
from portal.base.errors import Conflict
from portal.pages import checkup
from tests.factories import make_job, make_node
from tests.nodes.agent_model import ModelAgent, ModelLease
from tests.nodes.test_doubt import (
    FILE,
    assert_one_result,
    begin_again,
    finish,
    play,
    silence,
    start,
)

pytestmark = [pytest.mark.django_db, pytest.mark.db]


@pytest.fixture
def job(team):
    return make_job(team)


@pytest.fixture
def agent(job) -> ModelAgent:
    return ModelAgent(make_node("n1", gpus=1), 1)


def restored(agent: ModelAgent, place: str, came: str = "running") -> ModelLease:
    """The dump was made at `place`; the work has gone on since; the portal is restored."""
    if place != "queued":
        scheduler.run_pass()
        agent.poll()
    if place == "ready":
        lease = next(iter(agent.leases.values()))
        agent.advance(lease)
        Lease.objects.update(cleared_gpus=None)
        agent.poll()
    dump = transaction.savepoint_create()
    lease = start(agent)
    if came == "finished":
        finish(agent, lease)
    transaction.savepoint_rollback(dump)
    call_command("after_restore", verbosity=0)
    return lease


def wanted(agent: ModelAgent, lease: ModelLease) -> str:
    return next(i["wanted"] for i in agent.poll()["leases"] if i["lease"] == lease.code)


PLACES = [("queued", "unknown"), ("placed", "behind"), ("ready", "behind")]


@pytest.mark.parametrize("came", ["running", "finished"])
@pytest.mark.parametrize(("place", "cause"), PLACES)
def test_an_adopted_attempt_is_the_result(agent, place, cause, came):
    lease = restored(agent, place, came)
    for _ in range(3):
        scheduler.run_pass()
        assert wanted(agent, lease) == "keep"
        watch.watch()
    incident = Incident.objects.get()
    assert (incident.state, incident.cause, incident.lease) == ("open", cause, lease.code)
    assert incident.gpus == ["GPU-n1-0"]
    assert not Lease.objects.exclude(granted_at=None).exists()
    incidents.adopt(incident=incident, actor="op", reason="it goes on")
    adopted = Lease.objects.get(code=lease.code)
    assert (adopted.token, adopted.state) == (lease.token, "allocated")
    assert adopted.gpus.get().gpu.uuid == "GPU-n1-0"
    agent.poll()
    play(agent)
    assert_one_result(Lease.objects.get(code=lease.code))
    event = agent.node.events.get(verb="incident_adopted")
    assert (event.actor, event.detail["reason"]) == ("op", "it goes on")
    assert Incident.objects.get().gone_at is not None


@pytest.mark.parametrize(("place", "cause"), PLACES)
def test_an_ended_attempt_is_dropped_and_its_piece_is_tried_anew(agent, place, cause):
    lease = restored(agent, place)
    agent.poll()
    incidents.end(incident=Incident.objects.get(), actor="op", reason="too old")
    answer = agent.poll(heed=False)["leases"]
    assert next(i["wanted"] for i in answer if i["lease"] == lease.code) == "drop"
    scheduler.run_pass()
    assert not LeaseGpu.objects.exists()  # it is listed still
    play(agent)
    assert Shard.objects.get().outcome == "succeeded"
    assert LedgerRow.objects.get().lease.code != lease.code
    assert agent.node.events.get(verb="incident_ended").actor == "op"


def test_what_an_ended_attempt_has_sent_is_no_part_of_the_result(agent, job):
    lease = restored(agent, "placed")
    agent.poll()
    returns.declare_output(lease=Lease.objects.get(code=lease.code), files=[FILE])
    assert job.output.files.exists()
    incidents.end(incident=Incident.objects.get(), actor="op", reason="too old")
    assert not job.output.files.exists()


def test_new_tokens_were_never_given_out_before(agent):
    lease = restored(agent, "queued")
    Node.objects.update(state="offline")
    two = begin_again("placed")
    assert Installation.objects.get().epoch == 2
    assert [x.token for x in two.leases.values()] == ["2.1"]
    agent.poll()
    incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")
    tokens = Lease.objects.order_by("epoch").values_list("epoch", "number", "state")
    assert list(tokens) == [(1, 1, "allocated"), (2, 1, "void")]
    assert lease.token == "1.1"


def test_its_gpus_are_granted_to_nobody_else(agent, team, operator_client):
    restored(agent, "queued")
    agent.poll()
    make_job(team)
    for _ in range(4):
        scheduler.run_pass()
        agent.poll()
        for lease in list(agent.leases.values()):
            if lease.phase == "fetching":
                agent.advance(lease)
    assert not LeaseGpu.objects.exists()
    assert set(Lease.objects.values_list("state", flat=True)) <= {"placed", "ready"}
    page = operator_client.get(reverse("admin:nodes_node_change", args=[agent.node.pk]))
    assert "which this portal does not know" in page.content.decode()


def test_a_ready_lease_in_the_same_poll_gets_no_gpu_of_an_attempt_that_it_lists_later(agent):
    """The grant would come before the incident if reports were taken in their order."""
    lease = restored(agent, "queued")
    agent.leases.pop(lease.code)
    scheduler.run_pass()
    agent.poll()
    other = next(iter(agent.leases.values()))
    agent.advance(other)
    agent.leases[lease.code] = lease
    agent.poll()
    assert not LeaseGpu.objects.exists()


@pytest.mark.parametrize("place", ["running", "returning", "ended"])
def test_of_two_attempts_the_one_that_is_further_on_is_kept(agent, place):
    lease = restored(agent, "queued")
    Node.objects.update(state="offline")
    two = begin_again(place)
    assert wanted(agent, lease) == "keep"
    incident = Incident.objects.get()
    if place == "running":
        incidents.adopt(incident=incident, actor="op", reason="")
        assert Lease.objects.get(node=two.node).reason == "fenced"
        play(agent, two)
        assert_one_result(Lease.objects.get(code=lease.code))
        return
    with pytest.raises(Conflict, match=r"further on|has ended"):
        incidents.adopt(incident=incident, actor="op", reason="")
    assert Incident.objects.get().state == "open"
    incidents.end(incident=incident, actor="op", reason="the other is done")
    play(agent, two)
    assert_one_result(Lease.objects.get(node=two.node))


def test_an_incident_whose_attempt_is_gone_closes_itself(agent):
    lease = restored(agent, "queued")
    agent.poll()
    agent.leases.clear()
    agent.poll()
    incident = Incident.objects.get()
    assert (incident.state, incident.decided_by) == ("gone", "")
    with pytest.raises(Conflict, match="no longer open"):
        incidents.end(incident=incident, actor="op", reason="late")
    agent.leases[lease.code] = lease
    agent.poll()
    assert Incident.objects.get().state == "open"
    agent.leases.clear()
    agent.poll()
    play(agent)
    assert Shard.objects.get().outcome == "succeeded"


def test_a_row_that_is_behind_outlives_its_nodes_silence(agent):
    lease = restored(agent, "placed")
    agent.poll()
    silence(agent)
    watch.watch()
    assert Node.objects.get().state == "offline"
    assert Lease.objects.get().state == "placed"
    assert wanted(agent, lease) == "keep"


def test_an_agent_that_does_not_say_its_gpus_blocks_all_of_its_node(agent):
    lease = restored(agent, "queued")
    body = agent.body()
    for item in body["leases"]:
        for name in ("gpus", "job", "kind", "index"):
            del item[name]
    agent.poll(body)
    incident = Incident.objects.get()
    assert (incident.gpus, incident.uses("GPU-n1-0")) == (None, True)
    with pytest.raises(Conflict, match="no such job"):
        incidents.adopt(incident=incident, actor="op", reason="")
    assert lease.phase == "running"


def test_what_cannot_be_adopted_says_why(agent, job):
    lease = restored(agent, "queued")
    agent.poll()
    lease.gpus, lease.fault = ["GPU-n1-0"], {"code": "gpu_fault", "detail": ""}
    agent.poll()
    with pytest.raises(Conflict, match="fault of its node"):
        incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")
    jobs.cancel(job=job, actor="owner")
    with pytest.raises(Conflict, match="has ended"):
        incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")
    with pytest.raises(Conflict, match="open incidents"):
        fleet.retire(node=Node.objects.get(), actor="op")


def test_an_attempt_is_metered_from_its_own_begin(agent):
    restored(agent, "queued")
    hour_ago = db_now() - timedelta(hours=1)
    Shard.objects.update(queued_at=hour_ago)
    agent.poll(agent.body(age=20 * 60_000))
    incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")
    lease = Lease.objects.get()
    minutes = (db_now() - lease.allocated_at) / timedelta(minutes=1)
    assert round(minutes) == 20


def test_an_operator_decides_in_the_admin(agent, operator_client, operator):
    lease = restored(agent, "queued")
    agent.poll()
    incident = Incident.objects.get()
    assert "Incidents" in operator_client.get("/admin/").content.decode()
    page = reverse("admin:nodes_incident_change", args=[incident.pk])
    adopt = reverse("admin:nodes_incident_act", args=[incident.pk, "adopt"])
    assert adopt in operator_client.get(page).content.decode()
    assert lease.code in operator_client.get(reverse("admin:nodes_incident_changelist")).text
    assert "metered from its own begin" in operator_client.get(adopt).content.decode()
    assert "Nothing was done" in operator_client.post(adopt, {"reason": ""}).content.decode()
    assert Incident.objects.get().state == "open"
    assert operator_client.post(adopt, {"reason": "it is fine"}).status_code == 302
    incident.refresh_from_db()
    decided = (incident.state, incident.decided_by, incident.reason)
    assert decided == ("adopted", operator.email, "it is fine")
    assert adopt not in operator_client.get(page).content.decode()
    missing = reverse("admin:nodes_incident_act", args=[incident.pk, "forget"])
    assert operator_client.get(missing).status_code == 404


def test_nobody_else_decides(agent, owner_client):
    restored(agent, "queued")
    agent.poll()
    end = reverse("admin:nodes_incident_act", args=[Incident.objects.get().pk, "end"])
    assert owner_client.post(end, {"reason": "mine"}).status_code in (302, 403)
    assert Incident.objects.get().state == "open"


def test_the_doctor_names_open_incidents(agent):
    restored(agent, "queued")
    assert list(checkup.incidents()) == []
    agent.poll()
    (finding,) = checkup.incidents()
    assert finding.level == "problem"
    assert "adopt or end it" in finding.sentence


@pytest.mark.parametrize(
    ("named", "has"), [(["GPU-n2-0"], 0), ([], 0), (["GPU-n1-0", "GPU-n2-0"], 1)]
)
def test_gpus_that_are_not_its_own_are_not_adopted(agent, named, has):
    """Of another node, none at all, or more than the piece asks for: nobody is charged for it."""
    lease = restored(agent, "queued")
    make_node("n2", gpus=1)
    lease.gpus = named
    agent.poll()
    with pytest.raises(Conflict, match=f"names {len(named)} for it, of which it has {has}"):
        incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")
    assert not LeaseGpu.objects.exists()
    assert Incident.objects.get().state == "open"


def test_a_token_of_the_future_is_not_adopted(agent):
    lease = restored(agent, "queued")
    lease.token = "3.1"
    agent.poll()
    with pytest.raises(Conflict, match="no such token yet"):
        incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")


def test_a_piece_whose_attempt_was_adopted_can_be_tried_again(agent):
    """The epoch was not raised, and the number is larger than the rows that there are."""
    lease = restored(agent, "queued")
    lease.token = "2.2"
    agent.poll()
    incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")
    agent.fail(lease)
    play(agent)
    tokens = Lease.objects.order_by("id").values_list("epoch", "number")
    assert list(tokens) == [(2, 2), (2, 3)]
    assert Shard.objects.get().outcome == "succeeded"


def test_a_row_that_is_behind_keeps_no_other_gpu_from_others(agent, team):
    """Its own GPU is kept for the incident; the node's other one is not named for it as well."""
    restored(agent, "ready")
    agent.gpus = 2
    agent.poll()
    other = make_job(team)
    for _ in range(4):
        scheduler.run_pass()
        agent.poll()
        for lease in list(agent.leases.values()):
            if lease.phase == "fetching":
                agent.advance(lease)
    held = LeaseGpu.objects.get()
    assert (held.lease.shard.job, held.gpu.uuid) == (other, "GPU-n1-1")


def test_another_nodes_incident_does_not_keep_a_lease_waiting(job, agent):
    scheduler.run_pass()
    agent.poll()
    lease = next(iter(agent.leases.values()))
    other = ModelAgent(make_node("n2", gpus=0), 0)
    other.leases[lease.code] = ModelLease(lease.code, lease.token)
    other.poll()
    assert Incident.objects.open().exists()
    Node.objects.filter(pk=agent.node.pk).update(state="draining")
    watch.watch()
    assert Lease.objects.get().reason == "node_left"


def test_an_attempt_is_not_adopted_into_another_piece(agent, team):
    """The node may have fetched for one job only, and names another one's."""
    lease = restored(agent, "placed")
    lease.about = {"job": make_job(team).code, "kind": "main", "index": 0}
    agent.poll()
    with pytest.raises(Conflict, match="another piece"):
        incidents.adopt(incident=Incident.objects.get(), actor="op", reason="")
    assert set(Shard.objects.values_list("state", flat=True)) == {"queued"}


@pytest.mark.parametrize("after_restore", [True, False])
def test_an_attempt_that_ended_after_the_backup_is_not_there(agent, owner_client, after_restore):
    """R11: delivered and forgotten by its node, unknown to the restored portal."""
    lease = start(agent)
    dump = transaction.savepoint_create()
    finish(agent, lease)
    agent.poll()
    agent.deliver(lease)
    agent.poll()
    assert lease.code not in agent.leases
    transaction.savepoint_rollback(dump)
    if after_restore:
        call_command("after_restore", verbosity=0)
    agent.poll()
    row = Lease.objects.get(code=lease.code)
    assert (row.state, row.reason, row.in_doubt) == ("lost", "not_there", False)
    assert LedgerRow.objects.get().uncounted_reason == "not_there"
    assert ("restored from a backup" in row.detail) == after_restore
    page = owner_client.get(reverse("job", args=[row.shard.job.code])).content.decode()
    assert "Its node does not have this attempt any more." in page
    assert ("it may have ended and been delivered afterwards" in page) == after_restore
    assert Shard.objects.get().state == "queued"

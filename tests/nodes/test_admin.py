"""Nodes in the operators' admin, and what operators cannot see or change there."""

import html
import re
from datetime import timedelta

import pytest
from django.test import Client

from jobs.models import Job
from nodes import fleet
from nodes.models import Gpu, Lease, LeaseGpu, LedgerRow, Node
from portal.base.clock import db_now
from portal.base.crypto import hash_token
from portal.teams.models import User
from staging.models import Dataset
from tests.conftest import PASSWORD
from tests.factories import make_dataset, make_job, make_node
from tests.hostile import HOSTILE, form_data

ADD = "/admin/nodes/node/add/"
ACTS = ["drain", "resume", "quarantine", "retire", "revoke"]


@pytest.fixture
def staff_client(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("staff@portal.example", PASSWORD, is_staff=True))
    return client


@pytest.fixture
def node(db) -> Node:
    return make_node("n1", gpus=2)


def make_lease(node: Node, job: Job, **fields) -> Lease:
    now = db_now()
    values = {
        "shard": job.shards.get(index=0),
        "node": node,
        "epoch": 1,
        "number": 1,
        "gpu_count": 1,
        "cpus": 1,
        "memory_bytes": 2**30,
        "disk_bytes": 2**30,
        "time_limit": timedelta(hours=1),
        "output_window": timedelta(seconds=120),
        "placed_at": now - timedelta(minutes=1),
    } | fields
    return Lease.objects.create(**values)


def path(node: Node, rest: str) -> str:
    return f"/admin/nodes/node/{node.pk}/{rest}/"


# Enrolment


def test_a_node_is_made_and_its_token_shown_once_with_the_command(staff_client):
    response = staff_client.post(ADD, {"name": "gpu-7"})
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    found = re.search(
        r"E31_ENROL_TOKEN=(\S+) python3 -m nodes\.agent --portal http://127\.0\.0\.1:8000"
        r' --state-dir "\$HOME/e31-node"</textarea>',
        html.unescape(response.content.decode()),
    )
    assert found is not None
    node = Node.objects.get(name="gpu-7")
    assert node.enrol_token_hash == hash_token(found[1])
    assert node.events.get(verb="created").actor == "staff@portal.example"
    assert fleet.enrol(token=found[1], agent_version="1")[0] == node
    for again in (path(node, "change"), "/admin/nodes/node/"):
        seen = staff_client.get(again).content.decode()
        assert found[1] not in seen
        assert node.enrol_token_hash not in seen


def test_a_new_token_is_asked_for_and_replaces_the_old(staff_client, db):
    node, old = fleet.create_node(name="n9", actor="x")
    assert "An earlier token" in staff_client.get(path(node, "token")).content.decode()
    node.refresh_from_db()
    assert node.enrol_token_hash == hash_token(old)
    response = staff_client.post(path(node, "token"))
    assert "python3 -m nodes.agent" in response.content.decode()
    with pytest.raises(fleet.EnrolmentRefused):
        fleet.enrol(token=old, agent_version="1")


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_names_never_break(staff_client, kind):
    response = staff_client.post(ADD, form_data({"name": ""}, "name", HOSTILE[kind]))
    assert response.status_code == 200
    if "command" in response.context:
        name = Node.objects.get().name
        assert name.isprintable()
        assert f"Enrol {name}" not in response.content.decode() or "<" not in name
    else:
        assert response.context["errors"]
        assert not Node.objects.exists()


def test_the_command_for_a_simulated_node_makes_up_its_gpus(staff_client):
    response = staff_client.post(ADD, {"name": "sim", "simulated": "on"})
    assert "--simulate-gpus 8</textarea>" in response.content.decode()


def test_a_node_that_never_enrolled_offers_no_resume(staff_client, db):
    node, _ = fleet.create_node(name="new", actor="x")
    seen = staff_client.get(path(node, "change")).content.decode()
    assert "/act/retire" in seen
    assert "/act/resume" not in seen


def test_two_nodes_cannot_have_one_name(staff_client, node):
    response = staff_client.post(ADD, {"name": "n1"})
    assert response.context["errors"]
    assert Node.objects.count() == 1


# Acts


@pytest.mark.parametrize("act", ACTS)
def test_an_act_names_its_consequence_and_asks_for_a_reason(staff_client, node, act):
    seen = staff_client.get(path(node, f"act/{act}")).content.decode()
    assert 'name="reason"' in seen
    assert "It holds compute for no job." in seen
    response = staff_client.post(path(node, f"act/{act}"), {"reason": ""})
    assert "Give a reason" in response.content.decode()
    before = node.state
    node.refresh_from_db()
    assert (node.state, node.revoked_at) == (before, None)
    assert not node.events.exists()


@pytest.mark.parametrize(
    ("act", "state"), [("drain", "drained"), ("quarantine", "quarantined"), ("retire", "retired")]
)
def test_acts_go_through_the_services_with_an_event(staff_client, node, act, state):
    response = staff_client.post(path(node, f"act/{act}"), {"reason": "new disks"})
    assert response["Location"] == path(node, "change")
    node.refresh_from_db()
    assert node.state == state
    event = node.events.order_by("id").first()
    assert event is not None
    assert (event.actor, event.detail["reason"]) == ("staff@portal.example", "new disks")
    assert "new disks" in staff_client.get(path(node, "change")).content.decode()


def test_resuming(staff_client, node):
    fleet.drain(node=node, actor="x")
    staff_client.post(path(node, "act/resume"), {"reason": "done"})
    node.refresh_from_db()
    assert node.state == "online"


def test_revoking(staff_client, node):
    staff_client.post(path(node, "act/revoke"), {"reason": "credential leaked"})
    node.refresh_from_db()
    assert node.revoked_at is not None
    assert "revoked" in staff_client.get(path(node, "change")).content.decode()


def test_a_node_that_holds_compute_says_for_how_many(staff_client, node, team):
    now = db_now()
    lease = make_lease(node, make_job(team), state="granted", ready_at=now, granted_at=now)
    seen = staff_client.get(path(node, "act/retire")).content.decode()
    assert f"It holds compute for 1 attempt: {lease.code} (granted)." in seen
    refused = staff_client.post(path(node, "act/retire"), {"reason": "old"}, follow=True)
    assert "Drain it first." in refused.content.decode()
    node.refresh_from_db()
    assert node.state == "online"


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        ("online", {"drain", "quarantine", "retire", "revoke"}),
        ("drained", {"resume", "quarantine", "retire", "revoke"}),
        ("quarantined", {"resume", "retire", "revoke"}),
        ("retired", set()),
    ],
)
def test_only_the_acts_that_a_state_allows_are_offered(staff_client, node, state, offered):
    Node.objects.update(state=state)
    seen = staff_client.get(path(node, "change")).content.decode()
    assert set(re.findall(r"/act/(\w+)/", seen)) == offered


def test_a_move_that_is_not_legal_is_refused_in_a_sentence(staff_client, node):
    response = staff_client.post(path(node, "act/resume"), {"reason": "x"}, follow=True)
    assert response.status_code == 200
    assert "cannot become" in response.content.decode() or "online" in response.content.decode()
    node.refresh_from_db()
    assert node.state == "online"


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_reasons(staff_client, node, kind):
    data = form_data({"reason": ""}, "reason", HOSTILE[kind])
    response = staff_client.post(path(node, "act/drain"), data)
    node.refresh_from_db()
    if response.status_code == 302:
        assert node.state == "drained"
        assert staff_client.get(path(node, "change")).status_code == 200
        assert b"<script>alert" not in staff_client.get(path(node, "change")).content
    else:
        assert (response.status_code, node.state) == (200, "online")


@pytest.mark.parametrize("act", ["delete", "x", "%00", "drain%2F.."])
def test_acts_that_do_not_exist(staff_client, node, act):
    assert staff_client.post(path(node, f"act/{act}"), {"reason": "x"}).status_code in (
        302,
        400,
        404,
    )
    node.refresh_from_db()
    assert node.state == "online"


@pytest.mark.parametrize("rest", ["act/drain", "act/revoke", "token"])
def test_acts_are_for_operators_only(owner_client, mate_client, client, node, rest):
    for who in (owner_client, mate_client, client):
        assert who.post(path(node, rest), {"reason": "x"}).status_code == 302
        assert "/login/" in who.post(path(node, rest), {"reason": "x"})["Location"]
    node.refresh_from_db()
    assert (node.state, node.enrol_token_hash) == ("online", "")


def test_acts_need_the_csrf_token(node, operator):
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)
    assert client.post(path(node, "act/drain"), {"reason": "x"}).status_code == 403


# What the list says


def test_the_list_shows_heartbeat_and_gpus(staff_client, node, team, django_assert_max_num_queries):
    now = db_now()
    node.last_seen_at = now - timedelta(minutes=3)
    node.save()
    lease = make_lease(node, make_job(team), state="granted", ready_at=now, granted_at=now)
    LeaseGpu.objects.create(lease=lease, gpu=node.gpus.get(index=0), since=now)
    ended = make_lease(
        node, make_job(team), state="void", ended_at=now, reason="made_way", number=2
    )
    LeaseGpu.objects.create(lease=ended, gpu=node.gpus.get(index=1), since=now, until=now)
    Gpu.objects.create(
        node=node, uuid="GPU-bad", index=2, model="M", memory_bytes=1, usable=False, reason="Xid 79"
    )
    make_node("n2", gpus=4)
    with django_assert_max_num_queries(12):
        seen = staff_client.get("/admin/nodes/node/").content.decode()
    row = re.search(r"<tr><th[^>]*field-name.*?>n1<.*?</tr>", seen, re.DOTALL)
    assert row is not None
    numbers = dict(re.findall(r'class="field-(gpus_\w+)">(\d+)<', row[0]))
    assert numbers == {"gpus_free": "1", "gpus_held": "1", "gpus_unusable": "1"}
    assert "3 min ago" in row[0]
    page = staff_client.get(path(node, "change")).content.decode()
    assert f"held by attempt {lease.code}" in page
    assert "not usable: Xid 79" in page


@pytest.mark.parametrize("state", ["online", "draining", "drained", "offline", "quarantined"])
def test_gpus_are_free_where_work_may_come(staff_client, state, db):
    make_node("n1", gpus=4, state=state)
    seen = staff_client.get("/admin/nodes/node/").content.decode()
    assert re.findall(r'class="field-gpus_free">(\d+)<', seen) == [
        "4" if state == "online" else "0"
    ]


def test_a_node_that_was_never_heard_of(staff_client, db):
    make_node("quiet", last_seen_at=None, state="pending")
    assert "never" in staff_client.get("/admin/nodes/node/").content.decode()


# Sizes, states and hours, and nothing of what the team's data is

SECRETS = [
    "TEAMSECRETNAME",
    "TEAMSECRETSCRIPT",
    "TEAMSECRETVARIABLE",
    "TEAMSECRETFILE",
    "TEAMSECRETPATTERN",
    "TEAMSECRETDETAIL",
    "TEAMSECRETDRAFT",
]


@pytest.fixture
def full(team, node) -> dict[str, object]:
    """One row of everything, with a word of the team's in every column that holds its content."""
    data = make_dataset(team, name="TEAMSECRETNAME")
    data.files.create(path="TEAMSECRETFILE", size=1)
    job = make_job(
        team,
        name="TEAMSECRETNAME",
        script="TEAMSECRETSCRIPT",
        command="TEAMSECRETSCRIPT",
        finish_command="TEAMSECRETSCRIPT",
        draft={"script": "TEAMSECRETDRAFT"},
    )
    job.variables.create(name="TEAMSECRETVARIABLE", stored="TEAMSECRETVARIABLE")
    job.output_paths.create(pattern="TEAMSECRETPATTERN")
    job.inputs.create(dataset=data, mount="TEAMSECRETNAME", patterns=["TEAMSECRETPATTERN"])
    job.note("submit", at=db_now(), actor="owner@climate.example", detail={"x": "TEAMSECRETDETAIL"})
    now = db_now()
    lease = make_lease(
        node, job, state="void", ended_at=now, reason="made_way", detail="TEAMSECRETDETAIL"
    )
    lease.note("void", at=now, actor="system", detail={"path": "TEAMSECRETFILE"})
    data.note("staged", at=now, actor="owner@climate.example", detail={"p": "TEAMSECRETFILE"})
    row = LedgerRow.objects.create(
        lease=lease, gpus=1, allocated_at=now, ended_at=now, launch_ms=0, run_ms=5, output_ms=0,
        release_ms=0, held_ms=5, counted_ms=5, created_at=now,
    )  # fmt: skip
    return {
        "jobs/job": job,
        "staging/dataset": data,
        "nodes/lease": lease,
        "nodes/ledgerrow": row,
        "nodes/node": node,
        "nodes/gpu": node.gpus.first(),
    }


KINDS = ["jobs/job", "staging/dataset", "nodes/lease", "nodes/ledgerrow", "nodes/node", "nodes/gpu"]


@pytest.mark.parametrize("kind", KINDS)
def test_operators_see_facts_and_no_contents(staff_client, full, kind):
    pk = full[kind].pk
    for address in (f"/admin/{kind}/", f"/admin/{kind}/{pk}/change/", f"/admin/{kind}/?q=TEAM"):
        response = staff_client.get(address)
        assert response.status_code == 200, address
        seen = response.content.decode().replace("?q=TEAM", "").replace('value="TEAM"', "")
        assert [word for word in SECRETS if word in seen] == []
    assert staff_client.get(f"/admin/{kind}/{pk}/history/").status_code == 302


@pytest.mark.parametrize("kind", KINDS)
def test_rows_cannot_be_changed_added_or_deleted_past_the_services(staff_client, full, kind):
    row = full[kind]
    pk = row.pk
    before = type(row).objects.values().get(pk=pk)
    data = {"state": "ended", "name": "changed", "held_ms": "0", "usable": "", "_save": "Save"}
    assert staff_client.post(f"/admin/{kind}/{pk}/change/", data).status_code == 403
    assert staff_client.post(f"/admin/{kind}/{pk}/delete/", {"post": "yes"}).status_code == 403
    action = {"action": "delete_selected", "_selected_action": pk, "post": "yes"}
    staff_client.post(f"/admin/{kind}/", action)
    if kind != "nodes/node":
        assert staff_client.post(f"/admin/{kind}/add/", data).status_code == 403
    assert type(row).objects.values().get(pk=pk) == before


@pytest.mark.parametrize(
    "address",
    [
        "jobs/job/?script__contains=TEAM",
        "jobs/job/?name__startswith=T",
        "jobs/job/?variables__stored__contains=T",
        "jobs/job/?draft__script=TEAMSECRETDRAFT",
        "staging/dataset/?name=TEAMSECRETNAME",
        "staging/dataset/?files__path__contains=T",
        "nodes/lease/?detail__contains=T",
        "nodes/lease/?shard__job__name=T",
        "nodes/node/?enrol_token_hash__startswith=a",
        "nodes/node/?credential_hash__startswith=a",
    ],
)
def test_contents_and_hashes_cannot_be_guessed_by_filters(staff_client, full, address):
    assert staff_client.get(f"/admin/{address}").status_code == 400


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "query",
    ["state__exact=nonsense", "p=99999999999999999999", "o=99.-99.x", "q=%00", "e=1", "all="],
)
def test_hostile_lists(staff_client, full, kind, query):
    assert staff_client.get(f"/admin/{kind}/?{query}").status_code in (200, 302, 400)


@pytest.mark.parametrize("pk", ["0", "x", "9" * 50, "%00", "1.5", "%ED%A0%80", "_1"])
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_numbers(staff_client, db, kind, pk):
    for rest in ("change/", "delete/", "history/", ""):
        response = staff_client.get(f"/admin/{kind}/{pk}/{rest}")
        assert response.status_code in (302, 400, 403, 404)


def test_searching_by_a_teams_words_finds_nothing(staff_client, full):
    assert isinstance(full["jobs/job"], Job)
    assert isinstance(full["staging/dataset"], Dataset)
    for kind in ("jobs/job", "staging/dataset", "nodes/lease"):
        page = staff_client.get(f"/admin/{kind}/?q=TEAMSECRETNAME")
        assert page.context["cl"].result_count == 0

"""The node board: for operators, without the contents of anybody's job."""

from datetime import timedelta

import pytest
from django.urls import reverse

from nodes.models import Incident, LeaseGpu
from portal.base.clock import db_now
from portal.pages import board
from tests.factories import make_node
from tests.pages import scenes

pytestmark = pytest.mark.django_db


def shown(client) -> str:
    response = client.get(reverse("nodes"))
    assert response.status_code == 200
    return response.content.decode()


def test_it_exists_for_operators_only(client, owner_client, operator_client):
    assert owner_client.get(reverse("nodes")).status_code == 404
    assert client.get(reverse("nodes")).status_code == 302
    assert "No node has been added" in shown(operator_client)


def test_gpus_are_free_held_or_unusable_with_the_reason(operator_client, team):
    node = make_node("lab", gpus=3)
    scenes.state_job(team, node, 5)
    last = node.gpus.get(index=2)
    last.usable, last.reason = False, "Driver/library version mismatch."
    last.save()
    html = shown(operator_client)
    assert "1 free, 1 held, 1 unusable" in html
    assert "GPU 2: Driver/library version mismatch." in html
    assert "simulated" in html


def test_contact_is_told_in_words(operator_client):
    make_node("quiet", last_seen_at=scenes.ago(190), state="offline")
    make_node("new", last_seen_at=None, state="pending")
    make_node("well", isolation="process", facts={"gpu_reason": "No NVIDIA driver was found."})
    html = shown(operator_client)
    assert "No contact for 3 min. Work may still be running; nothing has been ended." in html
    assert "Its agent has never reported." in html
    assert "In contact," in html
    assert "no isolation" in html
    assert "No NVIDIA driver was found." in html


def test_operators_see_sizes_and_teams_but_no_contents(operator_client, team):
    job = scenes.running_job(team, make_node("lab", gpus=8))
    html = shown(operator_client)
    assert team.name in html
    assert "on its way to the node" in html
    assert job.name not in html
    assert job.code not in html
    assert "Sensor readings" not in html
    assert job.created_by not in html


def test_retired_nodes_are_counted_not_shown(operator_client):
    make_node("old-box", state="retired")
    html = shown(operator_client)
    assert "old-box" not in html
    assert "1 retired node not shown" in html


def test_hostile_facts_are_text(operator_client):
    hostile = "<script>alert(1)</script>"
    node = make_node(hostile, gpus=1, reason=hostile, agent_version=hostile)
    node.gpus.update(model=hostile, reason=hostile, usable=False)
    html = shown(operator_client)
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;") >= 5


def test_utilization_is_the_share_of_gpu_time_held(team):
    node = make_node("lab", gpus=2)
    at = db_now().replace(minute=30, second=0, microsecond=0)
    lease = scenes.make_lease(scenes.make_job(team, gpus=0).shards.get(), node, 90)
    LeaseGpu.objects.create(
        lease=lease,
        gpu=node.gpus.get(index=0),
        since=at - timedelta(minutes=90),
        until=at - timedelta(minutes=15),
    )
    (row,) = board.page_context(at)["rows"]
    assert len(row.bars) == 24
    assert row.bars[-1].share == pytest.approx(15 / 60)
    assert row.bars[-2].share == pytest.approx(0.5)
    assert row.bars[0].share == 0


def test_the_number_of_queries_does_not_grow(operator_client, team, django_assert_max_num_queries):
    scenes.running_job(team, make_node("n0", gpus=8))
    operator_client.get(reverse("nodes"))
    with django_assert_max_num_queries(20) as one:
        operator_client.get(reverse("nodes"))
    for number in range(1, 5):
        scenes.running_job(team, make_node(f"n{number}", gpus=8))
    with django_assert_max_num_queries(len(one)):
        operator_client.get(reverse("nodes"))


def test_gpus_of_a_node_that_takes_no_work_are_not_free(operator_client):
    make_node("lab", gpus=3, state="drained", reason="Memory is replaced.")
    html = shown(operator_client)
    assert "0 free, 0 held, 3 unusable while the node is drained" in html
    assert "0 GPUs free, 0 held, 3 unusable." in html


def test_what_waits_for_a_person_comes_first_and_says_so(operator_client):
    make_node("a-well", gpus=1)
    make_node("b-silent", state="offline")
    lists = make_node("c-lists")
    for lease in ("q7x2k9m4ab", "b7x2k9m4ab"):
        Incident.objects.create(
            node=lists, lease=lease, token="1.4", cause="unknown", first_seen_at=scenes.ago(9),
            last_seen_at=scenes.ago(2), report={}, gpus=[],
        )  # fmt: skip
    html = shown(operator_client)
    assert "2 attempts here are unknown to this portal" in html
    names = [html.index(f">{name}</h2>") for name in ("c-lists", "b-silent", "a-well")]
    assert names == sorted(names)

"""The page's small poll, and the list that resuming begins from."""

import base64
import json
from datetime import timedelta

import pytest
from django.test import Client

from staging import progress, services
from staging.models import File, Upload

pytestmark = [pytest.mark.django_db, pytest.mark.db]


def ask(client: Client, dataset, what: str = "progress", **query) -> dict:
    answer = client.get(f"/staging/{dataset.code}/{what}", query)
    assert answer.status_code == 200
    return answer.json()


def test_counts_are_what_the_server_confirmed(owner_client, dataset, owner, put):
    put(dataset, "whole", b"12345")
    (plan,) = services.declare_files(
        dataset=dataset, entries=[services.Entry("part", 10)], actor=owner.email
    )
    services.receive(upload=plan.upload, offset=0, pieces=[b"123"])
    found = ask(owner_client, dataset)
    assert (found["files"], found["uploaded"], found["verified"]) == (2, 1, 0)
    assert (found["bytes"], found["uploaded_bytes"]) == (15, 8)
    assert (found["rate_bps"], found["p50_s"], found["p90_s"]) == (None, None, None)


def test_every_change_is_told_once(owner_client, dataset, put, monkeypatch):
    monkeypatch.setattr(progress, "LAG", timedelta(0))
    monkeypatch.setattr(progress, "MOST_CHANGED", 3)
    for number in range(7):
        put(dataset, f"f{number}", b"x")
    told, cursor = [], ""
    while (found := ask(owner_client, dataset, since=cursor))["changed"]:
        told += [item["path"] for item in found["changed"]]
        cursor = found["cursor"]
    assert sorted(told) == [f"f{number}" for number in range(7)]
    put(dataset, "late", b"x")
    again = ask(owner_client, dataset, since=cursor)
    assert again["changed"] == [{"path": "late", "state": "uploaded"}]


def test_a_change_waits_until_none_can_come_before_it(owner_client, dataset, put):
    put(dataset, "a", b"x")
    assert ask(owner_client, dataset)["changed"] == []
    File.objects.update(changed_at=File.objects.get().changed_at - timedelta(seconds=2))
    assert ask(owner_client, dataset)["changed"] == [{"path": "a", "state": "uploaded"}]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "%00",
        "====",
        base64.urlsafe_b64encode(b"[" * 9000).decode(),
        *(
            base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
            for value in (
                None,
                [],
                [1],
                [10**30, 0],
                [0, 10**30],
                [-1, 0],
                [5, 0, [[1, 5], [2, 6]]],
                ["a", "b"],
            )
        ),
    ],
)
def test_a_cursor_that_is_none_is_the_beginning(owner_client, dataset, cursor):
    assert progress.read_cursor(cursor) == (0, 0)
    ask(owner_client, dataset, since=cursor)


def test_rate_and_time_left_are_those_of_the_portal(owner_client, dataset, owner, put, clock):
    """The polls themselves look, so a page needs no worker to know."""
    (plan,) = services.declare_files(
        dataset=dataset, entries=[services.Entry("big", 10_000_000)], actor=owner.email
    )
    found = {}
    for second in range(6):
        Upload.objects.filter(pk=plan.upload.pk).update(offset=second * 10**6)
        found = ask(owner_client, dataset)
        clock.tick(1)
    assert found["rate_bps"] == pytest.approx(10**6, rel=0.01)
    assert found["p50_s"] == pytest.approx(5, rel=0.2)
    assert found["p90_s"] > found["p50_s"]


def test_a_pause_that_the_page_tells_is_no_part_of_a_rate(owner_client, dataset, owner, put, clock):
    (plan,) = services.declare_files(
        dataset=dataset, entries=[services.Entry("big", 10_000_000)], actor=owner.email
    )
    for second in range(5):
        Upload.objects.filter(pk=plan.upload.pk).update(offset=second * 10**6)
        ask(owner_client, dataset)
        clock.tick(1)
    for _ in range(4):
        ask(owner_client, dataset, anew="")
        clock.tick(2)
    Upload.objects.filter(pk=plan.upload.pk).update(offset=6 * 10**6)
    assert ask(owner_client, dataset)["rate_bps"] == pytest.approx(10**6, rel=0.1)


class TestUnfinished:
    def test_pages_of_what_is_missing(self, owner_client, dataset, owner, put, monkeypatch):
        monkeypatch.setattr(progress, "PER_PAGE", 2)
        put(dataset, "done", b"x")
        entries = [services.Entry(f"f{n}", 10, modified=7) for n in range(5)]
        plans = services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
        services.receive(upload=plans[0].upload, offset=0, pieces=[b"123"])
        found, after = [], ""
        while after is not None:
            page = ask(owner_client, dataset, "unfinished", after=after)
            found += page["files"]
            after = page["next"]
        assert [file["path"] for file in found] == [f"f{n}" for n in range(5)]
        facts = {"path": "f0", "size": 10, "modified": 7}
        assert found[0] == facts | {"offset": 3, "upload": plans[0].address}

    def test_what_expired_has_no_address(self, owner_client, dataset, owner):
        services.declare_files(dataset=dataset, entries=[services.Entry("a", 1)], actor=owner.email)
        Upload.objects.update(state="expired")
        (file,) = ask(owner_client, dataset, "unfinished")["files"]
        assert file["upload"] is None

    @pytest.mark.parametrize("after", ["x", "-1", "٣", "9" * 40])
    def test_an_odd_place_is_the_beginning(self, owner_client, dataset, after):
        assert ask(owner_client, dataset, "unfinished", after=after)["files"] == []


@pytest.mark.parametrize("what", ["progress", "unfinished"])
def test_for_the_team_alone(stranger_client, dataset, what):
    assert stranger_client.get(f"/staging/{dataset.code}/{what}").status_code == 404
    assert Client().get(f"/staging/{dataset.code}/{what}").status_code == 401

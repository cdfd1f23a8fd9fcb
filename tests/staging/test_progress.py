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
                [10**30, 0, []],
                [0, 10**30, []],
                [-1, 0, []],
                [0, 0, [[1, 5], [2, 4]]],
                [0, 0, [[2, 5], [2, 6]]],
                [0, 0, ["a"]],
                ["a", "b", []],
            )
        ),
    ],
)
def test_a_cursor_that_is_none_is_the_beginning(owner_client, dataset, cursor):
    assert progress.read_cursor(cursor) == (0, 0, [])
    ask(owner_client, dataset, since=cursor)


def test_a_rate_is_measured_anew_after_a_pause(owner_client, dataset):
    cursor = progress._cursor(0, 0, [(n * 1000, n) for n in range(20)])
    assert len(progress.read_cursor(cursor)[2]) == 20
    found = ask(owner_client, dataset, since=cursor, anew="")
    assert len(progress.read_cursor(found["cursor"])[2]) == 1


class TestEstimate:
    def test_steady(self):
        samples = [(n * 1000, n * 100) for n in range(10)]
        assert progress.estimate(samples, 1000) == {"rate_bps": 100, "p50_s": 10, "p90_s": 10}

    def test_not_known_before_some_seconds(self):
        samples = [(n * 1000, n * 100) for n in range(5)]
        assert progress.estimate(samples, 1000)["p50_s"] is None

    def test_not_known_when_nothing_moves(self):
        samples = [(n * 1000, 7) for n in range(10)]
        assert progress.estimate(samples, 1000)["rate_bps"] is None

    def test_p90_is_never_before_p50(self):
        samples = [(0, 0), (2000, 0), (4000, 100), (6000, 100), (8000, 5000)]
        found = progress.estimate(samples, 1000)
        assert found["p50_s"] <= found["p90_s"]

    def test_sent_again_begins_again(self):
        assert progress._with([(0, 10), (5000, 20)], (9000, 5)) == [(9000, 5)]


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

"""Many small files in one request: every frame that came whole is kept, and nothing else."""

import hashlib
import json

import pytest
from django.test import Client

from staging import batches, pack, services, store
from staging.models import Blob, DeadKey, File, TeamUsage, Upload

pytestmark = [pytest.mark.django_db, pytest.mark.db]


def frame(path: object, content: bytes, **header) -> bytes:
    fields = {
        "path": path,
        "size": len(content),
        "digest": hashlib.sha256(content).hexdigest(),
    } | header
    raw = json.dumps(fields).encode()
    return len(raw).to_bytes(4, "big") + raw + content


def send(client: Client, dataset, body: bytes, kind: str = "application/x-e31-pack"):
    return client.post(f"/staging/{dataset.code}/pack", body, content_type=kind)


def states(answer) -> list[str]:
    return [file["state"] for file in answer.json()["files"]]


def held(dataset, path: str) -> bytes:
    return b"".join(services.open_file(file=dataset.files.get(path=path)))


def test_declared_files_arrive(owner_client, dataset, owner):
    contents = {f"d/{n}": b"%d" % n * 100 for n in range(20)}
    entries = [services.Entry(path, len(content)) for path, content in contents.items()]
    services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
    body = b"".join(frame(path, content) for path, content in contents.items())
    answer = send(owner_client, dataset, body)
    assert (answer.status_code, states(answer)) == (200, ["staged-upload"] * 20)
    assert {path: held(dataset, path) for path in contents} == contents
    assert set(Upload.objects.values_list("state", flat=True)) == {"complete"}
    usage = TeamUsage.objects.get()
    assert (usage.promised_bytes, usage.stored_bytes) == (0, sum(map(len, contents.values())))
    services.seal_dataset(dataset=dataset, actor=owner.email)
    assert services.verify_dataset(dataset=dataset).state == "staged"


def test_undeclared_files_are_listed_by_it(owner_client, dataset):
    body = frame("a/b", b"one") + frame("e", b"") + frame("a/ü 🌡", b"two", digest="")
    answer = send(owner_client, dataset, body)
    assert states(answer) == ["staged-upload", "have", "staged-upload"]
    assert held(dataset, "a/ü 🌡") == b"two"
    assert dataset.folders.get().path == "a"


def test_a_name_that_shows_as_another_one_is_refused_alone(owner_client, dataset):
    body = frame("a\u202ecod", b"one") + frame("\U0001f469\u200d\U0001f52c", b"two")
    answer = send(owner_client, dataset, body)
    assert states(answer) == ["failed", "staged-upload"]
    assert "U+202E (right-to-left override)" in answer.json()["files"][0]["message"]


def test_what_was_removed_is_not_brought_back_by_a_late_pack(owner_client, dataset, owner):
    entries = [services.Entry(path, 3) for path in ("kept", "removed")]
    services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
    services.remove_file(dataset=dataset, path="removed", actor=owner.email)
    body = frame("kept", b"one") + frame("removed", b"two")
    url = f"/staging/{dataset.code}/pack?listed"
    answer = owner_client.post(url, body, content_type="application/x-e31-pack")
    assert states(answer) == ["staged-upload", "failed"]
    assert list(dataset.files.values_list("path", flat=True)) == ["kept"]
    usage = TeamUsage.objects.get()
    assert (usage.promised_bytes, usage.stored_bytes) == (0, 3)
    assert DeadKey.objects.filter(size=3).exists()  # its bytes are not kept


def test_the_same_bytes_are_kept_once(owner_client, dataset, staged):
    staged({"there": b"same"})
    body = frame("a", b"same") + frame("b", b"same") + frame("c", b"new") + frame("d", b"new")
    assert states(send(owner_client, dataset, body)) == ["have"] * 2 + ["staged-upload"] * 2
    assert Blob.objects.count() == 2
    assert Blob.objects.get(size=4).links == 3
    assert DeadKey.objects.count() == 3
    assert TeamUsage.objects.get().stored_bytes == 7


def test_sending_again_is_have_and_another_content_replaces(owner_client, dataset):
    send(owner_client, dataset, frame("a", b"one"))
    assert states(send(owner_client, dataset, frame("a", b"one"))) == ["have"]
    assert states(send(owner_client, dataset, frame("a", b"two"))) == ["staged-upload"]
    assert held(dataset, "a") == b"two"


def test_one_bad_file_does_not_stop_the_others(owner_client, dataset):
    body = (
        frame("../up", b"x")
        + frame("wrong", b"bytes", digest="0" * 64)
        + frame("\ud800", b"x")
        + frame("form", b"x", digest="zz")
        + frame("big", b"x" * (pack.LARGEST_FILE + 1))
        + frame("good", b"y")
        + frame("good", b"y")
    )
    answer = send(owner_client, dataset, body)
    assert answer.status_code == 200
    assert states(answer) == ["failed"] * 5 + ["staged-upload", "failed"]
    found = {file["path"]: file.get("message", "") for file in answer.json()["files"]}
    assert "leads out" in found["../up"]
    assert "not those that were declared" in found["wrong"]
    assert "4.2 MB" in found["big"]
    assert list(File.objects.values_list("path", flat=True)) == ["good"]
    assert states(send(owner_client, dataset, frame("good/below", b"y"))) == ["failed"]


def test_an_upload_that_had_begun_gives_way(owner_client, dataset, owner):
    (plan,) = services.declare_files(
        dataset=dataset, entries=[services.Entry("a", 6)], actor=owner.email
    )
    services.receive(upload=plan.upload, offset=0, pieces=[b"abc"])
    assert states(send(owner_client, dataset, frame("a", b"abcdef"))) == ["staged-upload"]
    assert held(dataset, "a") == b"abcdef"
    assert DeadKey.objects.get().key == plan.upload.key
    plan.upload.refresh_from_db()
    assert (plan.upload.state, plan.upload.offset) == ("complete", 6)


@pytest.mark.parametrize("cut", [1, 3, 4, 20, 90, 105])
def test_a_cut_keeps_every_complete_frame(owner_client, dataset, cut):
    first = frame("a", b"12345")
    body = first + frame("b", b"12345")
    answer = send(owner_client, dataset, body[: min(len(body) - 1, len(first) + cut)])
    assert states(answer) == ["staged-upload"]
    assert send(owner_client, dataset, first[:cut]).json()["files"] == []


@pytest.mark.parametrize(
    "bad",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff{}",
        b"\0\0\0\2[]",
        b"\0\0\0\2{}",
        b"\0\0\0\4nope",
        b"\0\0\0\1{",
        (5000).to_bytes(4, "big") + b"[" * 5000,
        frame("x", b"", size=-1),
        frame("x", b"", size=2**70),
        frame("x", b"", size="1"),
        frame("x", b"", size=True),
        frame(3, b""),
        frame("x", b"", digest=3),
    ],
)
def test_what_is_no_frame_is_400_and_what_came_before_is_kept(owner_client, dataset, bad):
    answer = send(owner_client, dataset, frame("a", b"1") + bad + frame("b", b"2"))
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_pack")
    assert states(answer) == ["staged-upload"]
    assert list(File.objects.values_list("path", flat=True)) == ["a"]


def test_limits(owner_client, dataset, monkeypatch):
    assert send(owner_client, dataset, b"", "application/json").status_code == 415
    monkeypatch.setattr(pack, "MOST_FILES", 2)
    answer = send(owner_client, dataset, b"".join(frame(str(n), b"x") for n in range(3)))
    assert (answer.status_code, states(answer)) == (400, ["staged-upload"] * 2)
    monkeypatch.setattr("staging.api.LARGEST_BODY", 100)
    assert send(owner_client, dataset, b"x" * 101).status_code == 413


def test_no_room_is_507_with_numbers_and_leaves_no_bytes(owner_client, dataset, team):
    team.quota_bytes = 10
    team.save()
    answer = send(owner_client, dataset, frame("a", b"x" * 11))
    assert (answer.status_code, answer.json()["free"], states(answer)) == (507, 10, [])
    assert "10 bytes" in answer.json()["message"]
    assert not [p for p in store.ensure_root().rglob("*") if p.is_file()]


def test_a_full_disk_fails_the_file_by_name(owner_client, dataset, monkeypatch):
    def full(fd, piece, offset):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("staging.store.write_all", full)
    answer = send(owner_client, dataset, frame("a", b"x"))
    assert states(answer) == ["failed"]
    assert "free" in answer.json()["files"][0]["message"]
    assert not [p for p in store.ensure_root().rglob("*") if p.is_file()]


def test_a_sealed_dataset_takes_what_it_lists_and_is_checked(owner_client, dataset, owner):
    services.declare_files(dataset=dataset, entries=[services.Entry("a", 1)], actor=owner.email)
    services.seal_dataset(dataset=dataset, actor=owner.email)
    assert states(send(owner_client, dataset, frame("a", b"x"))) == ["staged-upload"]
    dataset.refresh_from_db()
    assert dataset.state == "verifying"
    assert send(owner_client, dataset, frame("b", b"x")).status_code == 409


def test_queries_do_not_grow_with_files(owner, dataset, django_assert_max_num_queries):
    arrivals = [
        batches.Arrival(f"d{n % 7}/{n}", 5, hashlib.sha256(b"%d" % n).hexdigest(), store.new_key())
        for n in range(300)
    ]
    with django_assert_max_num_queries(60):
        batches.settle_arrivals(dataset=dataset, arrivals=arrivals, actor=owner.email)
    assert File.objects.filter(state="uploaded").count() == 300


def test_for_the_team_alone(stranger_client, owner, dataset):
    assert send(stranger_client, dataset, b"").status_code == 404
    assert send(Client(), dataset, b"").status_code == 401
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner)
    assert send(strict, dataset, b"").status_code == 403

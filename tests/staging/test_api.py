"""The manifest and the seal, for programs: strict, in JSON, for the team alone."""

import base64
import json

import pytest
from django.test import Client

from staging import services
from staging.models import File
from staging.states import DatasetState
from tests.factories import make_dataset

pytestmark = pytest.mark.django_db


def post(client: Client, dataset, body: object, verb: str = "manifest"):
    raw = body if isinstance(body, (bytes, str)) else json.dumps(body)
    return client.post(
        f"/staging/{dataset.code}/{verb}",
        raw,
        content_type="application/json",
        HTTP_ACCEPT="application/json",
    )


def listing(**fields) -> dict:
    return {"files": [{"path": "a", "size": 3} | fields]}


def test_answers_in_the_order_of_the_listing(owner_client, dataset, put):
    put(dataset, "have", b"abc")
    files = [
        {"path": "../up", "size": 1},
        {"path": "have", "size": 3},
        {"path": "send/é", "size": 3, "executable": True, "modified": 12},
        {"path": "empty", "size": 0},
    ]
    answer = post(owner_client, dataset, {"files": files})
    assert answer.status_code == 200
    found = answer.json()["files"]
    assert [f["path"] for f in found] == [f["path"] for f in files]
    assert [f["state"] for f in found] == ["refused", "have", "send", "have"]
    assert "leads out" in found[0]["message"]
    assert (found[2]["upload"][:5], found[2]["offset"]) == ("/tus/", 0)


def test_a_hint_where_a_digest_would_help(owner_client, dataset, staged):
    staged({"x": b"abc"})
    (file,) = post(owner_client, dataset, listing()).json()["files"]
    assert file["hash_first"] is True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        "null",
        "[]",
        '"x"',
        "1e999",
        "9" * 5000,
        {},
        {"files": None},
        {"files": {}},
        {"files": []},
        {"files": [], "more": 1},
        {"files": [None]},
        {"files": ["a"]},
        {"files": [{}]},
        {"files": [{"path": "a"}]},
        {"files": [{"size": 1}]},
        listing(extra=1),
        listing(path=None),
        listing(path=1),
        listing(path=["a"]),
        listing(size=None),
        listing(size="3"),
        listing(size=1.5),
        listing(size=True),
        listing(digest=None),
        listing(digest=3),
        listing(executable="yes"),
        listing(executable=1),
        listing(modified="now"),
        listing(modified=1.5),
        listing(modified=10**30),
        listing(chunks="a" * 64),
        listing(chunks=["A" * 64]),
        listing(chunks=["a" * 63]),
        listing(chunks=[1]),
        listing(chunks=None),
        listing(deferred=True),
    ],
)
def test_a_wrong_body_is_400_and_lists_nothing(owner_client, dataset, body):
    answer = post(owner_client, dataset, body)
    assert answer.status_code == 400
    assert answer.json()["message"]
    assert not File.objects.exists()
    dataset.refresh_from_db()
    assert dataset.state == DatasetState.DECLARED


@pytest.mark.parametrize(
    "fields",
    [
        {"path": ""},
        {"path": "a\0b"},
        {"path": "\ud800"},
        {"path": "x" * 100_000},
        {"path": "/etc/passwd"},
        {"path": "invoice\u202egpj.exe"},
        {"size": -1},
        {"size": 2**62},
        {"digest": "zz"},
        {"digest": "a" * 64 + "-7"},
        {"digest": "x" * 10_000},
        {"chunks": ["a" * 64] * 2},
        {"chunks": ["a" * 64], "digest": "b" * 64},
    ],
)
def test_a_refused_file_is_named_and_not_listed(owner_client, dataset, fields):
    answer = post(owner_client, dataset, listing(**fields))
    assert answer.status_code == 200
    (file,) = answer.json()["files"]
    assert file["state"] == "refused"
    assert file["message"]
    assert not File.objects.exists()


@pytest.mark.parametrize("size", [2**63, 2**70, 10**30])
def test_a_size_that_no_file_can_have_is_too_large(owner_client, dataset, size, settings):
    settings.LARGEST_UPLOAD_BYTES = 10**9
    answer = post(owner_client, dataset, listing(size=size))
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert answer.json()["message"] == "files[0].size is too large: at most 1 GB are accepted."
    assert answer.json()["largest"] == 10**9


def test_too_many_at_once(owner_client, dataset):
    files = [{"path": str(n), "size": 1} for n in range(1001)]
    assert post(owner_client, dataset, {"files": files}).status_code == 413


def test_a_huge_body(owner_client, dataset, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert post(owner_client, dataset, listing(path="x" * 2000)).status_code == 413


@pytest.mark.parametrize("verb", ["manifest", "seal"])
def test_for_the_team_alone(stranger_client, operator_client, dataset, verb):
    assert post(stranger_client, dataset, listing(), verb).status_code == 404
    assert post(operator_client, dataset, listing(), verb).status_code == 404
    assert post(Client(), dataset, listing(), verb).status_code == 401


@pytest.mark.parametrize("verb", ["manifest", "seal"])
def test_csrf_is_checked(owner, dataset, verb):
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    assert post(client, dataset, listing(), verb).status_code == 403


def test_no_room_is_507_with_the_room_left(owner_client, dataset, team):
    team.quota_bytes = 2
    team.save()
    answer = post(owner_client, dataset, listing())
    assert (answer.status_code, answer.json()["free"]) == (507, 2)


def test_sealing(owner_client, dataset, put):
    assert post(owner_client, dataset, "", "seal").json()["error"] == "empty"
    put(dataset, "a", b"a")
    answer = post(owner_client, dataset, "", "seal")
    assert (answer.status_code, answer.json()["state"]) == (200, "verifying")
    assert post(owner_client, dataset, listing(path="b")).status_code == 409
    services.verify_dataset(dataset=dataset)
    assert post(owner_client, dataset, "", "seal").json()["state"] == "staged"


def test_thousands_of_files_with_odd_names_arrive(owner_client, dataset):
    odd = ["with space", "'q\"", "100%", "🌡", "caf\u00e9", "cafe\u0301", "-rf", "n" * 255]
    files = [{"path": f"d{n % 97}/{n}-{odd[n % 8]}"[:300], "size": 0} for n in range(3000)]
    files = [f for f in files if len(f["path"].split("/")[1].encode()) <= 255]
    for start in range(0, len(files), 1000):
        batch = files[start : start + 1000]
        answer = post(owner_client, dataset, {"files": batch}).json()["files"]
        assert {file["state"] for file in answer} == {"have"}
    services.seal_dataset(dataset=dataset, actor="a")
    services.verify_dataset(dataset=dataset)
    assert dataset.file_count == len(files)
    paths = dataset.files.order_by("position").values_list("path", flat=True)
    assert list(paths) == sorted((f["path"] for f in files), key=str.encode)


def test_a_body_that_was_sent_as_a_form_is_not_json(owner_client, dataset):
    answer = owner_client.post(f"/staging/{dataset.code}/manifest", {"files": "x"})
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("The body is not JSON")


def test_a_path_that_no_file_can_have_is_not_found(owner_client, dataset):
    for path in ("a\0b", "", "../a"):
        answer = owner_client.post(f"/staging/{dataset.code}/remove", {"path": path})
        assert answer.status_code == 404


@pytest.mark.parametrize("kind", ["output", "code"])
def test_nobody_changes_the_files_that_come_from_a_job(owner_client, team, kind):
    """The record says that the job wrote them."""
    row = make_dataset(team, kind=kind, state="transferring", sealed_at=None)
    here = f"/staging/{row.code}"
    files = {"files": [{"path": "forged", "size": 0}]}
    metadata = f"dataset {base64.b64encode(row.code.encode()).decode()},filename YQ=="
    answers = [
        owner_client.post(f"{here}/manifest", files, content_type="application/json"),
        owner_client.post(f"{here}/seal", headers={"Accept": "application/json"}),
        owner_client.post(f"{here}/seal"),
        owner_client.post(f"{here}/upload"),
        owner_client.post(f"{here}/remove", {"path": "a"}),
        owner_client.post(
            "/tus/",
            headers={"Tus-Resumable": "1.0.0", "Upload-Length": "1", "Upload-Metadata": metadata},
        ),
    ]
    assert {answer.status_code for answer in answers} == {409}
    row.refresh_from_db()
    assert (row.state, row.files.count()) == ("transferring", 0)


def test_a_code_with_a_nul_is_not_found(owner_client):
    metadata = f"dataset {base64.b64encode(b'a' + bytes(1)).decode()},filename YQ=="
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "1", "Upload-Metadata": metadata}
    assert owner_client.post("/tus/", headers=headers).status_code == 404

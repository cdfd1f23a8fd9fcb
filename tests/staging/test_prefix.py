"""The digests of what an upload holds, for whoever goes on with it (case S7)."""

import hashlib

import pytest

from staging import services
from staging.digests import SMALLEST_CHUNK
from staging.models import Upload
from staging.receive import receive

pytestmark = [pytest.mark.django_db, pytest.mark.db]
SIZE = 2 * SMALLEST_CHUNK + 100
CONTENT = hashlib.shake_128(b"seed").digest(SIZE)


def sha256(start: int, stop: int) -> str:
    return hashlib.sha256(CONTENT[start:stop]).hexdigest()


@pytest.fixture
def upload(dataset, owner) -> Upload:
    entries = [services.Entry("big", SIZE)]
    (plan,) = services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
    return plan.upload


def ask(client, upload, start, stop):
    address = services.address_of(upload)
    return client.get(
        f"{address}/digests?from={start}&to={stop}", headers={"Tus-Resumable": "1.0.0"}
    )


@pytest.mark.parametrize(
    ("kept", "start", "stop", "wanted"),
    [
        (0, 0, 0, []),
        (5, 0, 5, [(0, 5)]),
        (5, 2, 3, [(0, 3)]),
        (SMALLEST_CHUNK, 0, SMALLEST_CHUNK, [(0, SMALLEST_CHUNK)]),
        (
            SIZE - 1,
            9,
            SMALLEST_CHUNK + 1,
            [(0, SMALLEST_CHUNK), (SMALLEST_CHUNK, SMALLEST_CHUNK + 1)],
        ),
        (SIZE - 1, 2 * SMALLEST_CHUNK, SIZE - 1, [(2 * SMALLEST_CHUNK, SIZE - 1)]),
    ],
)
def test_chunks_and_the_open_one(client, upload, kept, start, stop, wanted):
    receive(upload=upload, offset=0, pieces=[CONTENT[:kept]])
    answer = ask(client, upload, start, stop)  # the address is the right: nobody is signed in
    assert answer.status_code == 200
    assert answer.json() == {
        "start": start // SMALLEST_CHUNK * SMALLEST_CHUNK,
        "stop": stop,
        "chunk_size": SMALLEST_CHUNK,
        "digests": [sha256(*part) for part in wanted],
    }


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (4, 3)])
def test_what_is_not_here_has_no_digest(client, upload, start, stop):
    receive(upload=upload, offset=0, pieces=[CONTENT[:5]])
    answer = ask(client, upload, start, stop)
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (409, "5")


@pytest.mark.parametrize(("start", "stop"), [("", 1), (-1, 1), ("x", 1), (0, "²"), (0, "9" * 30)])
def test_numbers_that_are_none(client, upload, start, stop):
    assert ask(client, upload, start, stop).status_code == 400


def test_of_no_upload(client, upload, owner):
    wrong = client.get(
        f"/tus/{upload.code}/{'0' * 64}/digests?from=0&to=0", headers={"Tus-Resumable": "1.0.0"}
    )
    assert wrong.status_code == 404
    services.terminate_upload(upload=upload, actor=owner.email)
    assert ask(client, upload, 0, 0).status_code in (404, 410)


def test_of_one_that_is_whole(client, upload):
    receive(upload=upload, offset=0, pieces=[CONTENT])
    assert ask(client, upload, 0, 1).status_code == 410


def test_only_get(client, upload):
    answer = client.delete(
        f"{services.address_of(upload)}/digests", headers={"Tus-Resumable": "1.0.0"}
    )
    assert answer.status_code == 405
    upload.refresh_from_db()
    assert upload.state == "open"

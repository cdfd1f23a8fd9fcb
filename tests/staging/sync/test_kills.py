"""Processes die while bytes are on their way; nothing is lost, mixed, or there twice."""

import hashlib
import random
from collections.abc import Iterator

import pytest

from tests.staging.live import until
from tests.staging.sync.place import Place
from tests.staging.sync.slow import Relay
from tests.staging.sync.stores import KEY, SECRET

pytestmark = [pytest.mark.db, pytest.mark.xdist_group("weed")]
LIMIT_S = 240
OBJECTS = 500


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    place = Place(tmp_path)
    try:
        place.start()
        yield place
    finally:
        place.stop()


@pytest.fixture
def relay(weed) -> Iterator[Relay]:
    relay = Relay(weed.port)
    yield relay
    relay.close()


def many(count: int) -> dict[str, bytes]:
    """Objects of all sizes: none, one byte, small ones, and some that are cut into ranges."""
    chance = random.Random(4)  # noqa: S311  the same objects each time
    objects = {
        f"in {n % 7}/{n:04}": chance.randbytes(chance.randrange(90_000)) for n in range(count)
    }
    objects["in 0/0000"], objects["in 1/0001"] = b"", b"x"
    for n in range(3):
        objects[f"in {n % 7}/{n + 7:04}"] = chance.randbytes(12 * 2**20 + n)
    objects["in 3/0010"] = chance.randbytes(70 * 2**20)
    return dict(list(objects.items())[:count])


def moved(place: Place) -> int:
    ((files, arrived),) = place.ask(
        "SELECT moved_files, (SELECT COALESCE(SUM(arrived), 0) FROM staging_sourcefile)"
        " FROM staging_source"
    )
    return files + arrived // 10**7


def state_of(place: Place) -> str:
    ((state,),) = place.ask("SELECT state FROM staging_dataset")
    return state


def check(place: Place, objects: dict[str, bytes]) -> None:
    """Each object once, under its name, with its digest, and no room kept for nothing."""
    rows = place.ask(
        "SELECT f.path, f.size, f.state, b.key, b.verified_at IS NOT NULL, b.links"
        " FROM staging_file f JOIN staging_blob b ON b.id = f.blob_id"
    )
    assert len(rows) == len(objects)
    for path, size, state, key, verified, links in rows:
        assert (size, state, bool(verified), links) == (len(objects[path]), "staged", True, 1)
        stored = (place.folder / "store" / key).read_bytes() if size else b""
        assert hashlib.sha256(stored).digest() == hashlib.sha256(objects[path]).digest(), path
    ((files, there, size, promised),) = place.ask(
        "SELECT moved_files, there_files, moved_bytes, promised_bytes FROM staging_source"
    )
    assert (files + there, size, promised) == (len(objects), sum(map(len, objects.values())), 0)
    assert place.ask("SELECT promised_bytes, stored_bytes FROM staging_teamusage") == [(0, size)]
    assert place.ask("SELECT COUNT(*) FROM staging_part") == [(0,)]


def test_two_of_three_workers_and_the_broker_die_while_500_objects_sync(place, weed, bucket, relay):
    objects = many(OBJECTS)
    weed.put(bucket, objects)
    relay.rate = 12 * 2**20
    (broker,) = place.processes
    place.begin(
        name="Five hundred", endpoint=relay.endpoint, bucket=bucket, key_id=KEY, secret=SECRET
    )
    place.beat()
    workers = [place.worker() for _ in range(3)]
    chance = random.Random()  # noqa: S311
    for share in (0.15, 0.5):
        until(lambda s=share: moved(place) > OBJECTS * s, "the sync gets on", LIMIT_S)
        victim = workers.pop(chance.randrange(len(workers)))
        place.kill(victim)
        workers.append(place.worker())
    until(lambda: moved(place) > OBJECTS * 0.6, "the sync gets on", LIMIT_S)
    place.kill(broker)
    place.start_broker()  # its queue is lost
    relay.rate = 0
    until(lambda: state_of(place) == "staged", "the dataset is staged", LIMIT_S)
    check(place, objects)


def test_a_worker_that_is_asked_to_end_gives_its_parts_back(place, weed, bucket, relay):
    """As Ctrl-C does: the next worker need not wait until claims end by themselves."""
    objects = many(40)
    weed.put(bucket, objects)
    relay.rate = 2**20
    place.begin(name="Forty", endpoint=relay.endpoint, bucket=bucket, key_id=KEY, secret=SECRET)
    place.beat()
    options = ("--queues", "transfer", "--concurrency", "2", "--loglevel", "WARNING")
    worker = place.celery("worker", *options, "--without-gossip", "--without-mingle")
    claimed = "SELECT COUNT(*) FROM staging_part WHERE claimed_until IS NOT NULL"
    until(lambda: place.ask(claimed) != [(0,)], "parts are claimed", LIMIT_S)
    until(lambda: moved(place) > 0, "the sync gets on", LIMIT_S)
    worker.terminate()
    assert worker.wait(LIMIT_S) == 0
    assert state_of(place) == "transferring"
    assert place.ask(claimed) == [(0,)]
    relay.rate = 0
    place.worker()
    until(lambda: state_of(place) == "staged", "the dataset is staged", LIMIT_S)
    check(place, objects)

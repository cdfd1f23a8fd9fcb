"""A source's life: pausing, cancelling, room, back-off, and who waits for whom."""

import errno
import os
import time

import pytest

from portal.base.errors import Conflict, NoRoom
from staging import blobs, services, store
from staging.models import Blob, Dataset, DeadKey, Part, Source, SourceFile, TeamUsage
from staging.states import DatasetReason, DatasetState
from staging.sync import claims, copying, listing, opening, progress, pump, record, sources
from staging.sync.errors import SourceAway, Trouble
from staging.sync.states import PartKind, SourceReason, SourceState
from tests.staging.sync.conftest import begin, connect, contents, finish, run_until
from tests.staging.sync.slow import Relay
from tests.staging.sync.stubs import Stub
from tests.staging.sync.test_folders import listed

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.xdist_group("weed")]
ACTOR = "owner@climate.example"


@pytest.fixture
def relay(weed):
    relay = Relay(weed.port)
    yield relay
    relay.close()


def turn(seconds: float) -> None:
    pump.run(time.monotonic() + seconds)


# -- resuming


def test_a_range_goes_on_at_the_byte_where_it_stopped(team, weed, bucket, relay):
    body = os.urandom(30 * 2**20)
    weed.put(bucket, {"large": body})
    source = begin(connect(team, weed, bucket, endpoint=relay.endpoint))
    relay.rate = 6 * 2**20
    turn(3)
    source.refresh_from_db()
    part = Part.objects.get(source=source)
    assert 0 < part.arrived < len(body)
    assert part.arrived == source.files.get().arrived
    relay.rate, before = 0, relay.passed
    assert finish(source).dataset.state == DatasetState.STAGED
    assert relay.passed - before < len(body) - part.arrived + 2**20
    assert contents(source.dataset) == {"large": body}


@pytest.mark.parametrize("share", [0.6, 1])
def test_a_worker_that_died_after_writing_loses_at_most_its_part(team, weed, bucket, share):
    """S2: at 60 % and again exactly at 100 %; a range at the end of a file is done, no error."""
    body = os.urandom(20 * 2**20 + 77)
    weed.put(bucket, {"large": body})
    source = begin(connect(team, weed, bucket))
    listed(source)
    part, file = Part.objects.get(source=source), source.files.get()
    there = int(len(body) * share)
    store.write_new(file.store_key, body[:there])
    Part.objects.update(arrived=there, generation=3)
    SourceFile.objects.update(arrived=there)
    (order,) = claims.claim_parts(source.pk, 1, source.created_at)
    assert order.part == part.pk
    outcome = copying.copy(opening.reader_of(source), order, time.monotonic() + 60)
    assert (outcome.left, outcome.arrived) == (False, len(body))
    record.record(source.pk, [outcome])
    assert finish(source).dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == {"large": body}


def test_a_connection_that_breaks_again_and_again_still_ends(
    team, weed, bucket, relay, monkeypatch
):
    monkeypatch.setattr(record, "wait_of", lambda tries: record.timedelta(0))
    body = os.urandom(30 * 2**20)
    weed.put(bucket, {"large": body, "small": b"x"})
    relay.cut_after = 4 * 2**20
    source = finish(begin(connect(team, weed, bucket, endpoint=relay.endpoint)))
    assert source.dataset.state == DatasetState.STAGED, source.sentence
    assert contents(source.dataset)["large"] == body


def test_what_a_second_claimer_brings_is_let_go(team, weed, bucket):
    weed.put(bucket, {"a": b"once"})
    source = begin(connect(team, weed, bucket))
    listed(source)
    (first,) = claims.claim_parts(source.pk, 1, source.created_at)
    assert claims.claim_parts(source.pk, 1, source.created_at) == []
    Part.objects.update(claimed_until=source.created_at)
    (second,) = claims.claim_parts(source.pk, 1, source.created_at)
    reader, until = opening.reader_of(source), time.monotonic() + 60
    outcomes = [copying.copy(reader, order, until) for order in (first, second)]
    for outcome in [*outcomes, *outcomes]:
        record.record(source.pk, [outcome])
    source.refresh_from_db()
    assert (source.moved_files, source.state) == (1, SourceState.DONE)
    assert Blob.objects.get().links == 1
    assert not DeadKey.objects.exists()


def test_files_too_slow_for_one_turn_become_parts_that_resume(
    team, weed, bucket, relay, monkeypatch
):
    monkeypatch.setattr(record, "SLOW_S", 0.5)
    body = os.urandom(6 * 2**20)
    weed.put(bucket, {"slow": body})
    source = begin(connect(team, weed, bucket, endpoint=relay.endpoint))
    listed(source)
    relay.rate = 2 * 2**20
    turn(2.5)
    assert Part.objects.get(source=source, done=False).kind == PartKind.RANGE
    turn(2.5)
    assert SourceFile.objects.get().arrived > 0
    relay.rate = 0
    assert contents(finish(source).dataset) == {"slow": body}


# -- verbs


def test_pausing_stops_and_resuming_goes_on(team, weed, bucket):
    weed.put(bucket, {"a": b"x"})
    source = begin(connect(team, weed, bucket))
    sources.pause(source=source, actor=ACTOR)
    turn(2)
    source.refresh_from_db()
    assert (source.state, source.reason) == (SourceState.PAUSED, SourceReason.BY_PERSON)
    assert progress.progress_of(source)["may"] == ["resume", "cancel"]
    sources.resume(source=source, actor=ACTOR)
    assert finish(source).dataset.state == DatasetState.STAGED
    with pytest.raises(Conflict):
        sources.pause(source=source, actor=ACTOR)
    with pytest.raises(Conflict, match="delete the dataset"):
        sources.cancel(source=source, actor=ACTOR)


def begun(team, weed, bucket, relay) -> Source:
    """A source of which a part of a large file has arrived."""
    weed.put(bucket, {"large": os.urandom(30 * 2**20), "small": b"x"})
    source = begin(connect(team, weed, bucket, endpoint=relay.endpoint))
    relay.rate = 6 * 2**20
    turn(3)
    source.refresh_from_db()
    assert source.promised_bytes
    return source


def nothing_left(team) -> None:
    blobs.bury(DeadKey.objects.all())
    usage = TeamUsage.objects.get(team=team)
    stored = sum(Blob.objects.filter(dead_at=None).values_list("size", flat=True))
    assert (usage.promised_bytes, usage.stored_bytes) == (0, stored)
    keys = {blob.key for blob in Blob.objects.filter(dead_at=None)}
    found = {str(p.relative_to(store.ensure_root())) for p in store.ensure_root().glob("??/*")}
    assert found == keys


def test_cancelling_gives_the_room_back_and_leaves_no_bytes(team, weed, bucket, relay):
    source = begun(team, weed, bucket, relay)
    orders = claims.claim_parts(source.pk, 8, record.db_now())
    sources.cancel(source=source, actor=ACTOR)
    sources.cancel(source=source, actor=ACTOR)
    relay.rate = 0
    reader = opening.reader_of(source)
    late = [copying.copy(reader, order, time.monotonic() + 60) for order in orders]
    record.record(source.pk, late)
    source.dataset.refresh_from_db()
    assert source.state == SourceState.CANCELLED
    assert source.dataset.reason == DatasetReason.SYNC_CANCELLED
    services.delete_dataset(dataset=source.dataset, actor=ACTOR, reason="deleted_by_person")
    assert services.purge_dataset(dataset=source.dataset).state == DatasetState.PURGED
    nothing_left(team)


def test_deleting_the_dataset_ends_its_sync(team, weed, bucket, relay):
    source = begun(team, weed, bucket, relay)
    services.delete_dataset(dataset=source.dataset, actor=ACTOR, reason="deleted_by_person")
    assert services.purge_dataset(dataset=source.dataset).state == DatasetState.PURGED
    source.refresh_from_db()
    assert source.state == SourceState.CANCELLED
    nothing_left(team)


def test_nobody_adds_files_by_hand(team, weed, bucket):
    weed.put(bucket, {"a": b"x"})
    source = begin(connect(team, weed, bucket))
    with pytest.raises(Conflict, match="A sync fills"):
        services.declare_files(
            dataset=source.dataset, entries=[services.Entry("b", 1)], actor=ACTOR
        )
    with pytest.raises(Conflict, match="A sync fills"):
        services.create_upload(dataset=source.dataset, entry=services.Entry("b", 1), actor=ACTOR)


def test_listing_again_drops_what_is_gone_and_takes_what_came(team, weed, bucket, relay):
    weed.put(bucket, {"gone": b"1", "stays": b"2", "changes": b"3"})
    source = begin(connect(team, weed, bucket))
    listed(source)
    weed.client.delete_object(Bucket=bucket, Key="gone")
    weed.put(bucket, {"changes": b"4", "new": b"5"})
    source = finish(source)
    assert source.state == SourceState.STALE
    assert {n["name"] for n in progress.progress_of(source)["stale"]} == {"gone", "changes"}
    source = finish(sources.list_again(source=source, actor=ACTOR))
    assert contents(source.dataset) == {"stays": b"2", "changes": b"4", "new": b"5"}
    nothing_left(team)


# -- room


def test_what_cannot_fit_is_told_with_numbers_before_anything_moves(team, weed, bucket):
    weed.put(bucket, {"a": b"x" * 3000, "b": b"y" * 2000})
    team.quota_bytes = 4000
    team.save()
    source = finish(begin(connect(team, weed, bucket)))
    assert (source.state, source.reason) == (SourceState.PAUSED, SourceReason.NO_ROOM)
    assert "5 kB" in source.sentence
    assert "4 kB" in source.sentence
    assert source.moved_files == 0
    with pytest.raises(NoRoom):
        sources.resume(source=source, actor=ACTOR)
    team.quota_bytes = None
    team.save()
    sources.resume(source=Source.objects.get(pk=source.pk), actor=ACTOR)
    assert finish(source).dataset.state == DatasetState.STAGED


def test_two_syncs_that_fit_alone_do_not_both_begin(team, weed, bucket):
    """S5 for sources."""
    weed.put(bucket, {"one/a": os.urandom(3000), "two/b": os.urandom(3000)})
    team.quota_bytes = 5000
    team.save()
    connection = connect(team, weed, bucket)
    first, second = begin(connection, "one"), begin(connection, "two", name="Two")
    listed(first)
    listed(second)
    assert {first.state, second.state} == {SourceState.COPYING, SourceState.PAUSED}


def test_a_full_disk_pauses_with_a_reason_and_is_resumed(team, weed, bucket, monkeypatch):
    """S3."""
    weed.put(bucket, {"a": os.urandom(9 * 2**20), "b": b"x"})
    source = begin(connect(team, weed, bucket))
    with monkeypatch.context() as broken:

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        broken.setattr(store, "write_all", full)
        source = finish(source)
    assert (source.state, source.reason) == (SourceState.PAUSED, SourceReason.DISK_FULL)
    assert source.dataset.state == DatasetState.TRANSFERRING
    assert source.dataset.reason == DatasetReason.DISK_FULL
    sources.resume(source=source, actor=ACTOR)
    assert finish(source).dataset.state == DatasetState.STAGED


# -- sources that are away


def away(team, weed, bucket) -> tuple[Source, Relay]:
    relay = Relay(weed.port)
    weed.put(bucket, {"a": b"x"})
    source = begin(connect(team, weed, bucket, endpoint=relay.endpoint))
    listed(source)
    relay.close()
    return source, relay


def test_a_source_that_is_away_is_left_alone_for_longer_and_longer(team, weed, bucket):
    source, _ = away(team, weed, bucket)
    waits = []
    for _ in range(3):
        turn(3)
        source.refresh_from_db()
        waits.append((source.next_try_at - record.db_now()).total_seconds())
        turn(2)  # before its time it is not touched
        assert Source.objects.get(pk=source.pk).tries == source.tries
        Source.objects.update(next_try_at=None)
    assert source.tries == 3
    assert waits[2] > waits[0]
    assert Part.objects.get().tries == 0
    assert "refuses connections" in source.sentence


def test_one_that_stays_away_is_paused_with_its_reason(team, weed, bucket, monkeypatch):
    monkeypatch.setattr(record, "wait_of", lambda tries: record.timedelta(0))
    source, _ = away(team, weed, bucket)
    source = finish(source)
    assert (source.state, source.reason) == (SourceState.PAUSED, SourceReason.SOURCE_AWAY)
    assert "refuses connections" in source.sentence


def test_a_secret_that_ends_pauses_soon_and_a_new_one_resumes(team, weed, bucket, monkeypatch):
    from staging.sync import connections
    from tests.staging.sync.stores import KEY, SECRET

    monkeypatch.setattr(record, "wait_of", lambda tries: record.timedelta(0))
    weed.put(bucket, {"a": b"x"})
    connection = connect(team, weed, bucket)
    source = begin(connection)
    listed(source)
    connections.change_secret(connection=connection, key_id=KEY, secret="ended", actor=ACTOR)
    source = finish(source)
    assert (source.state, source.reason) == (SourceState.PAUSED, SourceReason.SOURCE_REFUSES)
    connections.change_secret(connection=connection, key_id=KEY, secret=SECRET, actor=ACTOR)
    sources.resume(source=source, actor=ACTOR)
    assert finish(source).dataset.state == DatasetState.STAGED


def test_a_deaf_source_delays_no_other(team, weed, bucket, relay):
    weed.put(bucket, {f"a{n}": b"x" for n in range(300)})
    deaf = begin(connect(team, weed, bucket, endpoint=relay.endpoint, name="Deaf"))
    listed(deaf)
    relay.deaf = True
    relay.drop()
    good = begin(connect(team, weed, bucket), name="Good")
    turn(4)
    good.refresh_from_db()
    deaf.refresh_from_db()
    assert (good.state, good.moved_files) == (SourceState.DONE, 300)
    assert (deaf.state, deaf.moved_files) == (SourceState.COPYING, 0)


def test_a_slow_source_never_gets_all_threads(team, weed, bucket, relay):
    weed.put(bucket, {f"{n}": os.urandom(9 * 2**20) for n in range(9)})
    begin(connect(team, weed, bucket, endpoint=relay.endpoint))
    relay.rate = 2**20
    one = pump.Pump(time.monotonic() + 3)
    one.run()
    assert one.crew.count <= pump.PER_SOURCE < pump.THREADS


def test_seats_bound_the_workers_that_copy(team, weed, bucket, settings):
    settings.SYNC_WORKERS = 2
    now = record.db_now()
    assert [claims.take_seat(now) for _ in range(3)] == [0, 1, None]
    claims.leave_seat(1, now)
    assert claims.take_seat(now) == 1
    begin(connect(team, weed, bucket))
    assert pump.run(time.monotonic() + 2) is None


# -- the listing


def test_a_listing_resumes_and_holds_no_more_than_a_page(team):
    """Ten pages, cut off after the third: each is asked for once, and none is lost."""

    def reply(path, headers):
        if "list-type" not in path:
            return 403, {}, b""
        at = int(path.partition("continuation-token=")[2].partition("&")[0] or 0)
        keys = "".join(
            f"<Contents><Key>k{at * 100 + n:06}</Key><Size>0</Size><ETag>e</ETag></Contents>"
            for n in range(100)
        )
        more = f"<NextContinuationToken>{at + 1}</NextContinuationToken>" if at < 9 else ""
        cut = "true" if more else "false"
        text = f"<ListBucketResult><IsTruncated>{cut}</IsTruncated>{more}{keys}</ListBucketResult>"
        return 200, {}, text.encode()

    stub = Stub(reply)
    source = begin(connect(team, None, "bkt", endpoint=stub.endpoint))
    assert listing.claim_listing(source, source.created_at)
    pages = opening.reader_of(source).pages({})
    for _ in range(3):
        assert listing.store_page(source, next(pages))
    listing.release_listing(source)
    source = finish(source)
    stub.close()
    assert source.dataset.state == DatasetState.STAGED
    assert source.dataset.files.count() == source.listed_files == 1000
    asked = [path for path in stub.asked if "list-type" in path]
    assert len(asked) == len(set(asked)) == 10


def test_a_listing_that_turns_in_a_circle_is_given_up(team):
    page = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
        b"</NextContinuationToken><Contents><Key>k</Key><Size>0</Size></Contents>"
        b"</ListBucketResult>"
    )
    stub = Stub(lambda path, headers: (200 if "list-type" in path else 403, {}, page))
    reader = opening.reader_of(begin(connect(team, None, "bkt", endpoint=stub.endpoint)))
    with pytest.raises(Trouble, match="does not get on"):
        list(reader.pages({}))
    stub.close()


def test_versions_are_pinned_where_the_bucket_keeps_them(team, weed, bucket):
    weed.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    weed.put(bucket, {"a": b"old"})
    weed.put(bucket, {"a": b"pinned", "b": b"other", "deleted": b"x"})
    weed.client.delete_object(Bucket=bucket, Key="deleted")
    source = begin(connect(team, weed, bucket))
    listed(source)
    assert all(source.files.values_list("version", flat=True))
    weed.put(bucket, {"a": b"overwritten"})
    source = finish(source)
    assert source.dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == {"a": b"pinned", "b": b"other"}


def test_a_failed_check_is_taken_up_by_listing_again(team, weed, bucket):
    weed.put(bucket, {"a": b"right", "b": b"other"})
    source = begin(connect(team, weed, bucket))

    def copied() -> bool:
        source.refresh_from_db()
        return source.state == SourceState.DONE

    run_until(copied, "everything has arrived")
    blob = source.dataset.files.get(path="a").blob
    store.path_of(blob.key).write_bytes(b"wrong")
    services.verify_dataset(dataset=Dataset.objects.get(pk=source.dataset_id))
    source.dataset.refresh_from_db()
    assert source.dataset.state == DatasetState.FAILED
    source = finish(sources.list_again(source=source, actor=ACTOR))
    assert source.dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == {"a": b"right", "b": b"other"}


def test_no_trouble_reaches_further_than_it_says():
    assert not issubclass(Trouble, SourceAway)

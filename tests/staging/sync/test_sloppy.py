"""Servers that do not keep the protocol: the data is right, or it is refused."""

import hashlib
import os
import time

import pytest

from staging.states import DatasetState
from staging.sync import claims, copying, opening, record
from staging.sync.errors import Changed, Trouble, Unreadable
from staging.sync.readers import Pinned
from staging.sync.s3 import Bucket, S3Reader
from staging.sync.states import SourceState
from tests.staging.sync.conftest import begin, connect, contents, finish, run_until
from tests.staging.sync.stubs import Stub

pytestmark = [pytest.mark.django_db, pytest.mark.stores, pytest.mark.xdist_group("weed")]
BODY = bytes(range(256)) * 40


@pytest.fixture
def sloppy(team, rclone):
    """(store, bucket, connection) of rclone: no conditions, ranges answered with 200."""
    name = f"sloppy-{os.urandom(4).hex()}"
    rclone.client.create_bucket(Bucket=name)
    return rclone, name, connect(team, rclone, name)


def test_rclone_is_copied_right_small_and_large(sloppy):
    store, bucket, connection = sloppy
    objects = {"small": b"few bytes", "deep/large": os.urandom(70 * 2**20 + 3)}
    store.put(bucket, objects)
    source = finish(begin(connection))
    assert source.dataset.state == DatasetState.STAGED, source.sentence
    assert contents(source.dataset) == objects


def one_range(source) -> None:
    """List a source, and copy the first of its parts only."""
    from staging.sync import listing

    assert listing.claim_listing(source, source.created_at)
    for page in opening.reader_of(source).pages({}):
        assert listing.store_page(source, page)
    assert listing.end_listing(source)
    (order,) = claims.claim_parts(source.pk, 1, source.created_at)
    outcome = copying.copy(opening.reader_of(source), order, time.monotonic() + 60)
    assert not outcome.left, outcome.trouble
    record.record(source.pk, [outcome])


@pytest.mark.parametrize("which", ["weed", "rclone"])
def test_overwritten_between_two_ranges_never_becomes_a_mixed_file(which, request, team):
    store = request.getfixturevalue(which)
    bucket = f"mixed-{os.urandom(4).hex()}"
    store.client.create_bucket(Bucket=bucket)
    size = 40 * 2**20
    store.put(bucket, {"large": os.urandom(size), "other": b"unchanged"})
    source = begin(connect(team, store, bucket))
    one_range(source)
    store.put(bucket, {"large": (new := os.urandom(size))})
    source = finish(source)
    assert (source.state, source.dataset.state) == (SourceState.STALE, DatasetState.STALE)
    from staging.sync import sources

    sources.list_again(source=source, actor="owner@climate.example")
    source = finish(source)
    assert source.dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == {"large": new, "other": b"unchanged"}


def reader_for(reply) -> tuple[S3Reader, Stub]:
    stub = Stub(reply)
    return S3Reader(Bucket(stub.endpoint, "us-east-1", "bkt")), stub


def pinned(etag: str = "e1") -> Pinned:
    return Pinned(1, "key", len(BODY), etag, "", "", "aa/bb")


def fetched(reply, start: int = 100, stop: int = 300) -> bytes:
    reader, stub = reader_for(reply)
    until = time.monotonic() + 20
    try:
        with reader.fetch(pinned(), start, stop, until) as body:
            view, found = memoryview(bytearray(64)), b""
            while count := body.read_into(view, until):
                found += view[:count]
            return found
    finally:
        stub.close()


ETAG = {"ETag": '"e1"'}
RANGE = f"bytes 100-299/{len(BODY)}"


def test_a_proper_range():
    assert (
        fetched(lambda *_: (206, ETAG | {"Content-Range": RANGE}, BODY[100:300])) == BODY[100:300]
    )


def test_a_whole_answer_is_read_up_to_the_range():
    assert fetched(lambda *_: (200, ETAG, BODY)) == BODY[100:300]


def test_a_part_that_calls_itself_the_whole_is_asked_for_as_the_whole():
    def reply(path, headers):
        return 200, ETAG, BODY[100:300] if "Range" in headers else BODY

    assert fetched(reply) == BODY[100:300]


@pytest.mark.parametrize(
    ("status", "headers", "body", "error"),
    [
        (206, ETAG | {"Content-Range": f"bytes 0-199/{len(BODY)}"}, BODY[:200], Trouble),
        (206, ETAG | {"Content-Range": "bytes 100-299/9"}, BODY[100:300], Changed),
        (206, ETAG | {"Content-Range": "bytes */9"}, BODY[100:300], Trouble),
        (206, ETAG, BODY[100:300], Trouble),
        (206, {"ETag": '"e2"', "Content-Range": RANGE}, BODY[100:300], Changed),
        (206, {"Content-Range": RANGE}, BODY[100:300], Changed),
        (200, {"ETag": '"e2"'}, BODY, Changed),
        (200, ETAG, BODY + b"x", Changed),
        (200, ETAG | {"Content-Length": "10240", "Connection": "close"}, BODY[:120], Trouble),
        (200, ETAG | {"Content-Length": "-1"}, BODY, Trouble),
        (412, {}, b"", Changed),
        (416, {}, b"", Changed),
        (404, {}, b"<Error><Code>NoSuchKey</Code></Error>", Changed),
        (404, {}, b"<Error><Code>NoSuchBucket</Code></Error>", Trouble),
        (403, {}, b"<Error><Code>AccessDenied</Code></Error>", Unreadable),
        (403, {}, b"<Error><Code>InvalidObjectState</Code></Error>", Unreadable),
        (500, {}, b"no XML at all", Trouble),
        (503, {}, b"", Trouble),
        (302, {"Location": "http://127.0.0.1:1/"}, b"", Trouble),
        (204, {}, b"", Trouble),
    ],
)
def test_what_does_not_hold_the_range_is_refused(status, headers, body, error):
    with pytest.raises(error):
        fetched(lambda *_: (status, headers, body))


def listing_of(etag: str, size: int) -> bytes:
    return (
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>key</Key>"
        f"<Size>{size}</Size><ETag>&quot;{etag}&quot;</ETag></Contents></ListBucketResult>"
    ).encode()


def stub_source(team, bodies: list[bytes], etag: str):
    """A source of one object whose answers are `bodies`, one after the other, then the last."""

    def reply(path, headers):
        if "list-type" in path:
            return 200, {}, listing_of(etag, len(bodies[-1]))
        if "versioning" in path:
            return 403, {}, b""
        body = bodies.pop(0) if len(bodies) > 1 else bodies[0]
        return 200, {"ETag": f'"{etag}"'}, body

    stub = Stub(reply)
    return begin(connect(team, None, "bkt", endpoint=stub.endpoint)), stub


def test_damage_on_the_way_is_noticed_by_the_md5_and_tried_again(team, monkeypatch):
    monkeypatch.setattr(record, "wait_of", lambda tries: record.timedelta(0))
    etag = hashlib.md5(BODY, usedforsecurity=False).hexdigest()
    source, stub = stub_source(team, [BODY[:-1] + b"?", BODY], etag)
    source = finish(source)
    stub.close()
    assert source.dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == {"key": BODY}


def test_what_never_matches_its_md5_is_never_staged(team, monkeypatch):
    monkeypatch.setattr(record, "wait_of", lambda tries: record.timedelta(0))
    source, stub = stub_source(team, [BODY], "0" * 32)
    source = finish(source)
    stub.close()
    assert (source.state, source.dataset.state) == (SourceState.FAILED, DatasetState.FAILED)
    assert "MD5" in source.files.get().sentence


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"<ListBucketResult><Contents><Size>x</Size></Contents></ListBucketResult>",
        b"\xff\xfe",
        b"<a>" * 5000,
    ],
)
def test_a_listing_that_is_none_harms_nobody(team, answer):
    stub = Stub(lambda path, headers: (200, {}, answer))
    source = begin(connect(team, None, "bkt", endpoint=stub.endpoint))

    def noticed() -> bool:
        source.refresh_from_db()
        return bool(source.sentence)

    run_until(noticed, "the trouble is noted")
    stub.close()

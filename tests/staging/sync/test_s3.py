"""Sync from a real S3 server: SeaweedFS."""

import os

import pytest

from staging.models import Blob, DeadKey, Part, SourceFile, TeamUsage
from staging.states import DatasetState, FileState
from staging.sync import progress, sources
from staging.sync.states import SourceKind, SourceReason, SourceState
from tests.staging.sync.conftest import begin, contents, finish

pytestmark = [pytest.mark.django_db, pytest.mark.xdist_group("weed")]


def test_a_bucket_becomes_a_staged_dataset(weed, bucket, connection):
    objects = {
        "day 1/a.bin": b"first",
        "day 1/é ü.txt": b"second",
        "big.bin": os.urandom(21 * 2**20 + 5),
        "empty": b"",
        "+ %41&?#.csv": b"third",
        "Case": b"upper",
        "case": b"lower",
    }
    weed.put(bucket, objects)
    source = finish(begin(connection))
    assert source.state == SourceState.DONE, source.sentence
    assert source.dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == objects
    assert {f.state for f in source.dataset.files.all()} == {FileState.STAGED}
    usage = TeamUsage.objects.get(team=connection.team)
    assert (usage.promised_bytes, usage.stored_bytes) == (0, sum(map(len, objects.values())))
    assert not Part.objects.exists()
    told = progress.progress_of(source)
    assert (told["files_here"], told["bytes_here"]) == (7, usage.stored_bytes)


def test_prefix_and_patterns_choose(weed, bucket, connection):
    weed.put(bucket, {f"in/{n}": b"x" for n in ("a.csv", "b.txt", "deep/c.csv", "tmp/d.csv")})
    weed.put(bucket, {"out/e.csv": b"x", "in2/f.csv": b"x"})
    source = finish(begin(connection, "in", include=("*.csv",), exclude=("tmp/",)))
    assert set(contents(source.dataset)) == {"a.csv", "deep/c.csv"}


def test_a_second_sync_moves_only_what_is_new_or_changed(weed, bucket, connection):
    weed.put(bucket, {"a": b"same", "b": b"old", "big": os.urandom(9 * 2**20)})
    finish(begin(connection))
    weed.put(bucket, {"b": b"new!", "c": b"added"})
    source = finish(begin(connection, name="Again"))
    assert source.dataset.state == DatasetState.STAGED
    assert (source.there_files, source.moved_files) == (2, 2)
    assert contents(source.dataset)["b"] == b"new!"


def test_a_sync_of_another_team_links_nothing(weed, bucket, connection, other_team):
    from tests.staging.sync.conftest import connect

    weed.put(bucket, {"a": b"same"})
    finish(begin(connection))
    theirs = finish(begin(connect(other_team, weed, bucket)))
    assert (theirs.there_files, theirs.moved_files) == (0, 1)
    assert Blob.objects.filter(team=other_team).count() == 1


def test_equal_bytes_under_two_keys_are_kept_once(weed, bucket, connection):
    weed.put(bucket, {"a": b"twin", "b": b"twin"})
    source = finish(begin(connection))
    assert contents(source.dataset) == {"a": b"twin", "b": b"twin"}
    assert Blob.objects.get().links == 2
    assert DeadKey.objects.count() == 1


def test_awkward_keys_are_named_and_stop_nothing(weed, bucket, connection):
    weed.put(bucket, {"a": b"file", "a/b": b"below", "z/": b"", "ctl\x01": b"x"})
    weed.put(bucket, {"good": b"yes", "nul.txt": b"device"})
    source = finish(begin(connection))
    assert source.dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == {"a/b": b"below", "good": b"yes"}
    named = {problem["name"] for problem in source.problems}
    assert {"a", "z/", "nul.txt"} <= named
    assert source.skipped == 4


def test_a_source_without_a_chosen_file_fails_with_that_reason(weed, bucket, connection):
    source = finish(begin(connection))
    assert (source.state, source.reason) == (SourceState.FAILED, SourceReason.NOTHING)
    assert source.dataset.state == DatasetState.FAILED
    weed.put(bucket, {"late": b"here"})
    sources.retry(source=source, actor="owner@climate.example")
    assert finish(source).dataset.state == DatasetState.STAGED


def test_preview_counts_and_names_the_largest_before_anything_moves(
    weed, bucket, connection, dataset
):
    weed.put(bucket, {f"{n:02}": b"x" * n for n in range(20)} | {"a/": b""})
    choice = sources.Choice(SourceKind.S3, connection, exclude=("0*",))
    found = sources.preview(dataset=dataset, choice=choice)
    assert found.complete
    assert (found.files, found.size, found.skipped) == (10, sum(range(10, 20)), 1)
    assert max(found.largest) == (19, "19")
    assert not SourceFile.objects.exists()


def test_an_object_overwritten_before_it_is_copied_is_stale(weed, bucket, connection):
    weed.put(bucket, {"a": b"first", "b": b"other"})
    source = begin(connection)
    from staging.sync import listing, opening

    assert listing.claim_listing(source, source.created_at)
    (page,) = opening.reader_of(source).pages({})
    assert listing.store_page(source, page)
    weed.put(bucket, {"a": b"FIRST"})
    source = finish(source)
    assert (source.state, source.dataset.state) == (SourceState.STALE, DatasetState.STALE)
    told = progress.progress_of(source)
    assert [entry["name"] for entry in told["stale"]] == ["a"]
    assert "list_again" in told["may"]
    sources.list_again(source=source, actor="owner@climate.example")
    source = finish(source)
    assert source.dataset.state == DatasetState.STAGED
    assert contents(source.dataset) == {"a": b"FIRST", "b": b"other"}
    assert (source.there_files, source.moved_files) == (1, 1)

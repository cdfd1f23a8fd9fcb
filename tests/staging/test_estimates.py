"""Looks at transfers: what is learned, shown, kept and forgotten."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import DatabaseError

from portal.base.clock import db_now
from staging import services, tasks
from staging.estimates import notes, uploading
from staging.estimates.models import LinkKind
from staging.estimates.notes import Count, Way
from staging.estimates.shown import Shown, shown_of
from staging.estimates.subjects import of_dataset
from staging.models import Dataset, Estimate, Link, Transfer, Upload

pytestmark = [pytest.mark.django_db, pytest.mark.db]
MB = 10**6
WAY = Way(LinkKind.S3, "https://s3.example", "file:///store")


def count(done: int, files: int = 0, **changes) -> Count:
    """Of 40 files with 400 MB."""
    return replace(Count("dataset:x", WAY, 40, 400 * MB, files, done * MB), **changes)


def run(clock, seconds: int, rate: int = 10, start: int = 0, **changes) -> Transfer:
    """A look a second at something that moves `rate` MB a second."""
    row = None
    for second in range(seconds):
        done = start + second * rate
        row = notes.observe(count(done, done // 10, **changes), clock.now)
        clock.tick(1)
    assert row is not None
    return row


class TestLooks:
    def test_the_first_seconds_of_a_new_link_say_nothing(self, clock):
        assert run(clock, 3).p50_s is None
        row = run(clock, 3, start=30)
        assert row.p50_s == pytest.approx((400 - 50) / 10, rel=0.1)
        assert row.rate == pytest.approx(10 * MB)
        assert row.p90_s > row.p50_s

    def test_a_link_with_history_is_known_from_the_first_look(self, clock):
        notes.end(run(clock, 41), at=clock.now, complete=True)
        row = notes.observe(count(0, subject="dataset:y"), clock.now)
        assert row is not None
        assert row.p50_s == pytest.approx(40, rel=0.2)
        other = notes.observe(count(0, subject="dataset:z", way=Way("s3", "b", "c")), clock.now)
        assert other is not None
        assert other.p50_s is None

    def test_what_was_there_at_the_first_look_teaches_nothing(self, clock):
        row = run(clock, 6, start=200)
        assert row.rate == pytest.approx(10 * MB)

    def test_never_above_the_whole_and_never_back(self, clock):
        run(clock, 5)
        held = notes.observe(count(39, 3), clock.now)
        assert held is not None
        assert held.bytes_done == 39 * MB
        clock.tick(1)
        above = notes.observe(count(390, 39, bytes_air=50 * MB, files_air=9), clock.now)
        assert above is not None
        assert (above.files_done, above.bytes_done) == (40, 400 * MB)
        clock.tick(1)
        landed = notes.observe(count(395, 39), clock.now)
        assert landed is not None
        assert landed.bytes_done == 400 * MB

    def test_back_where_bytes_are_sent_again(self, clock):
        run(clock, 8)
        again = notes.observe(count(20, 2), clock.now)
        assert again is not None
        assert (again.files_done, again.bytes_done) == (2, 20 * MB)

    def test_a_pause_is_no_part_of_a_rate(self, clock):
        run(clock, 8)
        paused = notes.observe(count(70, 7, moving=False), clock.now)
        assert paused is not None
        assert (paused.p50_s, paused.paused) == (None, True)
        clock.tick(3600)
        assert run(clock, 6, start=70).rate == pytest.approx(10 * MB, rel=0.05)

    def test_who_sends_nothing_for_long_has_paused(self, clock):
        run(clock, 8, idle_s=15.0)
        clock.tick(30)
        still = notes.observe(count(70, 7, idle_s=15.0), clock.now)
        assert still is not None
        assert still.p50_s is None
        clock.tick(600)
        assert run(clock, 6, start=80, idle_s=15.0).rate == pytest.approx(10 * MB, rel=0.1)

    def test_a_standstill_of_what_should_move_makes_it_later(self, clock):
        before = run(clock, 8)
        clock.tick(60)
        still = notes.observe(count(70, 7), clock.now)
        assert still is not None
        assert still.p50_s > 2 * before.p50_s

    def test_what_was_there_without_moving_is_no_speed(self, clock):
        """Half of a lease's data is on the node already: what is left moves for its other half."""
        for second in range(8):
            done = second * 20
            row = notes.observe(count(done, done // 10, bytes_free=done // 2 * MB), clock.now)
            clock.tick(1)
        assert row is not None
        assert row.rate == pytest.approx(10 * MB, rel=0.05)
        assert row.p50_s == pytest.approx((400 - 140) / 20, rel=0.2)

    def test_looks_that_come_at_once_are_one(self, clock):
        first = run(clock, 5)
        clock.tick(-0.5)
        again = notes.observe(count(48, 4), clock.now)
        assert again is not None
        assert again.bytes_done == first.bytes_done

    def test_of_two_looks_at_once_one_is_left_out(self, clock):
        run(clock, 5)
        one, other = notes.going("dataset:x"), notes.going("dataset:x")
        assert one is not None
        assert other is not None
        for row, done in ((one, 50), (other, 60)):
            book = notes._Book(row)
            book.move(count(done, done // 10), clock.now)
            book.save(clock.now)
        assert Transfer.objects.get().bytes_done == 50 * MB

    def test_a_database_that_refuses_is_no_error(self, clock, monkeypatch):
        def refuse(*args: object) -> None:
            raise DatabaseError("away")

        monkeypatch.setattr(notes, "_observe", refuse)
        assert notes.observe(count(0), clock.now) is None

    def test_a_link_that_is_slow_with_bytes_may_be_quick_with_files(self, clock):
        """At 10 kB a second; nothing is known of files before the first has come."""
        row = None
        for second in range(8):
            row = notes.observe(
                count(0, bytes=400_000, files=4, bytes_done=second * 10_000), clock.now
            )
            clock.tick(1)
        assert row is not None
        assert row.p50_s == pytest.approx(33, rel=0.1)


class TestKept:
    def test_estimates_are_kept_with_their_moment_and_thinned(self, clock):
        row = run(clock, 40)
        kept = list(Estimate.objects.filter(transfer=row))
        assert 10 <= len(kept) <= 20
        assert all(one.at < other.at for one, other in pairwise(kept))
        assert kept[-1].bytes_left == row.bytes - row.bytes_done

    def test_they_may_be_judged_once_it_has_ended(self, clock):
        row = run(clock, 41)
        notes.end(row, at=clock.now, complete=True)
        row = Transfer.objects.get()
        assert (row.complete, row.paused, row.bytes_done) == (True, False, 400 * MB)
        late = [e for e in row.estimates.all() if (row.ended_at - e.at).total_seconds() > e.p90_s]
        assert len(late) <= row.estimates.count() / 5

    def test_a_link_learns_its_errors_from_what_ended(self, clock):
        row = run(clock, 41)
        assert not Link.objects.get().errors
        notes.end(row, at=clock.now, complete=True)
        assert Link.objects.get().errors

    def test_what_was_given_up_teaches_no_error(self, clock):
        notes.end(run(clock, 20), at=clock.now, complete=False)
        assert not Link.objects.get().errors
        assert not Transfer.objects.get().complete

    def test_it_is_forgotten_in_the_end(self, clock):
        notes.end(run(clock, 41), at=clock.now, complete=True)
        notes.forget(clock.now + notes.KEEP - timedelta(days=1))
        assert Estimate.objects.exists()
        notes.forget(clock.now + notes.KEEP + timedelta(days=1))
        assert not Estimate.objects.exists()
        assert not Transfer.objects.exists()
        assert Link.objects.exists()
        notes.forget(clock.now + notes.KEEP_LINKS + timedelta(days=1))
        assert not Link.objects.exists()

    def test_what_nobody_counts_any_more_ends(self, clock):
        run(clock, 5)
        notes.look_at_all(clock.now)
        assert notes.going("dataset:x")
        notes.look_at_all(clock.tick(86400 * 2))
        assert notes.going("dataset:x") is None


class TestUploads:
    @pytest.fixture
    def half(self, dataset, owner, put) -> Dataset:
        put(dataset, "a", b"x" * 1000)
        services.declare_files(
            dataset=dataset, entries=[services.Entry("b", 9000)], actor=owner.email
        )
        return dataset

    def test_the_beat_looks_at_them(self, half, monkeypatch):
        monkeypatch.setattr(tasks, "_measured", (0.0, 0.0))
        tasks.measure()
        row = Transfer.objects.select_related("link").get()
        assert (row.subject, row.files, row.files_done) == (of_dataset(half.code), 2, 1)
        assert (row.bytes, row.bytes_done) == (10_000, 1000)
        assert (row.link.kind, row.link.origin) == ("upload", half.team.code)
        tasks.sweep()

    def test_what_stands_still_is_looked_at_less_often(self, half, clock):
        uploading.look_at_upload(half, clock.now)
        uploading.look_at_upload(half, clock.tick(120))
        row = Transfer.objects.get()
        assert row.next_look_at - clock.now >= timedelta(seconds=30)
        notes.look_at_all(clock.tick(5))
        assert Transfer.objects.get().seen_at == row.seen_at

    def test_it_ends_with_its_last_byte(self, half, owner, clock):
        uploading.look_at_upload(half, clock.now)
        upload = Upload.objects.get(state="open")
        services.receive(upload=upload, offset=0, pieces=[b"y" * 9000])
        services.seal_dataset(dataset=half, actor=owner.email)
        services.verify_dataset(dataset=half)
        notes.look_at_all(db_now())
        row = Transfer.objects.get()
        assert row.complete
        assert row.ended_at == half.files.order_by("-changed_at").first().changed_at
        assert row.bytes_done == 10_000


def shown(**fields) -> Shown:
    values = {"files": 40, "bytes": 980 * MB, "files_done": 12, "bytes_done": 412 * MB} | fields
    return Shown(**values)


def seconds(p50: float, p90: float) -> dict:
    return {"p50": timedelta(seconds=p50), "p90": timedelta(seconds=p90), "rate": 2.0 * MB}


class TestWords:
    def test_how_far(self):
        assert shown().amount == "12 of 40 files, 412 of 980 MB, 42 %"
        assert shown(bytes_done=0, files_done=0).amount == "0 of 40 files, 0 bytes of 980 MB, 0 %"
        assert shown(bytes=0, bytes_done=0).amount == "12 of 40 files, 30 %"
        assert shown(files=1, files_done=1, bytes_done=980 * MB).amount.endswith("100 %")
        assert shown(files_done=39, bytes_done=980 * MB).percent == 99

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({}, "not known yet, too little has moved to say."),
            (seconds(400, 400), "2 MB a second, about 6 min."),
            (seconds(400, 700), "2 MB a second, about 6 min, 9 times in 10 within 11 min."),
            (seconds(0, 0), "2 MB a second, about 1 s."),
            (seconds(9 * 86400 + 5, 10**6), "this takes 9 days; this portal has no faster way."),
            (
                seconds(400, 700) | {"still": timedelta(seconds=45)},
                "Nothing has come for 45 s. At the rate seen before: about 6 min,",
            ),
        ],
    )
    def test_when(self, fields, words):
        assert words in shown(**fields).pace

    def test_nothing_is_said_of_the_pace_of_what_is_paused(self):
        assert shown(moving=False).pace == ""
        assert shown(moving=False).left == "paused"

    def test_time_passes_between_two_looks(self, clock):
        run(clock, 8)
        first = shown_of("dataset:x", clock.now)
        later = shown_of("dataset:x", clock.tick(10))
        assert first is not None
        assert later is not None
        assert first.p50 - later.p50 == timedelta(seconds=10)
        assert shown_of("dataset:y", clock.now) is None


def test_a_page_of_uploads_says_when(mate_client, dataset, owner, put, clock):
    services.declare_files(
        dataset=dataset, entries=[services.Entry("big", 10_000)], actor=owner.email
    )
    now = db_now() - timedelta(seconds=6)
    for second in range(7):
        Upload.objects.update(offset=second * 1000)
        uploading.look_at_upload(dataset, now + timedelta(seconds=second))
    for path in (f"/staging/{dataset.code}/", f"/staging/{dataset.code}/live"):
        page = mate_client.get(path).content.decode()
        assert "1 kB a second, about" in page
    assert "9 times in 10 within" in mate_client.get("/staging/").content.decode()
    assert "9 times in 10 within" in mate_client.get("/").content.decode()

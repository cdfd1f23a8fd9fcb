"""Data on its way to nodes and output on its way back: counts, ends, and what pages say."""

from datetime import timedelta

import pytest

from jobs.awaited import awaited
from jobs.models import Job
from nodes import hauls
from nodes.models import Lease
from portal.base.clock import db_now
from staging.estimates import notes
from staging.estimates.subjects import of_dataset, of_fetch, of_output
from staging.models import File, Transfer
from tests.factories import make_dataset, make_job, make_node
from tests.pages import scenes

pytestmark = [pytest.mark.django_db, pytest.mark.db]
MB = 10**6


@pytest.fixture
def job(team) -> Job:
    """A queued job that reads 40 files with 400 MB."""
    job = make_job(team, name="Retrain")
    data = make_dataset(team, file_count=40, byte_count=400 * MB)
    job.inputs.create(dataset=data, mount="data", file_count=40, byte_count=400 * MB)
    job.shards.update(input_files=40, input_bytes=400 * MB)
    return job


@pytest.fixture
def lease(job) -> Lease:
    """Its attempt, which the node has just been told to fetch."""
    node = make_node("n3", gpus=1)
    return scenes.make_lease(job.shards.get(), node, 0, fetched_bytes=0, moved_bytes=0)


def look(lease: Lease, seconds: int, now, **fields):
    """A look a second while the node fetches 10 MB a second; the time after the last."""
    for second in range(seconds):
        values = {"fetched_files": second, "fetched_bytes": second * 10 * MB} | fields
        Lease.objects.filter(pk=lease.pk).update(moved_bytes=values["fetched_bytes"], **values)
        notes.look_at_all(now)
        now += timedelta(seconds=1)
    return now


def test_data_on_its_way_to_a_node(lease):
    look(lease, 8, db_now())
    row = Transfer.objects.select_related("link").get()
    assert row.subject == of_fetch(lease.code)
    assert (row.link.kind, row.link.target) == ("fetch", lease.node.code)
    assert (row.files, row.bytes, row.bytes_done) == (40, 400 * MB, 70 * MB)
    assert row.p50_s == pytest.approx(33, rel=0.1)


def test_it_ends_when_the_lease_is_ready(lease):
    now = look(lease, 8, db_now())
    Lease.objects.filter(pk=lease.pk).update(state="ready", ready_at=now)
    notes.look_at_all(now + timedelta(seconds=2))
    row = Transfer.objects.get()
    assert (row.complete, row.ended_at) == (True, now)


def test_a_lease_that_is_withdrawn_teaches_no_error(lease):
    now = look(lease, 8, db_now())
    Lease.objects.filter(pk=lease.pk).update(state="void", ended_at=now)
    notes.look_at_all(now)
    row = Transfer.objects.select_related("link").get()
    assert (row.complete, row.link.errors) == (False, {})


def test_what_was_on_the_node_already_is_no_speed(lease):
    """All of it is there: nothing has moved, so the link is not called fast."""
    now = db_now()
    for second in range(4):
        Lease.objects.filter(pk=lease.pk).update(
            fetched_files=second * 10, fetched_bytes=second * 100 * MB, moved_bytes=0
        )
        notes.look_at_all(now)
        now += timedelta(seconds=1)
    Lease.objects.filter(pk=lease.pk).update(
        state="ready", ready_at=now, fetched_files=40, fetched_bytes=400 * MB
    )
    notes.look_at_all(now)
    row = Transfer.objects.select_related("link").get()
    assert (row.complete, row.link.fit) == (True, [])


def test_output_on_its_way_back(job, lease):
    Lease.objects.filter(pk=lease.pk).update(
        state="returning", **{f"{s}_at": db_now() for s in ("ready", "granted", "allocated")}
    )
    for name in "ab":
        File.objects.create(
            dataset=job.output, path=name, size=5 * MB, source=lease.code, state="expected"
        )
    now = db_now()
    notes.look_at_all(now)
    row = Transfer.objects.select_related("link").get()
    assert (row.subject, row.files, row.bytes_done) == (of_output(lease.code), 2, 0)
    assert (row.link.kind, row.link.origin) == ("output", lease.node.code)
    File.objects.filter(path="a").update(state="uploaded", digest="ab" * 32)
    notes.look_at_all(now + timedelta(seconds=2))
    assert Transfer.objects.get().bytes_done == 5 * MB
    Lease.objects.filter(pk=lease.pk).update(output_verified_at=now + timedelta(seconds=4))
    notes.look_at_all(now + timedelta(seconds=5))
    row = Transfer.objects.get()
    assert (row.complete, row.ended_at) == (True, now + timedelta(seconds=4))


def test_a_lease_that_reads_nothing_is_no_transfer(team):
    job = make_job(team)
    scenes.make_lease(job.shards.get(), make_node("n3", gpus=1), 0)
    hauls.look(db_now(), [])
    assert not Transfer.objects.exists()


def test_the_jobs_page_shows_both_ways(mate_client, job, lease):
    look(lease, 8, db_now() - timedelta(seconds=8))
    page = mate_client.get(f"/jobs/{job.code}/").content.decode()
    assert "Data to node n3" in page
    assert "7 of 40 files, 70 of 400 MB, 17 %: 10 MB a second, about" in page
    assert "9 times in 10 within" in page


class TestAwaited:
    """Which dataset, how far, and when."""

    @pytest.fixture
    def waiting(self, team) -> Job:
        return make_job(team, name="Retrain", state="staging", queued_at=None)

    def on_its_way(self, job: Job, name: str, rate: int = 10, seconds: int = 8, **fields):
        values = {"state": "transferring", "staged_at": None, "manifest_digest": ""} | fields
        data = make_dataset(job.team, name=name, sealed_at=None, **values)
        job.inputs.create(dataset=data, mount=name.lower())
        now = db_now() - timedelta(seconds=seconds)
        way = notes.Way("upload", name, "store")
        for second in range(seconds):
            done = second * rate
            notes.observe(
                notes.Count(of_dataset(data.code), way, 40, 400 * MB, done // 10, done * MB),
                now + timedelta(seconds=second),
            )
        return data

    def sentence(self, job: Job) -> str:
        return awaited([job], db_now())[job.pk]

    def test_everywhere_a_job_is_shown(self, mate_client, waiting):
        self.on_its_way(waiting, "Footage")
        sentence = self.sentence(waiting)
        assert sentence.startswith("Waits for Footage: 7 of 40 files, 70 of 400 MB, 17 %: about ")
        assert ", 9 times in 10 within " in sentence
        for path in (f"/jobs/{waiting.code}/", f"/jobs/{waiting.code}/live", "/jobs/", "/"):
            page = mate_client.get(path).content.decode()
            assert "Waits for Footage: 7 of 40 files, 70 of 400 MB" in page, path
            assert "9 times in 10 within" in page, path

    def test_of_several_the_last_one_is_named(self, waiting):
        self.on_its_way(waiting, "Quick", rate=30)
        self.on_its_way(waiting, "Slow", rate=2)
        assert self.sentence(waiting).startswith("Waits for Slow and 1 more: ")

    def test_before_anything_is_known(self, waiting):
        self.on_its_way(waiting, "Footage", seconds=2)
        assert self.sentence(waiting).endswith("2 %: time left not known yet.")

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"state": "declared"}, "no file has been listed yet"),
            ({"state": "verifying"}, "all has arrived and is being checked"),
            ({"state": "stale"}, "its source has changed; list it again"),
            ({"state": "failed"}, "it failed; its page says why"),
            ({"state": "transferring"}, "how far and until when is not known yet"),
        ],
    )
    def test_what_is_no_transfer(self, waiting, fields, words):
        self.on_its_way(waiting, "Footage", seconds=0, **fields)
        assert words in self.sentence(waiting)

    def test_code_is_waited_for_like_data(self, team, waiting):
        code = make_dataset(team, name="Code", kind="code", state="verifying")
        Job.objects.filter(pk=waiting.pk).update(code_dataset=code)
        assert self.sentence(waiting) == "Waits for Code: all has arrived and is being checked."

    def test_a_job_whose_data_is_there_waits_for_none(self, waiting):
        waiting.inputs.create(dataset=make_dataset(waiting.team), mount="data")
        assert awaited([waiting], db_now()) == {}

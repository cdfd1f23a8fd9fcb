"""The verbs of a job's life, without compute: submit, queue, cancel, end, copy."""

import io
from datetime import timedelta

import pytest

from jobs import services as jobs
from jobs.models import Job, JobInput
from jobs.shards import split_by_bytes
from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from staging import services as staging
from staging.models import Dataset, File
from tests.factories import make_dataset, make_job, make_node

pytestmark = pytest.mark.django_db
OWNER = "owner@climate.example"


def staged(team, files: dict[str, bytes]):
    dataset = staging.create_dataset(team=team, name="In", actor=OWNER)
    for path, content in files.items():
        staging.store_bytes(
            dataset=dataset, path=path, content=io.BytesIO(content), size=len(content), actor=OWNER
        )
    staging.seal_dataset(dataset=dataset, actor=OWNER)
    return staging.verify_dataset(dataset=dataset)


def draft(team, dataset=None, **fields) -> Job:
    values = {"name": "Count", "created_by": OWNER, "created_at": db_now(), "script": "x"} | fields
    job = Job.objects.create(team=team, **values)
    if dataset is not None:
        JobInput.objects.create(job=job, dataset=dataset, mount="in", split=True)
    return job


def test_a_job_on_staged_data_is_queued_with_its_shards(team):
    dataset = staged(team, {f"{n}.txt": b"x" * n for n in range(1, 9)})
    job = jobs.submit(job=draft(team, dataset, shard_count=3), actor=OWNER)
    assert (job.state, job.outcome) == ("queued", "")
    shards = list(job.shards.all())
    assert [s.index for s in shards] == [0, 1, 2]
    assert sum(s.input_files for s in shards) == 8
    assert sum(s.input_bytes for s in shards) == 36
    dataset.refresh_from_db()
    assert dataset.holds == 1


def test_a_job_waits_in_staging_until_the_last_input_is_staged(team):
    dataset = staging.create_dataset(team=team, name="In", actor=OWNER)
    job = jobs.submit(job=draft(team, dataset), actor=OWNER)
    assert (job.state, job.shards.count()) == ("staging", 0)
    staging.store_bytes(dataset=dataset, path="a", content=io.BytesIO(b"a"), size=1, actor=OWNER)
    staging.seal_dataset(dataset=dataset, actor=OWNER)
    jobs.advance(job=job, at=db_now())
    assert job.state == "staging"
    staging.verify_dataset(dataset=dataset)
    job.refresh_from_db()
    jobs.advance(job=job, at=db_now())
    assert job.state == "queued"
    jobs.advance(job=job, at=db_now())
    assert job.shards.count() == 1


def test_a_job_is_submitted_once(team):
    job = jobs.submit(job=draft(team), actor=OWNER)
    with pytest.raises(Conflict):
        jobs.submit(job=job, actor=OWNER)


def test_data_that_is_going_cannot_be_declared(team):
    dataset = staged(team, {"a": b"a"})
    staging.delete_dataset(dataset=dataset, actor=OWNER, reason="deleted_by_person")
    job = draft(team, dataset)
    with pytest.raises(Conflict):
        jobs.submit(job=job, actor=OWNER)
    job.refresh_from_db()
    assert (job.state, job.output) == ("draft", None)


@pytest.mark.parametrize(
    ("limits", "fields", "sentence"),
    [
        ({"max_gpus_per_job": 4}, {"gpus": 2, "shard_count": 3}, "hold 6 GPUs at once; the limit"),
        ({"max_hours": 3}, {"time_limit": timedelta(hours=4)}, "asks for 4 hours; the limit"),
    ],
)
def test_a_limit_of_the_team_is_named_with_both_numbers(team, limits, fields, sentence):
    for name, value in limits.items():
        setattr(team, name, value)
    team.save()
    with pytest.raises(DomainError, match=sentence):
        jobs.submit(job=draft(team, **fields), actor=OWNER)


def test_fewer_at_once_stay_within_the_limit(team):
    team.max_gpus_per_job = 4
    team.save()
    job = jobs.submit(job=draft(team, gpus=2, shard_count=3, parallel=2), actor=OWNER)
    assert job.state == "queued"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        # Q2: both numbers are said
        (
            {"memory_bytes": 32_000 * 2**20},
            "A piece needs 32,000 MiB of memory; the largest node has 31,431 MiB.",
        ),
        ({"gpus": 9}, "A piece needs 9 GPUs on one node; the largest node has 2."),
        (
            {"gpus": 1, "gpu_memory_bytes": 80 * 2**30},
            "A piece needs 1 GPU with 81,920 MiB of memory; the largest GPU has 24,576 MiB.",
        ),
        ({"cpus": 9}, "A piece needs 9 CPUs; the largest node has 8."),
        ({"scratch_bytes": 2**50}, "of disk; the largest node has 102,400 MiB."),
    ],
)
def test_what_no_node_could_ever_run_is_refused_at_submit(team, fields, sentence):
    make_node("n1", gpus=2, memory_bytes=31_431 * 2**20)
    make_node("n2", gpus=1, memory_bytes=16 * 2**30)
    with pytest.raises(DomainError) as refused:
        jobs.submit(job=draft(team, **fields), actor=OWNER)
    assert sentence in str(refused.value)


GIB = 2**30
DISK = {"gpus": 0, "scratch_bytes": 30 * GIB, "output_limit_bytes": 30 * GIB}


def listed(team, sizes: list[int], state: str = "staged"):
    """A dataset by its rows alone: what it says of its sizes is all that is looked at."""
    dataset = make_dataset(team, state="staged")
    File.objects.bulk_create(
        File(dataset=dataset, path=f"{n:03}", size=size, digest="a" * 64, position=n)
        for n, size in enumerate(sizes)
    )
    if state != "staged":
        Dataset.objects.filter(pk=dataset.pk).update(state=state, sealed_at=None)
        dataset.refresh_from_db()
    return dataset


def with_input(job: Job, dataset, **fields) -> Job:
    JobInput.objects.create(job=job, dataset=dataset, mount="data", **fields)
    return job


@pytest.mark.parametrize("state", ["staged", "transferring"])
@pytest.mark.parametrize(
    ("sizes", "shards", "how", "data"),
    [
        ([50 * GIB], 1, {}, "51,200 MiB"),
        ([25 * GIB] * 4, 2, {"split": True}, "51,200 MiB"),
        ([50 * GIB] + [1] * 9, 9, {"split": True}, "51,200 MiB"),
        ([25 * GIB] * 2, 2, {"split": False}, "51,200 MiB"),
    ],
)
def test_data_that_fits_no_nodes_disk_is_refused_at_submit(team, sizes, shards, how, data, state):
    """Q2: a piece's part of the data, its scratch and its output must lie on one disk."""
    make_node("n1")  # 100 GiB
    make_node("n2", disk_bytes=10 * GIB)
    dataset = listed(team, sizes, state)
    job = with_input(draft(team, shard_count=shards, **DISK), dataset, **how)
    with pytest.raises(DomainError) as refused:
        jobs.submit(job=job, actor=OWNER)
    assert str(refused.value) == (
        f"A piece needs 112,640 MiB of disk, {data} of it for its data; "
        "the largest node has 102,400 MiB."
    )
    job.refresh_from_db()
    dataset.refresh_from_db()
    assert (job.state, job.output, dataset.holds) == ("draft", None, 0)


def test_only_the_chosen_part_of_the_data_counts(team):
    make_node("n1")
    dataset = listed(team, [40 * GIB, 40 * GIB, 40 * GIB])
    job = with_input(draft(team, **DISK), dataset, patterns=["001"])
    assert jobs.submit(job=job, actor=OWNER).state == "queued"


def test_data_that_turns_out_too_large_ends_the_job_and_stays(team):
    """Nothing was listed yet at submit. It would wait for ever, so it ends, and says the numbers;
    the data stays even where it was to be deleted after release: it can be cut anew."""
    make_node("n1")
    dataset = listed(team, [], "declared")
    job = with_input(draft(team, shard_count=2, **DISK), dataset, split=True, after="delete")
    job = jobs.submit(job=job, actor=OWNER)
    assert job.state == "staging"
    File.objects.create(dataset=dataset, path="a", size=41 * GIB, digest="a" * 64, position=0)
    Dataset.objects.filter(pk=dataset.pk).update(state="staged")
    jobs.advance(job=job, at=db_now())
    job.refresh_from_db()
    dataset.refresh_from_db()
    assert (job.state, job.outcome, job.reason) == ("ended", "failed", "no_node_fits")
    assert job.events.last().detail["sentence"] == (
        "A piece needs 103,424 MiB of disk, 41,984 MiB of it for its data; "
        "the largest node has 102,400 MiB."
    )
    assert (dataset.state, dataset.holds) == ("staged", 0)
    jobs.advance(job=job, at=db_now())
    assert job.events.filter(verb="end").count() == 1


def test_a_finish_step_whose_data_fits_no_node_ends_with_both_numbers(team):
    """Its data is what the others returned, known when the last of them has ended."""
    make_node("n1")
    job = make_job(team, shards=2, finish_command="true", **DISK)
    finish = job.shards.create(index=0, kind="finish", queued_at=db_now())
    first, second = job.shards.filter(kind="main").order_by("index")
    job.shards.filter(kind="main").update(state="active", output_bytes=30 * GIB)
    for shard in (first, second):
        finish.refresh_from_db()
        assert finish.state == "queued"
        shard.refresh_from_db()
        jobs.end_shard(shard=shard, outcome="succeeded", reason="", at=db_now())
    finish.refresh_from_db()
    job.refresh_from_db()
    assert (finish.outcome, finish.reason) == ("failed", "no_node_fits")
    assert "the largest node has 102,400 MiB" in finish.detail
    assert (job.state, job.outcome, job.reason) == ("ended", "failed", "no_node_fits")


def test_a_job_whose_node_has_gone_meanwhile_waits_for_another(team):
    """That no node has the GPUs any more is no reason to end what was accepted."""
    node = make_node("n1", gpus=2)
    dataset = listed(team, [1], "declared")
    job = jobs.submit(job=with_input(draft(team, gpus=2), dataset), actor=OWNER)
    node.gpus.all().update(present=False)
    Dataset.objects.filter(pk=dataset.pk).update(state="staged")
    assert jobs.advance(job=job, at=db_now()).state == "queued"


def test_a_portal_without_nodes_lets_a_job_wait_for_the_first(team):
    assert jobs.submit(job=draft(team, gpus=8), actor=OWNER).state == "queued"


@pytest.mark.parametrize("state", ["staging", "queued"])
def test_cancel_before_compute_ends_at_once(team, state):
    dataset = (
        staged(team, {"a": b"a"})
        if state == "queued"
        else staging.create_dataset(team=team, name="In", actor=OWNER)
    )
    job = jobs.submit(job=draft(team, dataset, shard_count=2, finish_command="true"), actor=OWNER)
    assert job.state == state
    jobs.cancel(job=job, actor=OWNER)
    job.refresh_from_db()
    assert (job.state, job.outcome, job.cancel_asked_by) == ("ended", "cancelled", OWNER)
    assert not job.shards.exclude(outcome="cancelled").exists()
    dataset.refresh_from_db()
    assert dataset.holds == 0
    assert job.output.state in ("expiring", "purged")
    assert job.record.body["held_ms"] == 0
    with pytest.raises(Conflict, match="ended already"):
        jobs.cancel(job=job, actor=OWNER)


def test_cancel_of_what_runs_is_a_request(team):
    job = make_job(team, shards=2)
    running, waiting = job.shards.all()
    running.state = "active"
    running.save()
    job.state = "active"
    job.save()
    jobs.cancel(job=job, actor=OWNER)
    job.refresh_from_db()
    waiting.refresh_from_db()
    assert (job.state, waiting.outcome) == ("active", "cancelled")
    again = jobs.cancel(job=job, actor="mate@climate.example")
    assert again.cancel_asked_by == OWNER
    jobs.end_shard(shard=running, outcome="cancelled", reason="cancelled", at=db_now())
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "cancelled")


def test_a_failed_piece_ends_the_finish_step_and_not_the_others(team):
    job = make_job(team, shards=2, finish_command="true")
    finish = job.shards.create(index=0, kind="finish", queued_at=db_now())
    first, second = job.shards.filter(kind="main")
    jobs.end_shard(shard=first, outcome="failed", reason="exit_code", at=db_now(), exit_code=3)
    finish.refresh_from_db()
    second.refresh_from_db()
    assert (finish.outcome, finish.reason) == ("failed", "predecessor_failed")
    assert second.state == "queued"
    jobs.end_shard(shard=second, outcome="succeeded", reason="", at=db_now())
    job.refresh_from_db()
    assert (job.outcome, job.reason) == ("failed", "exit_code")


def test_an_ended_shard_is_a_sink(team):
    job = make_job(team)
    shard = job.shards.get()
    jobs.end_shard(shard=shard, outcome="failed", reason="exit_code", at=db_now())
    with pytest.raises(Conflict):
        jobs.end_shard(shard=shard, outcome="succeeded", reason="", at=db_now())
    shard.refresh_from_db()
    assert shard.outcome == "failed"


def test_three_faults_of_nodes_use_the_attempts_up(team):
    job = make_job(team)
    shard = job.shards.get()
    for attempt in range(3):
        shard.state = "active"
        shard.save(update_fields=["state"])
        jobs.requeue_shard(shard=shard, reason="silent", at=db_now(), fault=True)
        shard.refresh_from_db()
        assert shard.faults == attempt + 1
    assert (shard.state, shard.outcome, shard.reason) == ("ended", "lost", "node_fault")


def test_two_quarantines_say_that_the_work_breaks_nodes(team):
    shard = make_job(team).shards.get()
    for _ in range(2):
        shard.state = "active"
        shard.save(update_fields=["state"])
        jobs.requeue_shard(
            shard=shard, reason="no_evidence", at=db_now(), fault=True, quarantined=True
        )
        shard.refresh_from_db()
    assert (shard.outcome, shard.reason) == ("failed", "breaks_nodes")


def test_what_the_declaration_deletes_goes_after_the_job_unless_another_needs_it(team):
    dataset = staged(team, {"a": b"a"})
    first = draft(team, dataset)
    first.inputs.update(after="delete")
    jobs.submit(job=first, actor=OWNER)
    second = jobs.submit(job=draft(team, dataset), actor=OWNER)
    jobs.cancel(job=first, actor=OWNER)
    dataset.refresh_from_db()
    assert (dataset.state, dataset.holds) == ("staged", 1)
    third = draft(team, dataset)
    third.inputs.update(after="delete")
    jobs.submit(job=third, actor=OWNER)
    jobs.cancel(job=second, actor=OWNER)
    jobs.cancel(job=third, actor=OWNER)
    dataset.refresh_from_db()
    assert dataset.state in ("expiring", "purged")
    assert dataset.reason == "after_job"


def test_a_copy_has_the_declaration_and_no_secret(team):
    dataset = make_dataset(team)
    job = draft(team, dataset, gpus=2, script="print(2)")
    secret = job.variables.create(name="KEY", secret=True)
    secret.set_value("hunter2")
    secret.save()
    job.variables.create(name="MODE", stored="fast")
    copy = jobs.copy_as_draft(job=job, actor="mate@climate.example")
    assert (copy.state, copy.rerun_of, copy.script, copy.gpus) == ("draft", job, "print(2)", 2)
    assert [v.name for v in copy.variables.all()] == ["MODE"]
    assert copy.inputs.get().dataset == dataset


@pytest.mark.parametrize(
    ("sizes", "count", "runs"),
    [
        ([], 2, [(0, 0), (0, 0)]),
        ([5], 3, None),
        ([1, 1, 1, 1], 2, [(0, 2), (2, 4)]),
        ([100, 1, 1, 1], 2, [(0, 1), (1, 4)]),
        ([0, 0, 0], 3, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_files_are_cut_into_runs_that_cover_all_once(sizes, count, runs):
    cut = split_by_bytes(sizes, count)
    assert len(cut) == count
    assert [n for start, stop in cut for n in range(start, stop)] == list(range(len(sizes)))
    if runs is not None:
        assert cut == runs

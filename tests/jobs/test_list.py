"""The list of jobs: what a row says, filters, pages, and nothing of another team."""

from datetime import timedelta

import pytest

from jobs.logs import append_log, log_size, read_log
from jobs.services import cancel
from nodes.models import LedgerRow, SchedulerReason
from portal.base.clock import db_now
from tests.factories import make_dataset, make_job, make_node
from tests.jobs.test_logs import attempt


def shown(client, query: str = "") -> str:
    response = client.get(f"/jobs/{query}")
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_an_empty_list_says_what_and_what_next(owner_client):
    text = shown(owner_client)
    assert "Your team has no jobs yet." in text
    assert 'href="/jobs/new"' in text
    assert "There are no drafts." in shown(owner_client, "?show=drafts")


@pytest.fixture
def four(team):
    """One job of each kind of list."""
    now = db_now()
    ended = {"state": "ended", "outcome": "failed", "reason": "exit_code", "ended_at": now}
    return {
        "draft": make_job(team, name="A draft", state="draft"),
        "staging": make_job(team, name="A staging one", state="staging"),
        "active": make_job(team, name="A running one", state="active", shards=3),
        "ended": make_job(team, name="An ended one", **ended),
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", {"A draft", "A staging one", "A running one", "An ended one"}),
        ("?show=active", {"A staging one", "A running one"}),
        ("?show=ended", {"An ended one"}),
        ("?show=drafts", {"A draft"}),
        ("?show=nonsense", {"A draft", "A staging one", "A running one", "An ended one"}),
    ],
)
def test_filters(owner_client, four, query, names):
    text = shown(owner_client, query)
    assert {job.name for job in four.values() if f">{job.name}</a>" in text} == names


def test_what_a_row_says(owner_client, four):
    text = shown(owner_client)
    assert f'href="/jobs/{four["draft"].code}/edit"' in text
    assert "Waits for its data to be in the store. Not metered." in text
    assert "0 of 3 ended" in text
    assert "The work ended with an exit code other than 0." in text


def test_a_row_says_why_the_job_waits_and_with_which_code_it_ended(owner_client, team):
    now, said = db_now(), "Needs 8 GPUs on one node; the most free is 4 until 14:10 UTC."
    waits = make_job(team, name="Waits", state="queued", shards=1).shards.get()
    for number in range(2):
        at = now - timedelta(minutes=number)
        SchedulerReason.objects.create(
            shard=waits, at=at, cause="gpus", sentence=f"{said} {number}"
        )
    assert f"{said} 0" in shown(owner_client)
    ended = {"state": "ended", "outcome": "failed", "reason": "exit_code", "ended_at": now}
    failed = make_job(team, name="Fails", shards=1, **ended)
    failed.shards.update(exit_code=3)
    assert "The work ended with exit code 3." in shown(owner_client)
    told = {**ended, "outcome": "timed_out", "reason": "told_to_stop"}
    sentence = "The work was told to stop 0:00:30 before its 0:01:00 ran out, and ended."
    make_job(team, name="Heeds", shards=1, **told).shards.update(detail=sentence)
    assert sentence in shown(owner_client)


def test_held_time_is_of_the_ledger_and_of_what_runs(owner_client, four):
    job, node, now = four["active"], make_node(), db_now()
    ended = attempt(job, node, 1)
    LedgerRow.objects.create(
        lease=ended, gpus=0, allocated_at=now, ended_at=now, launch_ms=0, run_ms=3_600_000,
        output_ms=1000, release_ms=0, held_ms=3_601_000, counted_ms=0, created_at=now,
    )  # fmt: skip
    assert "1:00:01" in shown(owner_client, "?show=active")


def test_pages_are_of_the_server(owner_client, team):
    for n in range(30):
        make_job(team, name=f"Job number {n:02}")
    first, second = shown(owner_client), shown(owner_client, "?page=2")
    assert "Job number 29" in first
    assert "Job number 00" not in first
    assert "Job number 00" in second
    for page in ("999", "-1", "x", "9" * 300):
        assert "Job number" in shown(owner_client, f"?page={page}")


def test_rows_cost_no_query_each(owner_client, team, django_assert_max_num_queries):
    for n in range(25):
        make_job(team, name=f"Job {n}", shards=3)
    with django_assert_max_num_queries(16):
        owner_client.get("/jobs/")


def test_a_mate_sees_it_and_a_stranger_nothing(mate_client, stranger_client, four):
    assert "A running one" in shown(mate_client)
    assert "A running one" not in shown(stranger_client)


def test_hostile_names_are_text(owner_client, team):
    make_job(team, name='<img src=x onerror="1">')
    assert "<img" not in shown(owner_client)


def test_a_log_that_is_not_to_be_kept_goes_with_the_end(
    owner_client, team, django_capture_on_commit_callbacks
):
    job = make_job(team, keep_log=False)
    lease = attempt(job, make_node(), 1)
    append_log(lease.code, 0, b"secret progress\n")
    with django_capture_on_commit_callbacks(execute=True):
        cancel(job=job, actor="owner@climate.example")
    assert log_size(lease.code) == 0
    assert append_log(lease.code, 16, b"late\n") == 21
    assert read_log(lease.code, 0, 99) == b""
    text = owner_client.get(f"/jobs/{job.code}/log/0").content.decode()
    assert "The log was deleted, as the job declared." in text


def test_cancel_names_the_inputs_that_go(owner_client, team):
    job = make_job(team, shards=1)
    job.inputs.create(dataset=make_dataset(team, name="Frames"), mount="f", after="delete")
    text = owner_client.get(f"/jobs/{job.code}/cancel").content.decode()
    assert "One piece that waits ends at once." in text
    assert "As declared, Frames will be deleted, unless another job needs it." in text

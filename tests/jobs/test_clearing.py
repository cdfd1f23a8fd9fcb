"""Take the output, delete the rest, get the receipt."""

import io

import pytest

from jobs.clearing import leftovers
from jobs.logs import append_log, log_size
from jobs.models import JobInput
from nodes.models import Lease
from portal.base.clock import db_now
from staging import services as staging
from tests.factories import make_job, make_node

pytestmark = pytest.mark.django_db
OWNER = "owner@climate.example"


@pytest.fixture
def dataset(team):
    row = staging.create_dataset(team=team, name="Readings", actor=OWNER)
    staging.store_bytes(dataset=row, path="a", content=io.BytesIO(b"abc"), size=3, actor=OWNER)
    staging.seal_dataset(dataset=row, actor=OWNER)
    return staging.verify_dataset(dataset=row)


@pytest.fixture
def job(team, dataset):
    row = make_job(team)
    JobInput.objects.create(job=row, dataset=dataset, mount="in")
    now = db_now()
    row.shards.update(state="ended", outcome="succeeded", ended_at=now)
    lease = Lease.objects.create(
        shard=row.shards.get(),
        node=make_node(gpus=1),
        epoch=1,
        number=1,
        state="void",
        gpu_count=1,
        cpus=1,
        memory_bytes=1,
        disk_bytes=1,
        time_limit=row.time_limit,
        output_window=row.time_limit,
        placed_at=now,
        ended_at=now,
    )
    append_log(lease.code, 0, b"hello\n")
    type(row).objects.filter(pk=row.pk).update(state="ended", outcome="succeeded", ended_at=now)
    row.refresh_from_db()
    return row


def test_the_page_names_what_goes_and_what_stays(job, owner_client):
    page = owner_client.get(f"/jobs/{job.code}/clear").content.decode()
    assert "Readings: 1 file, 3 bytes" in page
    assert "1 log, 6 bytes" in page
    assert "The output stays as it is" in page


def test_the_rest_is_deleted_and_the_receipt_says_when(
    job, dataset, owner_client, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        answer = owner_client.post(f"/jobs/{job.code}/clear")
    assert answer.status_code == 302
    staging.purge_dataset(dataset=dataset)
    dataset.refresh_from_db()
    assert (dataset.state, dataset.purged_by) == ("purged", OWNER)
    assert not log_size(Lease.objects.get().code)
    assert job.output.state == "transferring"  # the output is untouched
    act = owner_client.get(f"/jobs/{job.code}/receipt.json").json()["acts"][0]
    assert (act["by"], act["logs"], act["log_bytes"]) == (OWNER, 1, 6)
    assert act["datasets"][0]["bytes_gone_at"]
    assert leftovers(job).nothing
    assert "Receipt" in owner_client.get(f"/jobs/{job.code}/").content.decode()


def test_what_another_job_needs_stays(job, dataset, owner_client):
    staging.hold(dataset=dataset, holder="other", label="Other job reads it", at=db_now())
    page = owner_client.get(f"/jobs/{job.code}/clear").content.decode()
    assert "Another job still needs, so these stay: Readings." in page
    owner_client.post(f"/jobs/{job.code}/clear")
    dataset.refresh_from_db()
    assert dataset.state == "staged"


def test_a_job_that_has_not_ended_keeps_everything(team, owner_client):
    live = make_job(team)
    assert owner_client.get(f"/jobs/{live.code}/clear").status_code == 409
    assert owner_client.post(f"/jobs/{live.code}/clear").status_code == 409
    assert owner_client.get(f"/jobs/{live.code}/receipt.json").status_code == 404


def test_only_the_team_may(job, mate_client, stranger_client, client):
    for path in ("clear", "receipt.json"):
        assert stranger_client.get(f"/jobs/{job.code}/{path}").status_code == 404
        assert client.get(f"/jobs/{job.code}/{path}").status_code == 302
    assert stranger_client.post(f"/jobs/{job.code}/clear").status_code == 404
    assert mate_client.get(f"/jobs/{job.code}/clear").status_code == 200

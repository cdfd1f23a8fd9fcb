"""The account page, its CSV, and the record behind each row."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest
from django.urls import reverse

from jobs.models import Job
from nodes.models import LedgerRow
from portal.pages.records import safe_cell
from staging.models import Dataset
from tests.factories import make_job, make_node
from tests.pages import scenes

pytestmark = pytest.mark.django_db
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "|cmd", "%x", "＝1"]


@pytest.fixture
def node():
    return make_node("sim-1", gpus=24)


def text(client, name: str, *args, query: str = "") -> str:
    response = client.get(reverse(name, args=args) + query)
    assert response.status_code == 200
    return response.content.decode()


def table(client, query: str = "") -> list[dict]:
    response = client.get(reverse("records_csv") + query)
    assert response.status_code == 200
    assert response.streaming
    return list(csv.DictReader(io.StringIO(response.getvalue().decode())))


def test_a_new_team_is_told_what_stands_here(owner_client):
    html = text(owner_client, "records")
    assert "No job has finished yet" in html
    assert reverse("job_new") in html


def test_rows_totals_and_retention(owner_client, team, node):
    job = scenes.succeeded_job(team, node)
    scenes.failed_job(team, node)
    Dataset.objects.filter(written_by_job=job).update(expires_at=datetime(2027, 1, 9, tzinfo=UTC))
    gone = job.inputs.get().dataset
    Dataset.objects.filter(pk=gone.pk).update(state="purged", purged_at=scenes.ago(60))
    html = text(owner_client, "records")
    foot = html[html.index("<tfoot") : html.index("</tfoot>")]
    assert "2 jobs" in foot
    assert "1:02:23" in foot  # 3443 s and 300 s
    assert "2.00" in foot  # GPU-hours: 2 x 3443 s and 300 s
    assert "kept until" in html
    assert "2027-01-09" in html
    assert "deleted" in html


def test_a_month_shows_its_own_jobs_and_sums(owner_client, team, node):
    old = scenes.succeeded_job(team, node, name="In May")
    scenes.succeeded_job(team, node, name="Just now")
    Job.objects.filter(pk=old.pk).update(ended_at=datetime(2026, 5, 31, 23, 59, tzinfo=UTC))
    html = text(owner_client, "records", query="?month=2026-05")
    assert "In May" in html
    assert "Just now" not in html
    assert "1 job<" in html
    assert [row["name"] for row in table(owner_client, "?month=2026-05")] == ["In May"]
    assert "No job ended in" in text(owner_client, "records", query="?month=2020-01")


@pytest.mark.parametrize("month", ["2026-13", "x", "2026", "9" * 4000, "2026-1٣", "2026-05%0a"])
@pytest.mark.parametrize("name", ["records", "records_csv"])
def test_what_is_no_month_is_refused_with_a_sentence(owner_client, name, month):
    response = owner_client.get(reverse(name) + f"?month={month}")
    assert response.status_code == 400
    assert "A month is written like 2026-11." in response.content.decode()


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_becomes_a_formula(owner_client, team, name):
    job = scenes.cancelled_in_queue(team)
    Job.objects.filter(pk=job.pk).update(name=name)
    (row,) = table(owner_client)
    assert row["name"].startswith("'")
    assert row["name"][1:].replace("\r", "\n") == name.replace("\r", "\n")


def test_ordinary_cells_stay_as_they_are():
    assert safe_cell('Count tokens, "twice"\nover') == 'Count tokens, "twice"\nover'
    assert safe_cell(0) == "0"
    assert safe_cell("a\x00b") == "ab"


def test_csv_agrees_with_the_ledger(mate_client, team, node):
    job = scenes.succeeded_job(team, node)
    (row,) = table(mate_client)
    assert row["job"] == job.code
    assert row["held_h_mm_ss"] == "0:57:23.000"
    gpu_ms = sum(one.held_ms * one.gpus for one in LedgerRow.objects.all())
    assert round(float(row["gpu_hours"]) * 3_600_000) == gpu_ms
    assert row["outcome"] == "succeeded"
    assert row["output"] == "no date set"


def test_a_record_shows_slices_that_add_up_and_what_proves_it(mate_client, team, node):
    job = scenes.succeeded_job(team, node)
    html = text(mate_client, "record", job.code)
    for part in ("8.000", "3,392.000", "40.000", "3.000", "3,443.000"):
        assert part in html
    assert "c2lnbmVk" in html
    assert "Public key" in html
    assert job.record.body["inputs"][0]["manifest_digest"] in html
    assert "wiped" in html
    assert '<span class="tag">simulated</span>' in html


def test_the_json_carries_record_signature_and_key(mate_client, team, node):
    job = scenes.succeeded_job(team, node)
    response = mate_client.get(reverse("record_json", args=[job.code]))
    body = json.loads(response.content)
    assert body["record"]["job"] == job.code
    assert body["signature"] == "c2lnbmVk"
    assert body["public_key"]
    assert "attachment" in response["Content-Disposition"]


def test_a_record_that_is_not_written_yet_says_so(owner_client, team):
    job = scenes.set_states(make_job(team), "ended", "cancelled", "cancelled")
    assert "not written yet" in text(owner_client, "record", job.code)
    assert owner_client.get(reverse("record_json", args=[job.code])).status_code == 404


def test_hostile_names_in_a_record_are_text(owner_client, team, node):
    hostile = "<script>alert(1)</script>"
    job = scenes.succeeded_job(team, node, name=hostile)
    job.inputs.get().dataset.name = hostile
    for html in (text(owner_client, "records"), text(owner_client, "record", job.code)):
        assert "<script>alert" not in html
        assert "&lt;script&gt;" in html


@pytest.mark.parametrize("name", ["record", "record_json"])
def test_another_team_sees_nothing(stranger_client, team, node, name):
    job = scenes.succeeded_job(team, node)
    foreign = stranger_client.get(reverse(name, args=[job.code]))
    made_up = stranger_client.get(reverse(name, args=["zzzzzzzzzz"]))
    assert foreign.status_code == made_up.status_code == 404
    assert job.name not in foreign.content.decode()
    assert "No job has finished yet" in text(stranger_client, "records")
    assert table(stranger_client) == []


def test_a_live_job_has_no_record(owner_client, team):
    assert owner_client.get(reverse("record", args=[make_job(team).code])).status_code == 404


@pytest.mark.parametrize("name", ["records", "records_csv"])
def test_anonymous_people_sign_in_first(client, name):
    assert client.get(reverse(name)).status_code == 302


@pytest.mark.parametrize("name", ["records", "records_csv"])
def test_a_person_of_no_team_is_told_so(operator_client, name):
    assert operator_client.get(reverse(name)).status_code == 403


def test_the_number_of_queries_does_not_grow_with_jobs(
    owner_client, team, node, django_assert_max_num_queries
):
    scenes.succeeded_job(team, node)
    owner_client.get(reverse("records"))
    with django_assert_max_num_queries(20) as one:
        owner_client.get(reverse("records"))
    for _ in range(5):
        scenes.succeeded_job(team, node)
    with django_assert_max_num_queries(len(one)):
        owner_client.get(reverse("records"))
    with django_assert_max_num_queries(len(one)):
        assert len(table(owner_client)) == 6

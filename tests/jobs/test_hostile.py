"""Garbage at every door of the job pages: a 4xx or a page with sentences, never a 500."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import Job
from tests.factories import make_dataset, make_job
from tests.jobs.cast import GOOD, form_data, with_files

NASTY = ["", "\0", "\ud800", "-1", "9" * 5000, "é" * 300, "<script>", "../..", "nan", "1e999", "[]"]
FIELDS = [
    *(name for name in GOOD if not name.startswith("paths")),
    "command", "start", "finish_command", "needed_by", "gpu_memory", "parallel", "retries",
    "finish_gpus", "keep_days", "action", "job", "vars-0-name", "vars-0-value", "vars-0-secret",
    "vars-0-kept", "vars-0-row", "inputs-0-dataset", "inputs-0-mount", "inputs-0-tops",
    "inputs-0-patterns", "inputs-0-split", "inputs-0-after", "inputs-9999-row", "inputs-99999-row",
    "paths-0-pattern", "paths-0-optional", "paths-0-row", "code_zip", "code_folder",
]  # fmt: skip


def encoded(value: str) -> bytes:
    return value.encode("utf-8", errors="surrogatepass")


@pytest.fixture
def names(team):
    dataset = with_files(make_dataset(team), {"a/b": 1})
    return form_data(inputs__0__dataset=dataset.code, vars__0__name="A", vars__0__value="b")


@pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
@pytest.mark.parametrize("address", ["/jobs/new", "/jobs/preview", "/jobs/preview?row=inputs-0"])
def test_a_nasty_value_in_every_field_at_once(owner_client, names, address, value):
    everywhere = dict.fromkeys(FIELDS, encoded(value))
    assert owner_client.post(address, everywhere).status_code < 500


@pytest.mark.parametrize("field", FIELDS)
def test_a_nasty_value_in_one_field(owner_client, names, field):
    for value in ("\0", "\ud800", "9" * 5000):
        response = owner_client.post("/jobs/new", names | {field: encoded(value)})
        assert response.status_code < 500, value[:20]


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_as_a_file(owner_client, names, field):
    from django.core.files.uploadedfile import SimpleUploadedFile

    sent = {name: value for name, value in names.items() if name != field}
    file = SimpleUploadedFile("a\r\nb", b"PK\5\6" + b"\0" * 18)
    assert owner_client.post("/jobs/new", sent | {field: file}).status_code < 500


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.dictionaries(st.sampled_from(FIELDS), st.text(max_size=30)))
def test_any_mix_of_fields(owner_client, data):
    body = {name: encoded(value) for name, value in data.items()}
    assert owner_client.post("/jobs/new", body).status_code < 500


BODIES = [
    (b"", "multipart/form-data; boundary=b"),
    (b"--b\r\n", "multipart/form-data; boundary=b"),
    (b"--b\r\nContent-Disposition: form-data; name=\"x\"", "multipart/form-data; boundary=b"),
    (b"x", "multipart/form-data"),
    (b"x", "multipart/form-data; boundary=" + "b" * 300),
    (b"\xff\xfe=%ff%fe&%00=%00", "application/x-www-form-urlencoded"),
    (b"{}", "application/json"),
    (b"a" * 9_000_000, "application/x-www-form-urlencoded"),
    (b"&".join(b"f%d=1" % n for n in range(20_500)), "application/x-www-form-urlencoded"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind"), BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("address", ["/jobs/new", "/jobs/preview"])
def test_broken_bodies(owner_client, body, kind, address):
    response = owner_client.generic("POST", address, body, kind)
    assert response.status_code < 500
    assert Job.objects.count() == 0


@pytest.mark.parametrize("code", ["x", "../x", "x" * 500, "%2e%2e", "é", "1 or 1=1", "%ff"])
def test_odd_codes(owner_client, team, code):
    for address in ("edit", "cancel", "delete-draft", "log/0", "log/0/raw"):
        assert owner_client.get(f"/jobs/{code}/{address}").status_code in {400, 404}


def test_unknown_fields_are_not_kept(owner_client):
    strange = {"x" * 500: "1", "vars-00-value": "s", "constructor-1-x": "2", "paths-12345-row": "1"}
    owner_client.post("/jobs/new", form_data(action="save") | strange)
    draft = Job.objects.get().draft
    assert not set(draft) & set(strange)
    assert draft["name"] == ["Count tokens"]


def test_the_largest_request_there_is(owner_client, team):
    most = {"gpus": "1024", "hours": "8784", "shards": "10000", "retries": "10"}
    text = owner_client.post("/jobs/preview", form_data(**most)).content.decode()
    assert f"{1024 * (8784 + 120 / 3600) * 10_000 * 11:,.2f}" in text


def test_methods_that_are_not_offered(owner_client, team):
    job = make_job(team)
    for method in ("put", "delete", "patch"):
        for address in ("", "new", "preview", f"{job.code}/cancel", f"{job.code}/log/0"):
            assert getattr(owner_client, method)(f"/jobs/{address}").status_code == 405

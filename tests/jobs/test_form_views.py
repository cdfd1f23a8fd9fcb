"""The job form through its pages: what is kept, what is refused, who may."""

import html
import io
import re
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from jobs.models import Job
from staging.models import Dataset
from tests.factories import make_dataset, make_job, make_node
from tests.jobs.cast import form_data, with_files

SECRET = "hunter2-very-secret"


@pytest.fixture
def node(db):
    return make_node(gpus=8)


def problems(response) -> list[str]:
    """The sentences of the error summary, in order."""
    text = response.content.decode()
    summary = text[text.find('id="error-summary"') :].partition("</div>")[0]
    return [html.unescape(line) for line in re.findall(r'<li><a href="#[^"]+">(.*?)</a>', summary)]


def test_a_new_form_shows_four_parts(owner_client):
    response = owner_client.get("/jobs/new")
    text = response.content.decode()
    assert response.status_code == 200
    for legend in ("Work", "Data", "Request", "Output"):
        assert f"<legend><h2>{legend}</h2></legend>" in text
    assert "style=" not in text
    assert "<script>" not in text


def test_a_valid_form_becomes_a_submitted_job(owner_client, owner, team, node):
    dataset = with_files(make_dataset(team), {"a/1.txt": 5, "a/2.txt": 6, "b/3.txt": 7})
    response = owner_client.post(
        "/jobs/new",
        form_data(
            inputs__0__row="1",
            inputs__0__dataset=dataset.code,
            inputs__0__tops=["a/"],
            vars__0__row="1",
            vars__0__name="EPOCHS",
            vars__0__value="4",
            shards="2",
            inputs__0__split="files",
        ),
    )
    job = Job.objects.get()
    assert (response.status_code, response["Location"]) == (302, f"/jobs/{job.code}/")
    assert job.state == "queued"
    assert (job.gpus, job.shard_count, job.draft) == (2, 2, {})
    row = job.inputs.get()
    assert (row.mount, row.patterns, row.split) == ("readings", ["a/"], True)
    assert (row.file_count, row.byte_count) == (2, 11)
    assert [v.value_for_node() for v in job.variables.all()] == ["4"]
    assert [p.pattern for p in job.output_paths.all()] == ["stats/**"]


def test_a_form_without_its_button_submits_nothing(owner_client, node):
    response = owner_client.post("/jobs/new", form_data(action=None))
    assert response.status_code == 200
    assert "nothing was submitted" in response.content.decode()
    assert Job.objects.count() == 0


def test_errors_are_listed_with_links_and_input_is_kept(owner_client):
    response = owner_client.post("/jobs/new", form_data(gpus="many", script="  ", name="Mine"))
    assert response.status_code == 422
    assert problems(response) == [
        "Write the script, or choose another kind of work.",
        "GPUs must be a whole number from 0 to 1,024.",
    ]
    text = response.content.decode()
    assert 'href="#id_script"' in text
    assert 'value="many"' in text
    assert 'value="Mine"' in text
    assert Job.objects.count() == 0


def test_save_draft_keeps_what_is_wrong(owner_client):
    response = owner_client.post(
        "/jobs/new", form_data(action="save", hours="later", name="Half done")
    )
    job = Job.objects.get()
    assert response["Location"] == f"/jobs/{job.code}/edit"
    assert (job.state, job.name) == ("draft", "Half done")
    assert 'value="later"' in owner_client.get(f"/jobs/{job.code}/edit").content.decode()


def test_saving_twice_keeps_one_draft(owner_client):
    owner_client.post("/jobs/new", form_data(action="save"))
    job = Job.objects.get()
    owner_client.post(f"/jobs/{job.code}/edit", form_data(action="save", name="Renamed"))
    assert Job.objects.get().name == "Renamed"


@pytest.mark.parametrize("prefix", ["vars", "inputs", "paths"])
def test_rows_come_and_go_without_javascript(owner_client, team, prefix):
    make_dataset(team)
    field = {"vars": "name", "inputs": "mount", "paths": "pattern"}[prefix]
    typed = form_data(**{f"{prefix}__4__row": "1", f"{prefix}__4__{field}": "first"})
    more = owner_client.post("/jobs/new", typed | {"action": f"add-{prefix}"}).content.decode()
    assert f'name="{prefix}-5-{field}"' in more
    assert 'value="first"' in more
    less = owner_client.post("/jobs/new", typed | {"action": f"remove-{prefix}-4"}).content.decode()
    assert f'name="{prefix}-4-{field}"' not in less
    assert "error-summary" not in more + less
    assert Job.objects.count() == 0


def secret_form(**changes):
    return form_data(
        vars__0__row="1", vars__0__name="TOKEN", vars__0__secret="on", vars__0__value=SECRET
    ) | {name.replace("__", "-"): value for name, value in changes.items()}


@pytest.mark.parametrize(
    "changes",
    [{}, {"action": "save"}, {"action": "add-vars"}, {"gpus": "x"}, {"action": "preview"}],
)
def test_a_secret_is_kept_and_never_shown(owner_client, team, node, changes, caplog):
    response = owner_client.post("/jobs/new", secret_form(**changes))
    job = Job.objects.get()
    variable = job.variables.get()
    assert (variable.secret, variable.value_for_node()) == (True, SECRET)
    assert SECRET not in variable.stored
    pages = [response.content.decode()]
    if job.state == "draft":
        pages.append(owner_client.get(f"/jobs/{job.code}/edit").content.decode())
        assert "Kept, not shown." in pages[-1]
    assert SECRET not in "".join(pages)
    assert SECRET not in str(job.draft)
    assert SECRET not in str(list(job.events.values()))
    assert SECRET not in caplog.text


def test_a_kept_secret_survives_edits_and_a_new_name(owner_client, node):
    owner_client.post("/jobs/new", secret_form(action="save"))
    job = Job.objects.get()
    edit = f"/jobs/{job.code}/edit"
    kept = secret_form(vars__0__value="", vars__0__kept="TOKEN", vars__0__name="API_TOKEN")
    owner_client.post(edit, kept | {"action": "save"})
    assert job.variables.get().name == "API_TOKEN"
    again = secret_form(vars__0__value="", vars__0__kept="API_TOKEN", vars__0__name="API_TOKEN")
    assert owner_client.post(edit, again).status_code == 302
    assert job.variables.get().value_for_node() == SECRET


def test_a_kept_secret_cannot_be_made_visible(owner_client):
    owner_client.post("/jobs/new", secret_form(action="save"))
    job = Job.objects.get()
    plain = form_data(
        vars__0__row="1", vars__0__name="TOKEN", vars__0__value="", vars__0__kept="TOKEN"
    )
    response = owner_client.post(f"/jobs/{job.code}/edit", plain)
    assert problems(response) == ["Type the value again: a stored secret is never shown."]
    assert SECRET not in response.content.decode()


def test_a_secret_without_a_value_is_refused(owner_client):
    response = owner_client.post("/jobs/new", secret_form(vars__0__value=""))
    assert problems(response) == ["Type the secret's value; none is stored for it."]


def test_removing_a_secret_row_removes_the_secret(owner_client):
    owner_client.post("/jobs/new", secret_form(action="save"))
    job = Job.objects.get()
    owner_client.post(f"/jobs/{job.code}/edit", form_data(action="save"))
    assert not job.variables.exists()


def zipped(**files: str) -> SimpleUploadedFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/"), text)
    return SimpleUploadedFile("code.zip", buffer.getvalue())


def test_code_is_stored_and_survives_an_error_elsewhere(owner_client, node):
    sent = form_data(
        work_kind="code", start="python main.py", hours="x", code_zip=zipped(main="1", lib__a="2")
    )
    response = owner_client.post("/jobs/new", sent)
    assert problems(response)[0].startswith("Write hours as 4")
    assert len(problems(response)) == 1
    job = Job.objects.get()
    assert sorted(job.code_dataset.files.values_list("path", flat=True)) == ["lib/a", "main"]
    assert f'action="/jobs/{job.code}/edit"' in response.content.decode()
    right = form_data(work_kind="code", start="python main.py", hours="1")
    assert owner_client.post(f"/jobs/{job.code}/edit", right).status_code == 302
    job.refresh_from_db()
    assert (job.command, job.state != "draft") == ("python main.py", True)
    assert job.code_dataset.kind == "code"


def test_a_folder_keeps_its_paths_without_its_own_name(owner_client, node):
    body, kind = multipart(
        form_data(work_kind="code", start="bash run.sh"),
        [("code_folder", "project/run.sh", b"one"), ("code_folder", "project/lib/a b.py", b"two")],
    )
    response = owner_client.generic("POST", "/jobs/new", body, kind)
    assert response.status_code == 302
    code = Job.objects.get().code_dataset
    assert sorted(code.files.values_list("path", flat=True)) == ["lib/a b.py", "run.sh"]


def multipart(fields: dict, files: list[tuple[str, str, bytes]]) -> tuple[bytes, str]:
    """A form as a browser sends it, with paths in the files' names."""
    lines = []
    for name, value in fields.items():
        head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
        lines.append(head.encode() + str(value).encode() + b"\r\n")
    for name, path, content in files:
        head = f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{path}"\r\n'
        lines.append(head.encode() + b"Content-Type: text/plain\r\n\r\n" + content + b"\r\n")
    return b"".join(lines) + b"--b--\r\n", "multipart/form-data; boundary=b"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("../evil.sh", "“../evil.sh” leads out of the folder of the code or is not a plain path."),
        ("p/../../x", "“p/../../x” leads out of the folder of the code or is not a plain path."),
        (
            "/etc/passwd",
            "“/etc/passwd” is an absolute or a Windows path; code needs relative ones.",
        ),
        ("p/..", "“p/..” leads out of the folder of the code or is not a plain path."),
        ("p\\x.py", "“p\\x.py” is an absolute or a Windows path; code needs relative ones."),
        ("C:/x.py", "“C:/x.py” is an absolute or a Windows path; code needs relative ones."),
        ("p/" + "x" * 300, "“p/" + "x" * 77 + "…” is too long for a file name."),
    ],
)
def test_hostile_names_in_a_folder(owner_client, path, sentence):
    body, kind = multipart(form_data(work_kind="code", start="x"), [("code_folder", path, b"one")])
    response = owner_client.generic("POST", "/jobs/new", body, kind)
    assert response.status_code == 422
    assert problems(response) == [sentence]
    assert Dataset.objects.count() == 0


def test_csrf_is_checked_inside_the_wrapper(owner):
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    assert client.post("/jobs/new", form_data()).status_code == 403
    assert Job.objects.count() == 0


def test_a_body_beyond_the_limit_is_refused_unread(owner_client, settings):
    settings.LARGEST_CODE_BYTES = 1
    response = owner_client.post(
        "/jobs/new", form_data(code_zip=SimpleUploadedFile("c.zip", b"x" * (17 * 2**20)))
    )
    assert response.status_code == 413
    assert Job.objects.count() == 0


def test_a_limit_of_the_team_is_named_and_the_draft_kept(owner_client, team, node):
    team.max_gpus_per_job = 2
    team.save()
    response = owner_client.post("/jobs/new", form_data())
    assert response.status_code == 400
    assert problems(response) == ["This job would hold 6 GPUs at once; the limit of Climate is 2."]
    assert Job.objects.get().state == "draft"


def test_a_submitted_job_cannot_be_edited(owner_client, team):
    job = make_job(team)
    assert owner_client.get(f"/jobs/{job.code}/edit").status_code == 409
    assert owner_client.post(f"/jobs/{job.code}/edit", form_data()).status_code == 409
    assert owner_client.get(f"/jobs/{job.code}/delete-draft").status_code == 409


def test_preview_restates_the_job_and_writes_nothing(owner_client, team):
    dataset = with_files(make_dataset(team), {"a/1.txt": 500, "a/2.txt": 500, "c.txt": 1})
    response = owner_client.post(
        "/jobs/preview",
        form_data(inputs__0__row="1", inputs__0__dataset=dataset.code, inputs__0__patterns="a/**"),
    )
    text = " ".join(response.content.decode().split())
    assert "Two GPUs for four hours for each of three pieces" in text
    assert "Readings (2 files, 1 kB)" in text
    assert "2 × (4:00:00 + 0:02:00) × 3" in text
    assert "24.20" in text
    assert "No rate has been published here. Nothing on this page is a price." in text
    assert "readings/" in text
    assert "its own part" not in text
    assert Job.objects.count() == 0
    split = {"inputs__0__row": "1", "inputs__0__dataset": dataset.code, "inputs__0__split": "files"}
    response = owner_client.post("/jobs/preview", form_data(**split))
    assert "Each piece sees its own part of a dataset that is split." in response.content.decode()


def test_ticks_of_a_row(owner_client, team):
    dataset = with_files(make_dataset(team), {"top/a/1": 1, "top/b/2": 2, "top/c": 3})
    response = owner_client.post(
        "/jobs/preview?row=inputs-0",
        form_data(inputs__0__row="1", inputs__0__dataset=dataset.code, inputs__0__tops="top/a/"),
    )
    text = response.content.decode()
    assert 'value="top/a/" checked' in text
    assert 'value="top/b/"' in text


def test_copy_shows_the_rows_of_the_job(owner_client, mate_client, team):
    dataset = with_files(make_dataset(team), {"a.txt": 5})
    job = make_job(team, script="echo hi", language="bash", gpus=3)
    job.inputs.create(dataset=dataset, mount="here", patterns=["*.txt"])
    response = mate_client.post(f"/jobs/{job.code}/copy")
    copy = Job.objects.get(state="draft")
    assert response["Location"] == f"/jobs/{copy.code}/edit"
    text = mate_client.get(response["Location"]).content.decode()
    for shown in ("echo hi", 'value="3"', 'value="here"', "*.txt", dataset.code):
        assert shown in text


def test_delete_draft_asks_first(owner_client):
    owner_client.post("/jobs/new", form_data(action="save", name="Away"))
    job = Job.objects.get()
    page = owner_client.get(f"/jobs/{job.code}/delete-draft")
    assert "This cannot be undone." in page.content.decode()
    assert Job.objects.count() == 1
    assert owner_client.post(f"/jobs/{job.code}/delete-draft")["Location"] == "/jobs/"
    assert Job.objects.count() == 0


def test_cancel_asks_first_and_names_the_consequence(owner_client, team):
    job = make_job(team, shards=2)
    page = owner_client.get(f"/jobs/{job.code}/cancel").content.decode()
    assert "Two pieces that wait end at once. No compute is held now." in page
    job.refresh_from_db()
    assert job.state == "queued"
    assert owner_client.post(f"/jobs/{job.code}/cancel").status_code == 302
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "cancelled")
    assert owner_client.get(f"/jobs/{job.code}/cancel").status_code == 409


ADDRESSES = ["edit", "copy", "cancel", "delete-draft", "log/0", "log/0/raw", "log/finish"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_stranger_finds_nothing(stranger_client, team, address, method):
    draft = address in ("edit", "delete-draft")
    job = make_job(team, state="draft" if draft else "queued")
    response = getattr(stranger_client, method)(f"/jobs/{job.code}/{address}")
    expected = 405 if (method, address) in WRONG_METHODS else 404
    assert response.status_code == expected
    job.refresh_from_db()
    assert job.cancel_asked_at is None
    assert Job.objects.count() == 1


WRONG_METHODS = {("get", "copy"), *(("post", a) for a in ADDRESSES if a.startswith("log"))}


@pytest.mark.parametrize("address", ["/jobs/", "/jobs/new", *(f"/jobs/x/{a}" for a in ADDRESSES)])
def test_the_anonymous_are_sent_to_sign_in(client, db, address):
    response = client.get(address)
    assert response.status_code == 302
    assert "next=" in response["Location"]


def test_a_stranger_cannot_preview_or_name_our_dataset(stranger_client, team):
    dataset = with_files(make_dataset(team, name="Ours alone"), {"hidden.txt": 5})
    job = make_job(team, state="draft")
    sent = form_data(inputs__0__row="1", inputs__0__dataset=dataset.code)
    text = stranger_client.post("/jobs/preview", sent).content.decode()
    assert "hidden.txt" not in text
    assert "Ours alone" not in text
    assert stranger_client.post("/jobs/preview", sent | {"job": job.code}).status_code == 404
    refused = stranger_client.post("/jobs/new", sent)
    assert problems(refused) == ["This dataset is not here any more. Choose another."]


def test_operators_without_a_team_are_told_so(operator_client):
    assert operator_client.get("/jobs/").status_code == 403
    assert operator_client.get("/jobs/new").status_code == 403


def test_a_removed_member_loses_the_draft(mate_client, mate, team):
    job = make_job(team, state="draft")
    assert mate_client.get(f"/jobs/{job.code}/edit").status_code == 200
    mate.memberships.all().delete()
    assert mate_client.get(f"/jobs/{job.code}/edit").status_code == 404

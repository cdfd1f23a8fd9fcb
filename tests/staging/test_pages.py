"""The pages of staging, for a member, a mate and a stranger, with and without scripts."""

import io
import zipfile
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from portal.base.clock import db_now
from staging import services
from staging.models import Dataset, File, Upload
from staging.states import DatasetState
from tests.factories import make_dataset

pytestmark = pytest.mark.django_db
NAMES = ["a.txt", "d/with space", "d/'q\"uote", "d/100%25", "d/e/🌡", "-rf", "d/<b>&amp;"]


@pytest.fixture
def full(staged) -> Dataset:
    return staged({name: name.encode() for name in NAMES})


def url(dataset: Dataset, rest: str = "") -> str:
    return f"/staging/{dataset.code}/{rest}"


class TestAccess:
    @pytest.mark.parametrize(
        "rest", ["", "live", "delete", "zip", "files/a.txt", "?folder=d", "nothing"]
    )
    def test_a_stranger_sees_nothing(self, stranger_client, operator_client, full, rest):
        assert stranger_client.get(url(full, rest)).status_code == 404
        assert operator_client.get(url(full, rest)).status_code == 404

    @pytest.mark.parametrize("rest", ["upload", "remove", "keep", "delete", "seal"])
    def test_a_stranger_does_nothing(self, stranger_client, full, rest):
        assert stranger_client.post(url(full, rest), {"keep_days": 1}).status_code == 404
        full.refresh_from_db()
        assert (full.state, full.expires_at) == (DatasetState.STAGED, None)

    @pytest.mark.parametrize("path", ["/staging/", "/staging/new"])
    def test_nobody_is_asked_to_sign_in(self, path):
        assert Client().get(path).status_code == 302

    def test_a_strangers_list_does_not_name_it(self, stranger_client, full):
        assert full.code not in stranger_client.get("/staging/").content.decode()

    @pytest.mark.parametrize("rest", ["upload", "remove", "keep", "seal", "manifest"])
    def test_changes_are_posts(self, owner_client, full, rest):
        assert owner_client.get(url(full, rest)).status_code == 405


class TestPages:
    def test_the_list(self, mate_client, full):
        page = mate_client.get("/staging/").content.decode()
        assert full.name in page
        assert "7" in page

    @pytest.mark.parametrize("kind", ["", "input", "output", "code", "deleted", "<b>", "x" * 999])
    def test_filters(self, owner_client, kind):
        assert owner_client.get("/staging/", {"kind": kind}).status_code == 200

    @pytest.mark.parametrize("page", ["1", "0", "-1", "99999999999999999999", "x", "<b>"])
    def test_page_numbers(self, owner_client, full, page):
        assert owner_client.get("/staging/", {"page": page}).status_code == 200
        assert owner_client.get(url(full), {"page": page}).status_code == 200

    def test_a_dataset_is_made_with_its_days(self, owner_client):
        answer = owner_client.post("/staging/new", {"name": " My  data ", "keep_days": "30"})
        dataset = Dataset.objects.get()
        assert answer["Location"] == url(dataset)
        assert (dataset.name, dataset.keep_days) == ("My data", 30)

    @pytest.mark.parametrize(
        ("name", "days"),
        [
            ("", ""),
            ("x" * 121, ""),
            ("a\0b", ""),
            ("a\u202eb", ""),
            ("ok", "-1"),
            ("ok", "x"),
            ("ok", "36501"),
            ("ok", "9" * 5000),
            ("ok", "1.5"),
        ],
    )
    def test_a_wrong_form_says_why_and_keeps_the_input(self, owner_client, name, days):
        answer = owner_client.post("/staging/new", {"name": name, "keep_days": days})
        assert answer.status_code == 400
        assert "error-summary" in answer.content.decode()
        assert not Dataset.objects.exists()

    def test_the_title_starts_with_the_state(self, owner_client, full):
        page = owner_client.get(url(full)).content.decode()
        assert "<title>Staged: " in " ".join(page.split()).replace("<title> ", "<title>")

    def test_names_are_text(self, owner_client, full):
        page = owner_client.get(url(full), {"folder": "d"}).content.decode()
        assert "&lt;b&gt;&amp;amp;" in page
        assert "<b>" not in page

    def test_one_folder_at_a_time(self, owner_client, full):
        top = owner_client.get(url(full)).content.decode()
        assert "a.txt" in top
        assert "with space" not in top
        assert "folder=d" in top
        inner = owner_client.get(url(full), {"folder": "d/e"}).content.decode()
        assert "🌡" in inner

    @pytest.mark.parametrize("folder", ["x", "../..", "d/e/f", "x" * 5000, "%00", "<b>"])
    def test_a_folder_that_is_not_there(self, owner_client, full, folder):
        assert owner_client.get(url(full), {"folder": folder}).status_code == 404

    def test_a_large_folder_is_paged(self, owner_client, dataset):
        entries = [services.Entry(path=f"f{n:04}", size=0) for n in range(450)]
        services.declare_files(dataset=dataset, entries=entries, actor="a")
        first = owner_client.get(url(dataset)).content.decode()
        last = owner_client.get(url(dataset), {"page": 3}).content.decode()
        assert "f0199" in first
        assert "f0200" not in first
        assert "f0449" in last

    def test_what_moves_polls_and_what_is_settled_does_not(self, owner_client, dataset, full, put):
        put(dataset, "a", b"a")
        moving = owner_client.get(url(dataset, "live")).content.decode()
        assert 'hx-trigger="every 3s' in moving
        assert "<html" not in moving
        assert "hx-get" not in owner_client.get(url(full, "live")).content.decode()

    def test_the_live_part_brings_the_date_and_the_history_with_it(self, owner_client, full):
        live = owner_client.get(url(full, "live")).content.decode()
        assert 'id="keep-date" hx-swap-oob="true"' in live
        assert "Every file was read back and matches: staged" in live
        assert 'id="files"' in live
        whole = owner_client.get(url(full)).content.decode()
        assert 'id="keep-date"' in whole
        assert "hx-swap-oob" not in whole

    def test_unfinished_files_are_shown_with_what_was_kept(self, owner_client, dataset, owner):
        services.declare_files(
            dataset=dataset, entries=[services.Entry(path="a", size=9)], actor=owner.email
        )
        page = owner_client.get(url(dataset)).content.decode()
        assert "1 of 1 file is unfinished" in page

    def test_an_output_is_listed_once_it_has_a_file(self, owner_client, team):
        output = make_dataset(team, name="Output of Count", kind="output", state="declared")
        assert "Output of Count" not in owner_client.get("/staging/").content.decode()
        File.objects.create(dataset=output, path="a", size=3)
        assert "Output of Count" in owner_client.get("/staging/").content.decode()

    def test_an_abandoned_upload_is_called_expired(self, owner_client, dataset, owner):
        entries = [services.Entry(path="a", size=9)]
        services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
        Upload.objects.update(expires_at=db_now() - timedelta(days=1))
        services.expire_uploads(at=db_now())
        page = owner_client.get(url(dataset)).content.decode()
        assert "<title>Expired: " in page
        assert "It was not finished in time" in page
        assert "by the portal" not in page.split('id="events"')[0]
        assert "the portal</span>" in page  # who did it, not "system"
        assert "expired" in owner_client.get("/staging/").content.decode()

    @pytest.mark.parametrize("sizes", [[], [0], [0, 0, 7]])
    def test_nothing_is_never_all_of_it(self, owner_client, dataset, owner, put, sizes):
        """No "0 of 0", and no 100 % while something is missing."""
        for number, size in enumerate(sizes):
            entries = [services.Entry(path=f"f{number}", size=size)]
            services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
        for address in (url(dataset), "/staging/", "/"):
            page = owner_client.get(address).content.decode()
            assert "0 of 0" not in page
            assert "0 bytes of 0 bytes" not in page
        page = owner_client.get(url(dataset)).content.decode()
        assert ("100 %" in page) == (sizes == [0])
        assert ("no files yet" in page) == (sizes == [])

    def test_a_plain_form_uploads_and_finishes(self, owner_client, dataset):
        files = [SimpleUploadedFile("a.txt", b"aaa"), SimpleUploadedFile("b.txt", b"")]
        answer = owner_client.post(
            url(dataset, "upload"), {"files": files, "folder": "in/here"}, follow=True
        )
        assert "2 uploaded" in answer.content.decode()
        assert sorted(dataset.files.values_list("path", flat=True)) == [
            "in/here/a.txt",
            "in/here/b.txt",
        ]
        assert owner_client.post(url(dataset, "seal")).status_code == 302
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.VERIFYING

    @pytest.mark.parametrize("folder", ["..", "a//b", "/", "x" * 300, "CON", "a\\b"])
    def test_a_plain_form_with_a_bad_folder(self, owner_client, dataset, folder):
        files = [SimpleUploadedFile("a.txt", b"aaa")]
        answer = owner_client.post(url(dataset, "upload"), {"files": files, "folder": folder})
        assert answer.status_code == 302
        assert set(dataset.files.values_list("path", flat=True)) <= {"a.txt"}

    def test_a_plain_form_without_files(self, owner_client, dataset):
        answer = owner_client.post(url(dataset, "upload"), follow=True)
        assert "No file was chosen" in answer.content.decode()

    def test_sealing_nothing_is_refused_with_a_sentence(self, owner_client, dataset):
        answer = owner_client.post(url(dataset, "seal"))
        assert answer.status_code == 400
        assert "Choose at least one" in answer.content.decode()

    def test_a_file_is_removed(self, owner_client, dataset, put):
        put(dataset, "a", b"a")
        assert owner_client.post(url(dataset, "remove"), {"path": "a"}).status_code == 302
        assert not dataset.files.exists()

    def test_nothing_is_removed_from_what_is_sealed(self, owner_client, full):
        assert owner_client.post(url(full, "remove"), {"path": "a.txt"}).status_code == 409
        assert full.files.filter(path="a.txt").exists()

    def test_the_date_is_set_by_a_person(self, mate_client, mate, full):
        assert mate_client.post(url(full, "keep"), {"keep_days": "10"}).status_code == 302
        page = mate_client.get(url(full)).content.decode()
        assert f"Set by {mate.email}" in page

    @pytest.mark.parametrize("days", ["", "x", "-1", "36501", "9" * 400])
    def test_a_wrong_date_is_refused(self, owner_client, full, days):
        assert owner_client.post(url(full, "keep"), {"keep_days": days}).status_code == 400

    def test_no_policy_is_said(self, owner_client, full):
        page = owner_client.get(url(full)).content.decode()
        assert "No retention period has been published here." in page

    def test_deletion_asks_then_leaves_a_receipt(self, owner_client, owner, full):
        page = owner_client.get(url(full, "delete")).content.decode()
        assert "leave the store for good" in page
        full.refresh_from_db()
        assert full.state == DatasetState.STAGED
        owner_client.post(url(full, "delete"))
        services.purge_dataset(dataset=full)
        page = owner_client.get(url(full)).content.decode()
        assert f'by <span class="break">{owner.email}</span>' in page
        assert "left the store" in page
        assert owner_client.get(url(full, "files/a.txt")).status_code == 404
        assert owner_client.get(url(full, "zip")).status_code == 404

    def test_deletion_of_what_is_held_names_the_holder(self, owner_client, full):
        services.hold(dataset=full, holder="j1", label="Training reads it", at=db_now())
        assert "Training reads it" in owner_client.get(url(full, "delete")).content.decode()
        answer = owner_client.post(url(full, "delete"))
        assert answer.status_code == 409
        assert "Training reads it" in answer.content.decode()


class TestDownloads:
    @pytest.mark.parametrize("name", NAMES)
    def test_each_file_under_its_own_name(self, owner_client, full, name):
        page = owner_client.get(url(full), {"folder": name.rpartition("/")[0]}).content.decode()
        from urllib.parse import quote

        link = url(full, "files/" + quote(name))
        answer = owner_client.get(link)
        assert answer.status_code == 200
        assert b"".join(answer) == name.encode()
        assert answer["Content-Disposition"].startswith("attachment")
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"].startswith("sandbox")
        assert answer["Content-Type"] == "application/octet-stream"
        assert "files/" in page

    @pytest.mark.parametrize(
        ("asked", "status", "body", "part"),
        [
            ("bytes=0-1", 206, b"a.", "bytes 0-1/5"),
            ("bytes=2-", 206, b"txt", "bytes 2-4/5"),
            ("bytes=-2", 206, b"xt", "bytes 3-4/5"),
            ("bytes=-99", 200, b"a.txt", None),
            ("bytes=1-99", 206, b".txt", "bytes 1-4/5"),
            ("bytes=0-", 200, b"a.txt", None),
            ("bytes=5-", 416, b"", "bytes */5"),
            ("bytes=-0", 416, b"", "bytes */5"),
            ("bytes=999999999999999999-", 416, b"", "bytes */5"),
            ("bytes=3-1", 200, b"a.txt", None),
            ("bytes=-", 200, b"a.txt", None),
            ("bytes=0-0,2-2", 200, b"a.txt", None),
            ("bytes=" + "9" * 400 + "-", 200, b"a.txt", None),
            ("lines=1-2", 200, b"a.txt", None),
            ("bytes=a-b", 200, b"a.txt", None),
            ("bytes=٠-١", 200, b"a.txt", None),
            ("", 200, b"a.txt", None),
        ],
    )
    def test_ranges(self, owner_client, full, asked, status, body, part):
        answer = owner_client.get(url(full, "files/a.txt"), HTTP_RANGE=asked)
        got = b"".join(answer.streaming_content) if answer.streaming else answer.content
        assert (answer.status_code, got) == (status, body)
        assert answer.get("Content-Range") == part

    def test_a_range_of_another_version_gets_the_whole(self, owner_client, full):
        headers = {"HTTP_RANGE": "bytes=0-0", "HTTP_IF_RANGE": '"other"'}
        assert owner_client.get(url(full, "files/a.txt"), **headers).status_code == 200

    def test_head_sends_no_body(self, owner_client, full):
        answer = owner_client.head(url(full, "files/a.txt"))
        assert (answer["Content-Length"], b"".join(answer.streaming_content)) == ("5", b"")

    def test_an_empty_file(self, owner_client, staged):
        dataset = staged({"e": b""})
        answer = owner_client.get(url(dataset, "files/e"))
        assert (answer.status_code, b"".join(answer)) == (200, b"")

    @pytest.mark.parametrize("name", ["x", "../a.txt", "d", "d/", "a.txt/", "%00", "x" * 9000])
    def test_what_is_not_there(self, owner_client, full, name):
        assert owner_client.get(url(full, f"files/{name}")).status_code in (400, 404)

    def test_all_as_a_zip(self, owner_client, full):
        answer = owner_client.get(url(full, "zip"))
        archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted(NAMES)
        assert {archive.read(name).decode() for name in NAMES} == set(NAMES)
        assert answer["Content-Disposition"] == 'attachment; filename="readings.zip"'

    def test_a_folder_as_a_zip(self, owner_client, full):
        answer = owner_client.get(url(full, "zip"), {"folder": "d/e"})
        archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
        assert archive.namelist() == ["d/e/🌡"]

    def test_an_executable_stays_one(self, owner_client, dataset, put):
        put(dataset, "run.sh", b"#!", executable=True)
        answer = owner_client.get(url(dataset, "zip"))
        archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
        assert archive.getinfo("run.sh").external_attr >> 16 == 0o100755


class TestSelection:
    def chosen(self, dataset: Dataset, *patterns: str) -> list[str]:
        return [f.path for f in services.chosen_files(dataset=dataset, patterns=list(patterns))]

    @pytest.fixture
    def tree(self, staged) -> Dataset:
        return staged({p: b"" for p in ["a/1.csv", "a/b/2.csv", "a.csv", "B/3.txt", "[x]/4"]})

    def test_everything(self, tree):
        assert self.chosen(tree) == ["B/3.txt", "[x]/4", "a.csv", "a/1.csv", "a/b/2.csv"]
        assert self.chosen(tree, "", "**") == self.chosen(tree)

    @pytest.mark.parametrize(
        ("pattern", "wanted"),
        [
            ("a/", ["a/1.csv", "a/b/2.csv"]),
            ("a/**", ["a/1.csv", "a/b/2.csv"]),
            ("[x]/", ["[x]/4"]),
            ("*.txt", ["B/3.txt"]),
            ("b/", []),
            ("a.csv", ["a.csv"]),
            ("A.csv", []),
            ("(", []),
            ("[", []),
        ],
    )
    def test_patterns(self, tree, pattern, wanted):
        assert self.chosen(tree, pattern) == wanted

"""The pages of sync: who may see and do what, what a wrong field says, and no secret anywhere."""

import html
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection as database
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.base.clock import db_now
from staging import services
from staging.models import Connection, Dataset, Part, ServerFolder, Source, SourceFile, Transfer
from staging.states import DatasetReason
from staging.sync import asking, connections, serverfolders, sources
from staging.sync.counting import look_at_source
from staging.sync.s3 import S3Reader
from staging.sync.states import Access, SourceKind, SourceState
from tests.forms import inputs_of
from tests.hostile import HOSTILE, form_data
from tests.staging.sync.conftest import begin, connect, finish, run_until
from tests.staging.sync.stores import KEY, SECRET
from tests.staging.sync.test_folders import listed

pytestmark = [pytest.mark.django_db, pytest.mark.xdist_group("weed")]
OWNER = "owner@climate.example"
GOOD = {
    "name": "Archive",
    "endpoint": "https://s3.example.org",
    "bucket": "readings",
    "region": "",
    "prefix": "",
    "path_style": "on",
    "md5_etags": "on",
    "access": "keys",
    "key_id": "AKIDONCE",
    "secret": "TheSecretItself",
}
CHOICE = {"name": "Readings", "prefix": "", "include": "", "exclude": "", "keep_days": ""}
NEW = "/staging/connections/new"


@pytest.fixture
def archive(team) -> Connection:
    """A connection that nothing is listening behind."""
    return connect(team, None, "readings", endpoint="http://127.0.0.1:9", name="Archive")


@pytest.fixture
def role(team) -> Connection:
    return connect(
        team,
        None,
        "lent",
        endpoint="http://127.0.0.1:9",
        name="Lent",
        prefix="climate/",
        access=Access.ROLE,
        key_id="",
        secret="",
        staff=True,
    )


@pytest.fixture
def folder(team, tmp_path) -> ServerFolder:
    root = tmp_path.parent / f"{tmp_path.name}-lab"
    root.mkdir()
    (root / "a.csv").write_bytes(b"x" * 1500)
    return serverfolders.save_folder(
        folder=ServerFolder(), name="Lab", path=str(root), teams=[team], actor=OWNER
    )


def url(row: Connection, rest: str = "") -> str:
    return f"/staging/connections/{row.code}/{rest}"


def text_of(answer) -> str:
    return html.unescape(answer.content.decode())


class TestRights:
    @pytest.mark.parametrize("rest", ["", "change", "remove"])
    def test_a_stranger_sees_nothing(self, stranger_client, operator_client, archive, rest):
        assert stranger_client.get(url(archive, rest)).status_code == 404
        assert operator_client.get(url(archive, rest)).status_code == 404

    @pytest.mark.parametrize("rest", ["change", "remove", "test"])
    def test_a_stranger_does_nothing(self, stranger_client, archive, rest):
        assert stranger_client.post(url(archive, rest), GOOD).status_code == 404
        archive.refresh_from_db()
        assert (archive.name, archive.deleted_at, archive.tested_at) == ("Archive", None, None)

    def test_a_stranger_syncs_from_nothing_of_ours(self, stranger_client, archive, folder):
        for path in (f"s3/{archive.code}", f"folder/{folder.code}"):
            assert stranger_client.get(f"/staging/sync/{path}").status_code == 404
            assert stranger_client.post(f"/staging/sync/{path}", CHOICE).status_code == 404

    def test_a_strangers_lists_name_nothing_of_ours(self, stranger_client, archive, folder):
        for path in ("/staging/connections/", "/staging/sync/"):
            page = stranger_client.get(path).content.decode()
            assert archive.code not in page
            assert folder.code not in page

    @pytest.mark.parametrize("rest", ["change", "remove"])
    def test_a_member_uses_and_does_not_change(self, mate_client, archive, rest):
        assert mate_client.get(url(archive, rest)).status_code == 403
        assert mate_client.post(url(archive, rest), GOOD).status_code == 403
        page = mate_client.get(url(archive)).content.decode()
        assert "Test connection" in page
        assert url(archive, "change") not in page
        assert mate_client.get(f"/staging/sync/s3/{archive.code}").status_code == 200

    def test_a_member_adds_none(self, mate_client):
        assert mate_client.get(NEW).status_code == 403
        assert mate_client.post(NEW, GOOD).status_code == 403
        assert not Connection.objects.exists()

    def test_one_on_the_operators_role_is_used_and_not_edited(self, owner_client, role):
        page = owner_client.get(url(role)).content.decode()
        assert "only an operator changes or removes it" in page
        assert url(role, "change") not in page
        for rest in ("change", "remove"):
            assert owner_client.post(url(role, rest), GOOD).status_code == 403
        assert "climate/" in owner_client.get(f"/staging/sync/s3/{role.code}").content.decode()
        role.refresh_from_db()
        assert role.deleted_at is None

    def test_nobody_makes_one_on_the_operators_role(self, owner_client):
        answer = owner_client.post(NEW, GOOD | {"access": "role", "prefix": "a/"})
        assert answer.status_code == 400
        assert not Connection.objects.exists()

    @pytest.mark.parametrize(
        "path", ["connections/", "connections/new", "sync/", "sync/addresses", "sync/s3/x"]
    )
    def test_nobody_is_asked_to_sign_in(self, db, path):
        assert Client().get(f"/staging/{path}").status_code == 302

    @pytest.mark.parametrize("code", ["nothing", "..", "%00", "<b>", "x" * 900])
    def test_codes_of_nothing(self, owner_client, code):
        for path in (f"connections/{code}/", f"sync/s3/{code}", f"sync/folder/{code}"):
            assert owner_client.get(f"/staging/{path}").status_code in (400, 404)

    def test_acts_are_posts(self, owner_client, archive):
        assert owner_client.get(url(archive, "test")).status_code == 405


class TestConnections:
    def test_one_is_added_and_its_secret_never_comes_back(self, owner_client, team):
        answer = owner_client.post(NEW, GOOD, follow=True)
        row = Connection.objects.get()
        assert answer.status_code == 200
        assert (row.team, row.name, row.region, row.access) == (
            team,
            "Archive",
            "us-east-1",
            "keys",
        )
        for path in (url(row), url(row, "change"), "/staging/connections/", "/team/"):
            page = owner_client.get(path).content.decode()
            assert "AKIDONCE" not in page
            assert "TheSecretItself" not in page
        assert "added the connection Archive" in owner_client.get("/team/").content.decode()

    def test_a_wrong_form_keeps_all_but_key_and_secret(self, owner_client):
        answer = owner_client.post(NEW, GOOD | {"endpoint": "ftp://x"})
        page = answer.content.decode()
        assert answer.status_code == 400
        assert "error-summary" in page
        assert 'value="readings"' in page
        assert "AKIDONCE" not in page
        assert "TheSecretItself" not in page

    @pytest.mark.parametrize("field", list(GOOD))
    @pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
    def test_hostile_values(self, owner_client, field, value):
        answer = owner_client.post(NEW, form_data(GOOD, field, value))
        assert answer.status_code in (302, 400)
        page = answer.content.decode()
        assert "<script>alert" not in page
        assert ("error-summary" in page) == (answer.status_code == 400)
        assert Connection.objects.exists() == (answer.status_code == 302)
        if field in ("key_id", "secret") and value and answer.status_code == 400:
            assert "AKIDONCE" not in page
            assert "alert(1)" not in page

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"endpoint": "https://user:pass@host"}, "id_endpoint"),
            ({"endpoint": "https://host/path"}, "id_endpoint"),
            ({"endpoint": "https://[::1"}, "id_endpoint"),
            ({"bucket": "a/b"}, "id_bucket"),
            ({"bucket": ".."}, "id_bucket"),
            ({"name": "a\u202eb"}, "id_name"),
            ({"key_id": ""}, "id_key_id"),
            ({"secret": ""}, "id_secret"),
            ({"access": "anonymous"}, "id_key_id"),
        ],
    )
    def test_the_field_that_is_wrong_is_named(self, owner_client, change, field):
        page = owner_client.post(NEW, GOOD | change).content.decode()
        assert f'href="#{field}"' in page

    def test_a_name_that_is_taken_is_said(self, owner_client, archive):
        answer = owner_client.post(NEW, GOOD)
        assert answer.status_code == 400
        assert "called Archive already" in answer.content.decode()

    def test_a_public_bucket_needs_no_key(self, owner_client):
        public = GOOD | {"access": "anonymous", "key_id": "", "secret": ""}
        assert owner_client.post(NEW, public).status_code == 302
        row = Connection.objects.get()
        assert (row.access, row.sealed) == (Access.ANONYMOUS, "")
        assert "id_secret" not in owner_client.get(url(row, "change")).content.decode()

    def test_a_change_without_a_key_keeps_the_one_that_is_there(self, owner_client, archive):
        form = {
            "name": "Old archive",
            "region": "eu-1",
            "path_style": "",
            "key_id": "",
            "secret": "",
        }
        assert owner_client.post(url(archive, "change"), form).status_code == 302
        sealed = archive.sealed
        archive.refresh_from_db()
        assert (archive.name, archive.region, archive.path_style) == ("Old archive", "eu-1", False)
        assert (archive.sealed, archive.bucket) == (sealed, "readings")

    def test_another_key_is_taken_with_its_secret_only(self, owner_client, archive):
        form = {"name": "Archive", "region": "", "key_id": "NEWKEY", "secret": ""}
        answer = owner_client.post(url(archive, "change"), form)
        assert answer.status_code == 400
        assert "NEWKEY" not in answer.content.decode()
        assert owner_client.post(url(archive, "change"), form | {"secret": "s"}).status_code == 302
        sealed = archive.sealed
        archive.refresh_from_db()
        assert archive.sealed != sealed
        assert connections.bucket_of(archive).secret.key_id == "NEWKEY"

    @pytest.mark.parametrize("field", ["name", "region", "key_id", "secret"])
    @pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
    def test_hostile_changes(self, owner_client, archive, field, value):
        form = {"name": "Archive", "region": "", "path_style": "on", "key_id": "k", "secret": "s"}
        answer = owner_client.post(url(archive, "change"), form_data(form, field, value))
        assert answer.status_code in (302, 400)
        assert "<script>alert" not in answer.content.decode()

    def test_one_in_use_is_not_removed(self, owner_client, archive):
        source = begin(archive)
        page = owner_client.get(url(archive, "remove")).content.decode()
        assert "A sync uses this connection" in page
        assert "Remove the connection" not in page
        answer = owner_client.post(url(archive, "remove"), follow=True)
        assert "A sync uses this connection" in answer.content.decode()
        archive.refresh_from_db()
        assert archive.deleted_at is None
        sources.cancel(source=source, actor=OWNER)
        assert owner_client.post(url(archive, "remove"), follow=True).status_code == 200
        archive.refresh_from_db()
        assert (archive.deleted_at is not None, archive.sealed) == (True, "")
        assert owner_client.get(url(archive)).status_code == 404

    def test_a_test_says_exactly_what_is_wrong(self, mate_client, team, weed, bucket):
        wrong = connect(team, weed, bucket, secret="not-this-one")
        page = text_of(mate_client.post(url(wrong, "test"), follow=True))
        assert "does not accept the signature" in page
        assert "<code>signature</code>" in page
        gone = connect(team, weed, "not-there")
        assert "There is no bucket" in text_of(mate_client.post(url(gone, "test"), follow=True))

    def test_a_test_that_works(self, mate_client, connection):
        page = text_of(mate_client.post(url(connection, "test"), follow=True))
        assert "It works" in page
        assert SECRET not in page
        assert KEY not in page

    def test_sentences_of_a_source_are_text(self, owner_client, archive):
        Connection.objects.filter(pk=archive.pk).update(
            tested_at=archive.created_at, test_code="x", test_sentence="<script>alert(1)</script>"
        )
        page = owner_client.get(url(archive)).content.decode()
        assert "&lt;script&gt;alert(1)" in page
        assert "<script>alert" not in page


def preview(client, path: str, **fields):
    answer = client.post(path, CHOICE | fields)
    return answer, text_of(answer)


class TestNew:
    @pytest.fixture
    def filled(self, weed, bucket, connection) -> str:
        weed.put(
            bucket,
            {
                "2026/a.csv": b"a" * 3000,
                "2026/b.csv": b"b" * 2000,
                "2026/c.txt": b"c" * 9000,
                "2026/<b>&amp;.csv": b"d" * 10,
                "2025/old.csv": b"e",
            },
        )
        return f"/staging/sync/s3/{connection.code}"

    def test_the_preview_counts_and_names_the_largest_and_moves_nothing(self, mate_client, filled):
        answer, page = preview(mate_client, filled, prefix="2026", include="*.csv")
        assert answer.status_code == 200
        assert "Declare what the job reads, not all that the team has" in page
        assert "3 files" in page
        assert "5 kB" in page
        assert "c.txt" not in page
        assert "&lt;b&gt;&amp;amp;.csv" in answer.content.decode()
        assert (Dataset.objects.count(), Source.objects.count()) == (0, 0)

    def test_what_was_counted_begins_and_ends_staged(self, mate_client, filled):
        fields = {"prefix": "2026", "exclude": "*.txt\n"}
        answer, _ = preview(mate_client, filled, **fields)
        seen = inputs_of(answer)["seen"]
        answer = mate_client.post(filled, CHOICE | fields | {"seen": seen, "do": "begin"})
        source = Source.objects.get()
        assert answer["Location"] == f"/staging/{source.dataset.code}/"
        assert (source.prefix, source.exclude) == ("2026/", ["*.txt"])
        assert source.created_by == "mate@climate.example"
        assert finish(source).dataset.state == "staged"
        page = text_of(mate_client.get(f"/staging/{source.dataset.code}/"))
        assert "3 of 3 files" in page
        assert "<title>Staged · " in " ".join(page.split()).replace("<title> ", "<title>")

    @pytest.mark.parametrize("forged", ["", "x", "a" * 5000, "e30:1:2"])
    def test_nothing_begins_that_was_not_counted(self, mate_client, filled, forged):
        answer = mate_client.post(filled, CHOICE | {"seen": forged, "do": "begin"})
        assert answer.status_code == 200
        assert not Source.objects.exists()

    def test_another_choice_is_counted_first(self, mate_client, filled):
        answer, _ = preview(mate_client, filled, prefix="2026")
        seen = inputs_of(answer)["seen"]
        changed = CHOICE | {"prefix": "2025", "seen": seen, "do": "begin"}
        answer = mate_client.post(filled, changed)
        assert "The choice was changed" in text_of(answer)
        assert not Source.objects.exists()
        changed["seen"] = inputs_of(answer)["seen"]
        assert mate_client.post(filled, changed).status_code == 302

    def test_counting_goes_on_where_it_stopped(self, mate_client, filled, monkeypatch):
        monkeypatch.setattr(sources, "PREVIEW_S", -1)
        pages = S3Reader.pages
        monkeypatch.setattr(S3Reader, "pages", lambda self, at: pages(self, at, most=2))
        answer, page = preview(mate_client, filled)
        assert "counted so far" in page
        rounds = 0
        while "Count on" in page:
            rounds += 1
            more = CHOICE | {"seen": inputs_of(answer)["seen"], "do": "more"}
            answer = mate_client.post(filled, more)
            page = text_of(answer)
        assert rounds
        assert "5 files" in page

    def test_an_empty_choice_cannot_begin(self, mate_client, filled):
        _, page = preview(mate_client, filled, prefix="nothing")
        assert "Nothing here is chosen" in page
        assert 'value="begin"' not in page

    def test_a_source_that_is_away_is_a_sentence(self, mate_client, archive):
        answer, page = preview(mate_client, f"/staging/sync/s3/{archive.code}")
        assert answer.status_code == 200
        assert "The source was not listed" in page
        assert 'value="begin"' not in page

    @pytest.mark.parametrize("field", ["name", "prefix", "include", "exclude", "keep_days"])
    @pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
    def test_hostile_values(self, mate_client, archive, field, value):
        path = f"/staging/sync/s3/{archive.code}"
        answer = mate_client.post(path, form_data(CHOICE, field, value))
        assert answer.status_code in (200, 400)
        assert "<script>alert" not in answer.content.decode()
        assert not Source.objects.exists()

    @pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
    def test_hostile_lists(self, mate_client, value):
        given = form_data(CHOICE, "addresses", value)
        answer = mate_client.post("/staging/sync/addresses", given)
        assert answer.status_code == 400
        assert "id_addresses" in answer.content.decode()

    def test_a_line_that_is_wrong_is_named(self, mate_client):
        lines = "https://data.example/a.csv\nhttp://data.example/b.csv"
        answer = mate_client.post("/staging/sync/addresses", CHOICE | {"addresses": lines})
        assert "Line 2: an address begins with https://." in text_of(answer)

    def test_an_address_inside_is_refused_by_its_line(self, mate_client, settings):
        settings.SYNC_ALLOWED_NETWORKS = []
        lines = "https://127.0.0.1/a.csv 5"
        answer = mate_client.post("/staging/sync/addresses", CHOICE | {"addresses": lines})
        assert answer.status_code == 200
        assert "Line 1: " in text_of(answer)

    def test_a_server_folder_from_choice_to_staged(self, mate_client, folder):
        assert "Lab" in mate_client.get("/staging/sync/").content.decode()
        path = f"/staging/sync/folder/{folder.code}"
        answer, page = preview(mate_client, path)
        assert "1 file" in page
        assert folder.path not in page
        seen = inputs_of(answer)["seen"]
        assert mate_client.post(path, CHOICE | {"seen": seen, "do": "begin"}).status_code == 302
        assert finish(Source.objects.get()).dataset.state == "staged"

    @pytest.mark.parametrize("prefix", ["..", "a/../b", "a//b", "a\\b"])
    def test_a_prefix_that_leaves_the_folder_is_refused(self, mate_client, folder, prefix):
        path = f"/staging/sync/folder/{folder.code}"
        answer, page = preview(mate_client, path, prefix=prefix)
        assert answer.status_code == 400
        assert 'href="#id_prefix"' in page

    def test_a_folder_that_was_taken_away_is_not_there(self, mate_client, folder):
        folder.teams.clear()
        assert mate_client.get(f"/staging/sync/folder/{folder.code}").status_code == 404

    def test_again_fills_the_form_with_an_earlier_choice(self, mate_client, archive, role):
        source = begin(archive, prefix="2026", include=("*.csv",), name="First")
        path = f"/staging/sync/s3/{archive.code}?again={source.dataset.code}"
        page = mate_client.get(path).content.decode()
        assert 'value="2026/"' in page
        assert "*.csv" in page
        assert 'value="First"' in page

    def test_again_tells_nothing_of_another_team(self, stranger_client, archive):
        source = begin(archive, prefix="2026", name="First")
        page = stranger_client.get(f"/staging/sync/addresses?again={source.dataset.code}")
        assert "First" not in page.content.decode()


def begin_folder(folder: ServerFolder) -> Source:
    team = folder.teams.get()
    dataset = services.create_dataset(team=team, name="Readings", actor=OWNER)
    choice = sources.Choice(SourceKind.FOLDER, folder=folder)
    return sources.create_source(dataset=dataset, choice=choice, actor=OWNER)


def test_silent_sources_do_not_take_every_thread(mate_client, archive, monkeypatch):
    monkeypatch.setattr(asking, "PATIENCE_S", 0.01)
    with ExitStack() as stack:
        for _ in range(asking.SEATS):
            stack.enter_context(asking.asking())
        answer, page = preview(mate_client, f"/staging/sync/s3/{archive.code}")
        assert answer.status_code == 200
        assert "asks other sources just now" in page
        page = text_of(mate_client.post(url(archive, "test"), follow=True))
        assert "asks other sources just now" in page
    _, page = preview(mate_client, f"/staging/sync/s3/{archive.code}")
    assert "refuses" in page


ACTS = ["pause", "resume", "retry", "list_again", "cancel"]


class TestDataset:
    def live(self, client, source: Source, query: str = "") -> str:
        answer = client.get(f"/staging/{source.dataset.code}/live{query}")
        assert answer.status_code == 200
        return text_of(answer)

    def act(self, client, source: Source, verb: str) -> str:
        path = f"/staging/{source.dataset.code}/sync/{verb}"
        answer = client.post(path, follow=True)
        assert answer.status_code == 200
        source.refresh_from_db()
        source.dataset.refresh_from_db()
        return text_of(answer)

    @pytest.mark.parametrize("verb", ACTS)
    def test_a_stranger_does_nothing(self, stranger_client, archive, verb):
        source = begin(archive)
        path = f"/staging/{source.dataset.code}/sync/{verb}"
        assert stranger_client.post(path).status_code == 404
        assert stranger_client.get(f"/staging/{source.dataset.code}/live").status_code == 404
        assert (
            stranger_client.get(f"/staging/{source.dataset.code}/sync/cancel/confirm").status_code
            == 404
        )
        source.refresh_from_db()
        assert source.state == SourceState.LISTING

    @pytest.mark.parametrize("verb", [*ACTS, "x", "<b>", "delete"])
    def test_acts_on_what_has_no_sync_or_no_such_act(self, mate_client, dataset, archive, verb):
        assert mate_client.post(f"/staging/{dataset.code}/sync/{verb}").status_code == 404
        if verb not in ACTS:
            code = begin(archive).dataset.code
            assert mate_client.post(f"/staging/{code}/sync/{verb}").status_code == 404

    @pytest.mark.parametrize("verb", ACTS)
    def test_an_act_in_any_state_is_done_or_refused_in_a_sentence(self, mate_client, archive, verb):
        source = begin(archive)
        for state in SourceState.values:
            Source.objects.filter(pk=source.pk).update(state=state)
            page = self.act(mate_client, source, verb)
            assert 'class="notice' in page

    def test_a_new_sync_polls_and_a_paused_one_does_not(self, mate_client, archive):
        source = begin(archive)
        assert 'hx-trigger="every 3s' in self.live(mate_client, source)
        assert "Paused by a member of the team." in self.act(mate_client, source, "pause")
        page = self.live(mate_client, source)
        assert "Resume" in page
        assert 'hx-trigger="refresh"' in page
        self.act(mate_client, source, "resume")
        assert source.state == SourceState.LISTING

    def test_cancelling_asks_first(self, mate_client, archive):
        source = begin(archive)
        path = f"/staging/{source.dataset.code}/sync/cancel/confirm"
        assert "Cancel the sync" in mate_client.get(path).content.decode()
        source.refresh_from_db()
        assert source.state == SourceState.LISTING
        page = self.act(mate_client, source, "cancel")
        assert (source.state, source.dataset.state) == (SourceState.CANCELLED, "failed")
        assert "The sync was cancelled before everything had arrived." in page

    def test_a_cancelled_one_tells_no_older_trouble(self, mate_client, archive):
        source = begin(archive)
        Source.objects.filter(pk=source.pk).update(sentence="It is away.", tries=3)
        assert "It is away." in self.live(mate_client, source)
        assert "It is away." not in self.act(mate_client, source, "cancel")

    def test_a_failed_check_can_be_listed_again(self, mate_client, folder):
        source = finish(begin_folder(folder))
        reason = DatasetReason.BYTES_MISSING
        Dataset.objects.update(state="failed", reason=reason)
        page = text_of(mate_client.get(f"/staging/{source.dataset.code}/"))
        assert str(reason.label) in page
        assert "sync/list_again" in page
        self.act(mate_client, source, "list_again")
        assert source.state == SourceState.LISTING

    def test_a_source_that_is_away_is_told_with_its_reason(self, mate_client, archive):
        source = begin(archive)

        def told() -> bool:
            source.refresh_from_db()
            return bool(source.tries)

        run_until(told, "the source is missed")
        page = self.live(mate_client, source)
        assert source.sentence in page
        assert "It is tried again" in page

    def test_rate_and_time_left_are_those_of_looks_at_the_sync(self, mate_client, folder):
        source = begin_folder(folder)
        listed(source)
        assert "not known yet" in self.live(mate_client, source)
        now = db_now() - timedelta(seconds=5)
        for second in range(6):
            SourceFile.objects.filter(source=source).update(arrived=second * 120)
            look_at_source(source.pk, now + timedelta(seconds=second))
        page = self.live(mate_client, source)
        assert "120 bytes a second, about" in page
        assert "9 times in 10 within" in page
        assert "600 bytes of 1.5 kB" in page
        assert not Transfer.objects.get().complete

    def test_what_is_tried_again_is_named(self, mate_client, folder):
        source = begin_folder(folder)
        listed(source)
        later = db_now() + timedelta(seconds=90)
        parts = Part.objects.filter(source=source)
        assert parts.update(tries=1, sentence="<b> 503", next_try_at=later)
        page = mate_client.get(f"/staging/{source.dataset.code}/").content.decode()
        assert "<bdi>a.csv</bdi>: &lt;b&gt; 503" in page

    def test_what_happened_names_the_acts(self, mate_client, folder):
        source = begin_folder(folder)
        self.act(mate_client, source, "pause")
        self.act(mate_client, source, "resume")
        finish(source)
        page = self.live(mate_client, source)
        for what in (
            "Paused",
            "Resumed",
            "copying began: 1 file",
            "Every file has arrived: 1 file",
        ):
            assert what in page

    def test_awkward_keys_are_named_as_text(self, mate_client, weed, bucket, connection):
        weed.put(bucket, {"ok": b"x", "con": b"y", "aux.<b>x": b"z"})
        source = finish(begin(connection))
        answer = mate_client.get(f"/staging/{source.dataset.code}/")
        assert "2 names were not taken" in answer.content.decode()
        assert "aux.&lt;b&gt;x" in answer.content.decode()
        assert "reserved name" in answer.content.decode()

    def test_what_changed_is_named_and_listed_again(self, mate_client, weed, bucket, connection):
        weed.put(bucket, {"same": b"x" * 100, "moved<i>": b"y" * 100})
        source = begin(connection)
        listed(source)
        weed.put(bucket, {"moved<i>": b"z" * 200})
        finish(source)
        assert source.state == SourceState.STALE
        answer = mate_client.get(f"/staging/{source.dataset.code}/")
        page = answer.content.decode()
        assert "1 file changed at the source" in page
        assert "moved&lt;i&gt;" in page
        assert "source changed" in page
        self.act(mate_client, source, "list_again")
        assert finish(source).dataset.state == "staged"

    def test_a_poll_costs_the_same_for_many_files(self, mate_client, folder):
        costs = []
        for more in (0, 600):
            for number in range(more):
                (Path(folder.path) / f"{number:04}.csv").write_bytes(b"x")
            source = begin_folder(folder)
            listed(source)
            with CaptureQueriesContext(database) as queries:
                page = self.live(mate_client, source, "?was=copying")
            costs.append((len(queries), len(page) // 1000))
        assert costs[0] == costs[1]
        assert costs[0][1] < 10

    def test_the_date_of_a_sync_is_set_or_refused_on_its_own_page(self, mate_client, archive):
        code = begin(archive).dataset.code
        answer = mate_client.post(f"/staging/{code}/keep", {"keep_days": "x"})
        assert answer.status_code == 400
        assert "sync-marks" in answer.content.decode()
        assert mate_client.post(f"/staging/{code}/keep", {"keep_days": "3"}).status_code == 302

    def test_one_that_was_deleted_keeps_its_page(self, mate_client, folder):
        source = finish(begin_folder(folder))
        code = source.dataset.code
        assert mate_client.post(f"/staging/{code}/delete").status_code == 302
        assert "deletion was decided" in self.live(mate_client, source).lower()
        services.purge_dataset(dataset=source.dataset)
        page = text_of(mate_client.get(f"/staging/{code}/"))
        assert "1.5 kB left the store" in page
        assert "Pause" not in page

    def test_files_come_with_a_poll_only_when_the_state_is_another(self, mate_client, archive):
        source = begin(archive)
        assert 'id="files"' not in self.live(mate_client, source, "?was=listing")
        assert 'id="files"' in self.live(mate_client, source, "?was=copying")

    @pytest.mark.parametrize("since", ["", "x", "%00", "W10=", "a" * 5000, "<b>"])
    def test_a_cursor_that_is_none(self, mate_client, archive, since):
        source = begin(archive)
        code = source.dataset.code
        assert mate_client.get(f"/staging/{code}/live?since={since}").status_code in (200, 400)
        assert mate_client.get(f"/staging/{code}/?since={since}").status_code in (200, 400)

    def test_the_list_of_addresses_is_not_shown_to_others(self, stranger_client, team):
        dataset = services.create_dataset(team=team, name="Web", actor=OWNER)
        choice = sources.Choice(SourceKind.URLS, addresses="https://data.example/a.csv 1")
        sources.create_source(dataset=dataset, choice=choice, actor=OWNER)
        assert stranger_client.get(f"/staging/{dataset.code}/").status_code == 404


def test_no_page_holds_the_key(mate_client, weed, bucket, connection):
    weed.put(bucket, {"a": b"x"})
    source = finish(begin(connection))
    code = source.dataset.code
    paths = ["connections/", f"connections/{connection.code}/", "sync/", f"{code}/", f"{code}/live"]
    for path in [*paths, f"sync/s3/{connection.code}?again={code}", ""]:
        page = mate_client.get(f"/staging/{path}").content.decode()
        assert KEY not in page
        assert SECRET not in page
        assert connection.sealed not in page


def test_the_lab_is_named_and_its_path_is_not(mate_client, folder):
    assert str(Path(folder.path)) not in mate_client.get("/staging/sync/").content.decode()

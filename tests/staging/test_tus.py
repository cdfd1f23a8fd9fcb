"""tus 1.0.0: every header missing, wrong, huge and hostile; who may send; how an upload ends."""

import base64
import errno
import os

import pytest
from django.test import Client

from portal.teams.models import Membership
from staging import openchunks, services, store, tus, uploads
from staging.digests import SMALLEST_CHUNK
from staging.errors import WrongOffset
from staging.models import Dataset, File, TeamUsage, Upload
from staging.receive import receive
from staging.states import UploadState
from staging.takeover import writing
from staging.writer import Writer

pytestmark = [pytest.mark.django_db, pytest.mark.db]
TUS = {"HTTP_TUS_RESUMABLE": "1.0.0"}
PATCH_TYPE = "application/offset+octet-stream"


def meta(**values: str) -> str:
    return ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in values.items())


@pytest.fixture
def address(dataset, owner) -> str:
    """An open upload of 10 bytes."""
    entry = services.Entry(path="a.bin", size=10)
    (plan,) = services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
    return plan.address


def patch(path: str, body: bytes = b"", client: Client | None = None, **headers):
    values = {"CONTENT_TYPE": PATCH_TYPE, "HTTP_UPLOAD_OFFSET": "0", **TUS, **headers}
    values = {name: value for name, value in values.items() if value is not None}
    return (client or Client()).generic("PATCH", path, body, **values)


def create(client: Client, *, length: str | None = "3", metadata: str = "", **headers):
    values = {"HTTP_UPLOAD_METADATA": metadata, **TUS, **headers}
    if length is not None:
        values["HTTP_UPLOAD_LENGTH"] = length
    return client.post("/tus/", **values)


class TestOptions:
    @pytest.mark.parametrize("path", ["/tus/", "/tus/a/b"])
    def test_says_what_is_spoken(self, path):
        answer = Client().options(path)
        assert answer.status_code == 204
        assert answer["Tus-Version"] == answer["Tus-Resumable"] == "1.0.0"
        assert answer["Tus-Extension"] == tus.EXTENSIONS
        assert int(answer["Tus-Max-Size"]) > 0


class TestVersion:
    @pytest.mark.parametrize("version", [None, "", "0.2.2", "1.0", "x" * 5000, "١.٠.٠"])
    @pytest.mark.parametrize("method", ["HEAD", "PATCH", "DELETE", "POST"])
    def test_another_version_is_412(self, address, version, method):
        headers = {} if version is None else {"HTTP_TUS_RESUMABLE": version}
        answer = Client().generic(method, address, **headers)
        assert answer.status_code == 412
        assert answer["Tus-Version"] == answer["Tus-Resumable"] == "1.0.0"

    @pytest.mark.parametrize("path", ["/tus/", "/tus/x/y", "/tus/x", "/tus/a/b/c", "/tus/x/"])
    @pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "BREW"])
    def test_every_answer_carries_the_version(self, path, method):
        answer = Client().generic(method, path, **TUS)
        assert 400 <= answer.status_code < 500
        assert answer["Tus-Resumable"] == "1.0.0"
        assert answer.json()["message"]


class TestCreation:
    def test_creates_at_a_relative_address(self, owner_client, dataset):
        answer = create(owner_client, metadata=meta(dataset=dataset.code, filename="a.txt"))
        assert answer.status_code == 201
        assert answer["Location"].startswith("/tus/")
        assert answer["Upload-Expires"].endswith("GMT")
        assert File.objects.get().path == "a.txt"
        head = Client().head(answer["Location"], **TUS)
        assert (head["Upload-Offset"], head["Upload-Length"]) == ("0", "3")
        assert head["Upload-Metadata"] == meta(dataset=dataset.code, filename="a.txt")
        assert head["Cache-Control"] == "no-store"

    def test_a_folder_is_kept(self, owner_client, dataset):
        values = meta(dataset=dataset.code, filename="a", relativePath="d/é/a")
        assert create(owner_client, metadata=values).status_code == 201
        assert File.objects.get().path == "d/é/a"

    def test_a_name_that_shows_as_another_one_is_refused(self, owner_client, dataset):
        values = meta(dataset=dataset.code, filename="invoice\u202egpj.exe")
        answer = create(owner_client, metadata=values)
        assert (answer.status_code, answer.json()["error"]) == (400, "name_refused")
        assert "U+202E (right-to-left override)" in answer.json()["message"]
        assert not File.objects.exists()

    def test_names_of_one_look_in_two_normalizations_are_two_files(self, owner_client, dataset):
        """As they are where they come from; declaring each again finds its own upload."""
        for _ in range(2):
            for name in ("caf\u00e9", "cafe\u0301"):
                answer = create(owner_client, metadata=meta(dataset=dataset.code, filename=name))
                assert answer.status_code == 201
        assert set(File.objects.values_list("path", flat=True)) == {"caf\u00e9", "cafe\u0301"}

    def test_length_0_is_complete_at_once(self, owner_client, dataset):
        answer = create(owner_client, length="0", metadata=meta(dataset=dataset.code, filename="e"))
        assert answer.status_code == 201
        head = Client().head(answer["Location"], **TUS)
        assert (head["Upload-Offset"], head["Upload-Length"]) == ("0", "0")
        assert File.objects.get().state == "uploaded"

    @pytest.mark.parametrize(
        ("length", "extra", "status"),
        [
            (None, {}, 400),
            ("", {}, 400),
            ("-1", {}, 400),
            ("1.0", {}, 400),
            ("1e3", {}, 400),
            ("0x10", {}, 400),
            ("٣", {}, 400),
            ("3 3", {}, 400),
            ("NaN", {}, 400),
            ("9" * 18, {}, 413),
            ("9" * 30, {}, 413),
            ("9" * 6000, {}, 413),
            ("3", {"HTTP_UPLOAD_DEFER_LENGTH": "1"}, 400),
            (None, {"HTTP_UPLOAD_DEFER_LENGTH": "0"}, 400),
            (None, {"HTTP_UPLOAD_DEFER_LENGTH": "2"}, 400),
        ],
    )
    def test_lengths(self, owner_client, dataset, length, extra, status):
        values = meta(dataset=dataset.code, filename="a")
        answer = create(owner_client, length=length, metadata=values, **extra)
        assert answer.status_code == status
        assert answer.json()["message"]
        assert not Upload.objects.exists()

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "dataset",
            "filename !!!",
            "filename YQ==,filename YQ==",
            "filename YQ",
            "filename /w==",
            ",",
            "a b c",
            "é YQ==",
            "x " + "QUFB" * 3000,
            "filename " + base64.b64encode(b"a\0b").decode(),
            "filename " + base64.b64encode(b"../x").decode(),
        ],
    )
    def test_metadata(self, owner_client, dataset, value):
        joined = meta(dataset=dataset.code) + ("," + value if value else "")
        answer = create(owner_client, metadata=joined)
        assert answer.status_code == 400
        assert not Upload.objects.exists()

    def test_a_stranger_gets_404(self, stranger_client, dataset):
        answer = create(stranger_client, metadata=meta(dataset=dataset.code, filename="a"))
        assert answer.status_code == 404

    def test_nobody_gets_401(self, dataset):
        answer = create(Client(), metadata=meta(dataset=dataset.code, filename="a"))
        assert answer.status_code == 401

    def test_csrf_is_checked(self, owner, dataset):
        client = Client(enforce_csrf_checks=True)
        client.force_login(owner)
        answer = create(client, metadata=meta(dataset=dataset.code, filename="a"))
        assert answer.status_code == 403
        assert (answer["Tus-Resumable"], answer.json()["error"]) == ("1.0.0", "form_out_of_date")


class TestPatch:
    def test_appends_and_completes(self, address):
        first = patch(address, b"01234")
        assert (first.status_code, first["Upload-Offset"]) == (204, "5")
        last = patch(address, b"56789", HTTP_UPLOAD_OFFSET="5")
        assert (last.status_code, last["Upload-Offset"]) == (204, "10")
        assert b"".join(services.open_file(file=File.objects.get())) == b"0123456789"
        again = patch(address, b"", HTTP_UPLOAD_OFFSET="10")
        assert (again.status_code, again["Upload-Offset"]) == (204, "10")

    @pytest.mark.parametrize("offset", ["1", "10", "11", "9" * 18])
    def test_another_offset_is_409_with_the_true_one(self, address, offset):
        answer = patch(address, b"x", HTTP_UPLOAD_OFFSET=offset)
        assert (answer.status_code, answer["Upload-Offset"]) == (409, "0")

    @pytest.mark.parametrize("offset", [None, "", "-1", "1.5", "a", "٣", "+1", "0x1", "1_0"])
    def test_an_offset_that_is_none_is_400(self, address, offset):
        assert patch(address, b"x", HTTP_UPLOAD_OFFSET=offset).status_code == 400

    def test_a_huge_offset_is_refused(self, address):
        assert patch(address, b"x", HTTP_UPLOAD_OFFSET="9" * 6000).status_code == 413

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/json", "x" * 3000])
    def test_another_type_is_415(self, address, kind):
        assert patch(address, b"x", CONTENT_TYPE=kind).status_code == 415

    def test_more_than_fits_is_413_and_changes_nothing(self, address):
        answer = patch(address, b"x" * 11)
        assert (answer.status_code, answer["Upload-Offset"]) == (413, "0")
        assert Upload.objects.get().offset == 0

    def test_no_body_keeps_the_offset(self, address):
        answer = patch(address, b"")
        assert (answer.status_code, answer["Upload-Offset"]) == (204, "0")

    def test_the_method_override_applies(self, address):
        answer = Client().post(
            address,
            b"01234",
            content_type=PATCH_TYPE,
            HTTP_UPLOAD_OFFSET="0",
            HTTP_X_HTTP_METHOD_OVERRIDE="PATCH",
            **TUS,
        )
        assert (answer.status_code, answer["Upload-Offset"]) == (204, "5")

    def test_a_full_disk_is_507_and_says_so_on_the_dataset(self, address, monkeypatch):
        def full(fd, piece, offset):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("staging.store.write_all", full)
        answer = patch(address, b"01234")
        assert (answer.status_code, answer["Upload-Offset"]) == (507, "0")
        assert Dataset.objects.get().reason == "disk_full"
        monkeypatch.undo()
        assert patch(address, b"0123456789").status_code == 204
        assert Dataset.objects.get().reason == ""

    def test_short_writes_are_finished(self, address, monkeypatch):
        whole = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:3], at))
        assert patch(address, b"0123456789").status_code == 204
        assert b"".join(services.open_file(file=File.objects.get())) == b"0123456789"

    def test_a_restart_goes_back_to_what_is_on_the_disk(self, address):
        """After a power cut the file may be shorter than the row: the row gives way."""
        patch(address, b"01234")
        upload = Upload.objects.get()
        store.path_of(upload.key).write_bytes(b"01")
        answer = patch(address, b"56789", HTTP_UPLOAD_OFFSET="5")
        assert (answer.status_code, answer["Upload-Offset"]) == (409, "0")
        assert patch(address, b"0123456789").status_code == 204

    def test_a_later_request_wins(self, address):
        """The one who writes stops at its next piece and keeps what it wrote."""
        upload = Upload.objects.get()

        def pieces():
            yield b"012"
            Upload.objects.update(generation=5)
            yield b""
            pytest.fail("it went on")

        with pytest.raises(WrongOffset) as caught:
            receive(upload=upload, offset=0, pieces=pieces())
        assert caught.value.offset == 3
        with writing(Upload.objects.get()) as fd:
            assert Writer(Upload.objects.get(), fd).position == 3

    def test_a_takeover_before_the_lock_ends_the_request(self, address):
        upload = Upload.objects.get()
        Upload.objects.update(generation=1)
        with pytest.raises(WrongOffset):
            receive(upload=upload, offset=0, pieces=[b"012"])
        assert Upload.objects.get().offset == 0


class TestRights:
    @pytest.mark.parametrize(
        "change",
        [
            lambda a: a[:-1] + ("0" if a[-1] != "0" else "1"),
            lambda a: a.rsplit("/", 1)[0] + "/x",
            lambda a: a.rsplit("/", 1)[0] + "/" + "é" * 10,
            lambda a: "/tus/" + "b" * 32 + "/" + a.rsplit("/", 1)[1],
            lambda a: a.upper().replace("/TUS/", "/tus/"),
        ],
    )
    def test_another_address_is_404(self, address, change):
        assert patch(change(address), b"x").status_code == 404

    def test_it_outlives_the_login(self, address):
        assert patch(address, b"x", client=Client()).status_code == 204

    def test_it_ends_with_the_membership(self, address, owner):
        patch(address, b"01234")
        Membership.objects.filter(user=owner).delete()
        assert patch(address, b"x", HTTP_UPLOAD_OFFSET="5").status_code == 404
        assert Client().head(address, **TUS).status_code == 404

    def test_a_mate_goes_on_under_an_address_of_its_own(self, address, owner, mate, dataset):
        patch(address, b"01234")
        Membership.objects.filter(user=owner).delete()
        entry = services.Entry(path="a.bin", size=10)
        (plan,) = services.declare_files(dataset=dataset, entries=[entry], actor=mate.email)
        assert (plan.address != address, plan.upload.offset) == (True, 5)
        assert patch(address, b"x", HTTP_UPLOAD_OFFSET="5").status_code == 404
        assert patch(plan.address, b"56789", HTTP_UPLOAD_OFFSET="5").status_code == 204

    def test_a_running_request_ends_with_the_membership(self, address, owner, monkeypatch):
        """One PATCH may last for hours; the right was asked for at its start alone."""
        monkeypatch.setattr("staging.writer.ASK_EVERY", 0.0)
        monkeypatch.setattr("staging.writer.LOOK_EVERY", 0.0)

        def pieces(environ, length, key=""):
            yield b"01"
            Membership.objects.filter(user=owner).delete()
            yield b"23"
            yield b"45"

        monkeypatch.setattr("staging.body.pieces", pieces)
        assert patch(address, b"0123456789").status_code == 404
        assert Upload.objects.get().offset == 4

    def test_a_lease_is_asked_about_its_right(self, dataset, owner, monkeypatch):
        alive = {"l1"}
        monkeypatch.setitem(uploads._holders, "lease", lambda code: code in alive)
        (plan,) = services.declare_files(
            dataset=dataset,
            entries=[services.Entry(path="out", size=3)],
            actor="node n1",
            holder="lease:l1",
        )
        assert File.objects.get().source == "l1"
        assert patch(plan.address, b"a").status_code == 204
        alive.clear()
        assert patch(plan.address, b"b", HTTP_UPLOAD_OFFSET="1").status_code == 404


class TestTermination:
    def test_room_and_row_are_given_back(self, address):
        patch(address, b"01234")
        assert Client().delete(address, **TUS).status_code == 204
        assert Client().head(address, **TUS).status_code == 410
        assert patch(address, b"x", HTTP_UPLOAD_OFFSET="5").status_code == 410
        assert Client().delete(address, **TUS).status_code == 410
        assert not File.objects.exists()
        assert TeamUsage.objects.get().promised_bytes == 0
        assert Upload.objects.get().state == UploadState.TERMINATED

    def test_a_complete_file_is_not_ended_by_it(self, address):
        patch(address, b"0123456789")
        assert Client().delete(address, **TUS).status_code == 409
        assert File.objects.get().state == "uploaded"


def test_a_store_that_cannot_be_written_is_503(address, monkeypatch):
    """Read-only, unmounted: the client comes again, and nothing of it is lost."""

    def read_only(*args: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(store, "_open", read_only)
        for answer in (patch(address, b"0123456789"), Client().head(address, **TUS)):
            assert answer.status_code == 503
            assert answer["Retry-After"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", read_only)
        assert patch(address, b"0123456789").status_code == 503
    offset = Client().head(address, **TUS)["Upload-Offset"]
    assert (
        patch(address, b"0123456789"[int(offset) :], HTTP_UPLOAD_OFFSET=offset).status_code == 204
    )
    assert File.objects.get().state == "uploaded"


def test_going_on_reads_at_most_the_open_chunk(dataset, owner, monkeypatch):
    """Also to finish, by a process that knows only what is on the row."""
    size = 3 * SMALLEST_CHUNK
    data = bytes(size)
    entries = [services.Entry("big", size)]
    (plan,) = services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
    kept = 2 * SMALLEST_CHUNK + 1000
    receive(upload=plan.upload, offset=0, pieces=[data[:kept]])
    read = []
    pread = os.pread

    def counting(fd, length, at):
        piece = pread(fd, length, at)
        read.append((at, len(piece)))
        return piece

    monkeypatch.setattr(os, "pread", counting)
    openchunks._kept.clear()
    receive(upload=Upload.objects.get(), offset=kept, pieces=[data[kept:-1]])
    assert read == [(2 * SMALLEST_CHUNK, 1000)]
    read.clear()
    openchunks._kept.clear()
    receive(upload=Upload.objects.get(), offset=size - 1, pieces=[data[-1:]])
    assert sum(length for _, length in read) < SMALLEST_CHUNK
    assert min(at for at, _ in read) == 2 * SMALLEST_CHUNK
    assert Upload.objects.get().state == UploadState.COMPLETE


@pytest.mark.parametrize("path", ["/tus/%2500/x", "/tus/%25/x", "/tus/%2500/0a/digests"])
def test_an_address_with_an_escaped_nul_is_404(path):
    """PostgreSQL takes no NUL, and an address was unquoted a second time."""
    assert Client().head(path, **TUS).status_code in (404, 405)
    assert Client().delete(path, **TUS).status_code in (404, 405)


def test_a_part_with_an_escaped_nul_is_404(owner_client, dataset):
    answer = owner_client.post(
        "/tus/",
        HTTP_TUS_RESUMABLE="1.0.0",
        HTTP_UPLOAD_CONCAT="final;/tus/%00/0a",
        HTTP_UPLOAD_METADATA=meta(filename="a", dataset=dataset.code),
    )
    assert answer.status_code == 404

"""tus 1.0.0: what a server owes its clients, line by line, against a live gunicorn."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator

import pytest

from tests.staging.live import PATCH_TYPE, Answer, head, serving
from tests.staging.test_tus_live import CSRF, Portal, content

pytestmark = pytest.mark.xdist_group("tus_owes")
ROOT = "/tus/"
MOST = 10_000_000


def b64(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def meta(**values: str) -> str:
    return ",".join(f"{key} {b64(value)}" for key, value in values.items())


def checksum(name: str, data: bytes) -> str:
    return f"{name} {b64(hashlib.new(name, data).digest())}"


class Tus(Portal):
    """A portal with an upload key, and the verbs of the protocol."""

    def set_up(self) -> None:
        super().set_up()
        self.key = self.shell(
            "from staging.keys import upload_key; from staging.models import Dataset\n"
            "print(upload_key(Dataset.objects.get(), 'owner@climate.example'))"
        ).splitlines()[-1]
        self.count = 0

    def create(self, *, body: bytes = b"", **headers: str) -> Answer:
        """POST with the key; `Upload_Metadata` names a new file unless it is given."""
        self.count += 1
        found = {
            "Authorization": f"Bearer {self.key}",
            "Upload_Metadata": meta(filename=f"owed{self.count}"),
            **headers,
        }
        return self.tus("POST", ROOT, body, **{k: v for k, v in found.items() if v is not None})

    def new(self, size: int = 10, **headers: str) -> str:
        answer = self.create(**{"Upload_Length": str(size), **headers})
        assert answer.status == 201, answer.body
        return answer.headers["location"]

    def complete(self, address: str) -> bool:
        answer = self.tus("HEAD", address)
        return answer.headers.get("upload-offset") == answer.headers["upload-length"]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Tus]:
    server = Tus(tmp_path_factory.mktemp("owes"))
    server.env["LARGEST_UPLOAD_BYTES"] = str(MOST)
    with serving(server):
        server.set_up()
        yield server


class TestEveryAnswer:
    @pytest.mark.parametrize("version", [None, "0.2.2", "2.0.0", "1.0.0, 1.0.0"])
    @pytest.mark.parametrize("method", ["POST", "HEAD", "PATCH", "DELETE", "GET"])
    def test_another_version_is_412_and_names_ours(self, server, method, version):
        path = ROOT if method == "POST" else server.new()
        headers = {} if version is None else {"Tus_Resumable": version}
        answer = server.request(method, path, **headers)
        assert answer.status == 412
        assert answer.headers["tus-version"] == answer.headers["tus-resumable"] == "1.0.0"

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", ROOT),
            ("PUT", "/tus/a/b"),
            ("HEAD", "/tus/a/b"),
            ("GET", "/tus/a/b/c"),
            ("GET", "/tus/a"),
        ],
    )
    def test_errors_too_carry_the_version(self, server, method, path):
        answer = server.tus(method, path)
        assert 400 <= answer.status < 500
        assert answer.headers["tus-resumable"] == "1.0.0"

    @pytest.mark.parametrize("version", [None, "1.0.0", "0.1"])
    @pytest.mark.parametrize("path", [ROOT, "/tus/a/b"])
    def test_options_says_what_is_spoken(self, server, path, version):
        headers = {} if version is None else {"Tus_Resumable": version}
        answer = server.request("OPTIONS", path, **headers)
        assert answer.status == 204
        assert answer.headers["tus-version"] == "1.0.0"
        assert answer.headers["tus-max-size"] == str(MOST)
        assert set(answer.headers["tus-checksum-algorithm"].split(",")) == {"sha1", "sha256"}
        assert set(answer.headers["tus-extension"].split(",")) == {
            "creation",
            "creation-with-upload",
            "creation-defer-length",
            "expiration",
            "checksum",
            "termination",
            "concatenation",
        }


class TestMethodOverride:
    def test_it_applies_before_routing(self, server):
        address = server.new()
        answer = server.tus(
            "POST",
            address,
            b"01234",
            X_HTTP_Method_Override="PATCH",
            Upload_Offset="0",
            Content_Type=PATCH_TYPE,
        )
        assert (answer.status, answer.headers["upload-offset"]) == (204, "5")
        assert server.tus("POST", address, X_HTTP_Method_Override="DELETE").status == 204
        assert server.tus("POST", address, X_HTTP_Method_Override="HEAD").status == 410
        assert server.request("POST", ROOT, X_HTTP_Method_Override="OPTIONS").status == 204

    def test_it_applies_before_permissions(self, server):
        """A creation in the clothes of a GET needs the CSRF token of a POST."""
        cookie = {"Cookie": server.signed_in["Cookie"], "X_HTTP_Method_Override": "POST"}
        values = {
            "Upload_Length": "1",
            "Upload_Metadata": meta(dataset=server.dataset, filename="o"),
        }
        assert server.tus("GET", ROOT, **cookie, **values).status == 403
        assert server.tus("GET", ROOT, X_CSRFToken=CSRF, **cookie, **values).status == 201


class TestCreation:
    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({}, 400),
            ({"Upload_Length": ""}, 400),
            ({"Upload_Length": "-1"}, 400),
            ({"Upload_Length": "+1"}, 400),
            ({"Upload_Length": "1.5"}, 400),
            ({"Upload_Length": "0x1"}, 400),
            ({"Upload_Length": "1_0"}, 400),
            ({"Upload_Length": "1", "Upload_Defer_Length": "1"}, 400),
            ({"Upload_Defer_Length": "0"}, 400),
            ({"Upload_Defer_Length": "2"}, 400),
            ({"Upload_Length": str(MOST)}, 201),
            ({"Upload_Length": str(MOST + 1)}, 413),
            ({"Upload_Length": "9" * 50}, 413),
            ({"Upload_Defer_Length": "1"}, 201),
            ({"Upload_Length": "1", "Upload_Concat": "whole"}, 400),
            ({"Upload_Length": "1", "Authorization": "Bearer nonsense"}, 401),
            ({"Upload_Length": "1", "Authorization": ""}, 401),
            ({"Upload_Length": "1", "Upload_Metadata": "a YQ==,a YQ=="}, 400),
            ({"Upload_Length": "1", "Upload_Metadata": "filename %%%"}, 400),
            ({"Upload_Length": "1", "Upload_Metadata": "filename /w=="}, 400),
            ({"Upload_Length": "1", "Upload_Metadata": "empty,filename " + b64("with empty")}, 201),
            ({"Upload_Length": "1", "Upload_Metadata": "filename " + b64("../up")}, 400),
            ({"Upload_Length": "1", "Upload_Metadata": "x " + b64("x" * 6500)}, 400),
        ],
    )
    def test_lengths_and_metadata(self, server, headers, status):
        answer = server.create(**headers)
        assert answer.status == status
        if status == 201:
            assert answer.headers["location"].startswith("/tus/")  # relative, whatever the proxy
            assert server.tus("DELETE", answer.headers["location"]).status == 204
        else:
            assert answer.json()["message"]

    def test_too_large_says_numbers(self, server):
        message = server.create(Upload_Length=str(MOST + 5_000_000)).json()["message"]
        assert "15 MB" in message and "10 MB" in message  # noqa: PT018

    def test_length_0_is_complete_at_once(self, server):
        answer = server.create(Upload_Length="0")
        assert (answer.status, answer.headers["upload-offset"]) == (201, "0")
        assert server.complete(answer.headers["location"])

    def test_the_session_of_a_browser_creates_too(self, server):
        session = {key: server.signed_in[key] for key in ("Cookie", "X_CSRFToken")}
        values = {
            "Upload_Length": "3",
            "Upload_Metadata": meta(dataset=server.dataset, filename="s"),
        }
        assert server.tus("POST", ROOT, **session, **values).status == 201
        without = {"Cookie": server.signed_in["Cookie"]}
        assert server.tus("POST", ROOT, **without, **values).status == 403

    def test_a_key_opens_no_other_dataset(self, server):
        values = {"Upload_Length": "3", "Upload_Metadata": meta(dataset="other", filename="s")}
        assert server.create(**values).status == 404

    def test_with_the_first_bytes(self, server):
        answer = server.create(body=b"01234", Upload_Length="10", Content_Type=PATCH_TYPE)
        assert (answer.status, answer.headers["upload-offset"]) == (201, "5")
        answer = server.patch(answer.headers["location"], 5, b"56789")
        assert (answer.status, answer.headers["upload-offset"]) == (204, "10")

    def test_with_all_bytes_and_a_checksum(self, server):
        data = content(50_000)
        answer = server.create(
            body=data,
            Upload_Length=str(len(data)),
            Content_Type=PATCH_TYPE,
            Upload_Checksum=checksum("sha256", data),
        )
        assert (answer.status, answer.headers["upload-offset"]) == (201, str(len(data)))
        assert server.complete(answer.headers["location"])

    def test_with_a_wrong_checksum_the_upload_is_there_and_empty(self, server):
        answer = server.create(
            body=b"01234",
            Upload_Length="10",
            Content_Type=PATCH_TYPE,
            Upload_Checksum=checksum("sha1", b"other"),
        )
        assert (answer.status, answer.headers["upload-offset"]) == (460, "0")
        assert server.offset(answer.headers["location"]) == 0


class TestDeferredLength:
    def test_the_length_may_come_with_any_patch(self, server):
        data = content(100_000)
        address = server.create(Upload_Defer_Length="1").headers["location"]
        known = server.tus("HEAD", address).headers
        assert known["upload-defer-length"] == "1"
        assert "upload-length" not in known
        assert server.patch(address, 0, data[:60_000]).status == 204
        answer = server.patch(address, 60_000, data[60_000:90_000], Upload_Length="100000")
        assert answer.status == 204
        known = server.tus("HEAD", address).headers
        assert known["upload-length"] == "100000"
        assert "upload-defer-length" not in known
        assert server.patch(address, 90_000, data[90_000:]).status == 204
        assert server.complete(address)

    def test_an_empty_patch_may_end_it(self, server):
        address = server.create(Upload_Defer_Length="1").headers["location"]
        assert server.patch(address, 0, b"abc").status == 204
        assert server.patch(address, 3, b"", Upload_Length="3").status == 204
        assert server.complete(address)

    @pytest.mark.parametrize(
        ("length", "status"), [("2", 400), ("x", 400), ("-1", 400), (str(MOST + 1), 413)]
    )
    def test_a_length_that_cannot_be(self, server, length, status):
        address = server.create(Upload_Defer_Length="1").headers["location"]
        assert server.patch(address, 0, b"abc").status == 204
        assert server.patch(address, 3, b"", Upload_Length=length).status == status
        assert server.offset(address) == 3

    def test_a_length_is_settled_once(self, server):
        address = server.new(10)
        assert server.patch(address, 0, b"", Upload_Length="10").status == 204
        assert server.patch(address, 0, b"", Upload_Length="11").status == 400

    def test_it_may_not_outgrow_the_largest(self, server):
        address = server.create(Upload_Defer_Length="1").headers["location"]
        answer = server.patch(address, 0, b"x" * (MOST + 1))
        assert answer.status == 413
        assert "10 MB" in answer.json()["message"]


class TestHead:
    def test_offset_length_metadata_expiry_and_no_store(self, server):
        values = meta(note="", filename="é 🌡.txt")
        address = server.new(10, Upload_Metadata=values)
        server.patch(address, 0, b"123")
        answer = server.tus("HEAD", address)
        assert answer.status == 200
        assert answer.headers["upload-offset"] == "3"
        assert answer.headers["upload-length"] == "10"
        assert answer.headers["upload-metadata"] == values
        assert answer.headers["upload-expires"].endswith("GMT")
        assert answer.headers["cache-control"] == "no-store"

    def test_gone_is_404_and_ended_is_410(self, server):
        address = server.new()
        assert server.tus("HEAD", address[:-4] + "0000").status == 404
        assert server.tus("DELETE", address).status == 204
        assert server.tus("HEAD", address).status == 410
        assert server.tus("DELETE", address).status == 410
        assert server.patch(address, 0, b"x").status == 410

    def test_expired_is_410_with_a_reason(self, server):
        address = server.new()
        code = address.split("/")[2]
        server.shell(
            "from staging.models import Upload; from staging import services\n"
            "from portal.base.clock import db_now; now = db_now()\n"
            f"Upload.objects.filter(code={code!r}).update(expires_at=now)\n"
            "services.expire_uploads(at=now)"
        )
        assert server.tus("HEAD", address).status == 410
        answer = server.patch(address, 0, b"x")
        assert answer.status == 410
        assert "7 days" in answer.json()["message"]

    def test_expiry_slides(self, server):
        address = server.new()
        code = address.split("/")[2]
        server.shell(
            "from staging.models import Upload; from portal.base.clock import db_now\n"
            "from datetime import timedelta\n"
            f"Upload.objects.filter(code={code!r}).update(expires_at=db_now() + timedelta(hours=1))"
        )
        before = server.tus("HEAD", address).headers["upload-expires"]
        assert server.patch(address, 0, b"x").headers["upload-expires"] != before


def wrong(**headers: str | None) -> dict[str, str | None]:
    return headers


# Each row breaks one rule and every rule after it; the first one decides.
ORDER = [
    (412, wrong(Tus_Resumable="9", Content_Type="a/b", Upload_Offset="x", Upload_Checksum="x")),
    (415, wrong(Content_Type="text/plain", Upload_Offset="x", Upload_Checksum="x")),
    (415, wrong(Content_Type=None, Upload_Offset="x")),
    (400, wrong(Upload_Offset=None, Upload_Checksum="md5 x")),
    (400, wrong(Upload_Offset="-1")),
    (400, wrong(Upload_Offset="1e1")),
    (400, wrong(Upload_Offset="9", Upload_Checksum="md5 1B2M2Y8AsgTpgAmY7PhCfg==")),
    (400, wrong(Upload_Offset="9", Upload_Checksum="sha1")),
    (400, wrong(Upload_Offset="9", Upload_Checksum="sha1 !!")),
    (400, wrong(Upload_Offset="9", Upload_Checksum="sha256 YQ==")),
    (409, wrong(Upload_Offset="9", Upload_Length="99")),
    (400, wrong(Upload_Length="99")),
]


class TestPatch:
    @pytest.mark.parametrize(("status", "headers"), ORDER)
    def test_the_order_of_refusals(self, server, status, headers):
        address = server.new(10)
        sent = {"Content_Type": PATCH_TYPE, "Upload_Offset": "0"} | headers
        answer = server.tus(
            "PATCH", address, b"x" * 20, **{k: v for k, v in sent.items() if v is not None}
        )
        assert answer.status == status
        if status == 409:
            assert answer.headers["upload-offset"] == "0"
        assert server.offset(address) == 0

    def test_more_than_fits_is_413_before_a_byte_is_read(self, server):
        address = server.new(10)
        answer = server.patch(address, 0, b"x" * 11)
        assert (answer.status, answer.headers["upload-offset"]) == (413, "0")

    def test_a_chunked_body_that_is_too_long_keeps_what_fits(self, server):
        address = server.new(10)
        frame = {"Transfer-Encoding": "chunked", "Content-Type": PATCH_TYPE, "Upload-Offset": "0"}
        with server.connect() as sock:
            sock.sendall(head("PATCH", address, frame | {"Tus-Resumable": "1.0.0"}))
            sock.sendall(b"14\r\n" + b"x" * 20 + b"\r\n0\r\n\r\n")
            answer = Answer.read(sock)
        assert (answer.status, answer.headers["upload-offset"]) == (413, "10")
        assert server.complete(address)

    def test_success_is_204_with_offset_and_expiry(self, server):
        answer = server.patch(server.new(10), 0, b"123")
        assert (answer.status, answer.headers["upload-offset"]) == (204, "3")
        assert answer.headers["upload-expires"]

    def test_no_body_changes_nothing(self, server):
        address = server.new(10)
        answer = server.patch(address, 0, b"")
        assert (answer.status, answer.headers["upload-offset"]) == (204, "0")


class TestChecksum:
    @pytest.mark.parametrize("name", ["sha1", "sha256"])
    @pytest.mark.parametrize("chunked", [False, True])
    def test_right_and_wrong(self, server, name, chunked):
        data = content(3_000_000)
        address = server.new(len(data))
        send = send_chunked if chunked else send_plain
        answer = send(server, address, 0, data[:1_000_000], checksum(name, data[:999_999]))
        assert (answer.status, answer.headers["upload-offset"]) == (460, "0")
        assert "owed" in answer.json()["message"]  # the file's name
        answer = send(server, address, 0, data[:1_000_000], checksum(name, data[:1_000_000]))
        assert (answer.status, answer.headers["upload-offset"]) == (204, "1000000")
        answer = send(server, address, 1_000_000, data[1_000_000:], checksum(name, b""))
        assert (answer.status, answer.headers["upload-offset"]) == (460, "1000000")
        answer = send(
            server, address, 1_000_000, data[1_000_000:], checksum(name, data[1_000_000:])
        )
        assert answer.status == 204
        assert server.complete(address)

    def test_a_cut_keeps_nothing_that_was_not_checked(self, server):
        data = content(500_000)
        address = server.new(len(data))
        headers = {
            "Tus-Resumable": "1.0.0",
            "Content-Type": PATCH_TYPE,
            "Upload-Offset": "0",
            "Content-Length": str(len(data)),
            "Upload-Checksum": checksum("sha256", data),
        }
        with server.connect() as sock:
            sock.sendall(head("PATCH", address, headers) + data[:300_000])
        assert server.offset(address) == 0
        assert (
            server.patch(address, 0, data, Upload_Checksum=checksum("sha256", data)).status == 204
        )

    def test_a_declared_chunk_that_is_wrong_is_named_and_sent_again_alone(self, server):
        size, chunk = 9_000_000, 8 * 2**20
        data = content(size)
        digests = [hashlib.sha256(data[n : n + chunk]).hexdigest() for n in (0, chunk)]
        body = json.dumps({"files": [{"path": "chunks", "size": size, "chunks": digests}]}).encode()
        path = f"/staging/{server.dataset}/manifest"
        address = server.request("POST", path, body, **server.signed_in).json()["files"][0][
            "upload"
        ]
        spoilt = data[:-1] + bytes([data[-1] ^ 1])
        answer = server.patch(address, 0, spoilt)
        assert (answer.status, answer.headers["upload-offset"]) == (460, str(chunk))
        assert "chunks: the bytes of chunk 2 of 2" in answer.json()["message"]
        assert server.patch(address, chunk, data[chunk:]).status == 204
        assert server.complete(address)


def send_plain(server: Tus, address: str, offset: int, data: bytes, value: str) -> Answer:
    return server.patch(address, offset, data, Upload_Checksum=value)


def send_chunked(server: Tus, address: str, offset: int, data: bytes, value: str) -> Answer:
    headers = {
        "Tus-Resumable": "1.0.0",
        "Content-Type": PATCH_TYPE,
        "Upload-Offset": str(offset),
        "Transfer-Encoding": "chunked",
        "Upload-Checksum": value,
    }
    with server.connect() as sock:
        sock.sendall(head("PATCH", address, headers))
        for start in range(0, len(data), 70_001):
            part = data[start : start + 70_001]
            sock.sendall(b"%x\r\n" % len(part) + part + b"\r\n")
        sock.sendall(b"0\r\n\r\n")
        return Answer.read(sock)


class TestConcatenation:
    def parts(self, server: Tus, *contents: bytes) -> list[str]:
        made = []
        for data in contents:
            answer = server.create(
                Upload_Concat="partial", Upload_Length=str(len(data)), Upload_Metadata=None
            )
            assert answer.status == 201, answer.body
            made.append(answer.headers["location"])
            if data:
                assert server.patch(made[-1], 0, data).status == 204
        return made

    @pytest.mark.parametrize("prefix", ["", "http://portal.example:8000", "https://p"])
    def test_parts_become_a_file(self, server, prefix):
        parts = self.parts(server, b"abc" * 1000, b"", b"de" * 5000)
        assert server.tus("HEAD", parts[0]).headers["upload-concat"] == "partial"
        name = f"joined{len(prefix)}"
        asked = {
            "Upload_Concat": "final;" + " ".join(prefix + part for part in parts),
            "Upload_Metadata": meta(filename=name),
        }
        answer = server.create(**asked)
        assert (answer.status, answer.headers["upload-offset"]) == (201, "13000")
        final = answer.headers["location"]
        known = server.tus("HEAD", final)
        assert known.headers["upload-length"] == "13000"
        assert known.headers["upload-concat"] == "final;" + " ".join(parts)
        assert server.create(**asked).headers["location"] == final
        server.paths[final] = name
        wanted = hashlib.sha256(b"abc" * 1000 + b"de" * 5000).hexdigest()
        assert server.stored(final) == (wanted, wanted)
        assert server.patch(final, 13000, b"x").status == 403
        assert server.tus("HEAD", parts[0]).status == 410

    def test_an_unfinished_part_is_400(self, server):
        (done,) = self.parts(server, b"x")
        answer = server.create(Upload_Concat="partial", Upload_Length="5", Upload_Metadata=None)
        parts = f"final;{done} {answer.headers['location']}"
        assert server.create(Upload_Concat=parts).status == 400

    @pytest.mark.parametrize(
        "value",
        [
            "final;",
            "final",
            "final;/etc/passwd",
            "final;../../tus/a/b",
            "final;/tus/a/b",
            "final;file:///tus/a/b",
        ],
    )
    def test_what_is_no_part(self, server, value):
        assert server.create(Upload_Concat=value).status in (400, 404)

    def test_a_file_is_no_part_and_a_part_is_used_once(self, server):
        file = server.new(3)
        server.patch(file, 0, b"abc")
        assert server.create(Upload_Concat=f"final;{file}").status == 400
        (part,) = self.parts(server, b"abc")
        assert server.create(Upload_Concat=f"final;{part} {part}").status == 400

    def test_a_final_upload_has_no_length_of_its_own(self, server):
        (part,) = self.parts(server, b"abc")
        answer = server.create(Upload_Concat=f"final;{part}", Upload_Length="3")
        assert answer.status == 400

    def test_a_part_can_be_given_up(self, server):
        (part,) = self.parts(server, b"abc")
        assert server.tus("DELETE", part).status == 204
        assert server.tus("HEAD", part).status == 410


class TestTermination:
    @pytest.mark.parametrize("sent", [b"", b"1234"])
    def test_room_is_given_back(self, server, sent):
        used: Callable[[], str] = lambda: server.shell(  # noqa: E731
            "from staging.models import TeamUsage; print(TeamUsage.objects.get().promised_bytes)"
        )
        before = used()
        address = server.new(1000)
        server.patch(address, 0, sent)
        assert server.tus("DELETE", address).status == 204
        assert used() == before

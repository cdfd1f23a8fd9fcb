"""tus against a real gunicorn: bytes that arrived are kept, whatever happens to the connection."""

import base64
import fcntl
import hashlib
import json
import os
import random
import threading
from collections.abc import Iterator

import pytest

from tests.staging.live import Answer, Server, head, named, patch_head, serving, until

MAKE = """
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from portal.teams.models import Membership, Team, User
from staging import services
team = Team.objects.create(name="Climate")
user = User.objects.create_user("owner@climate.example", "correct horse battery")
Membership.objects.create(team=team, user=user, role="admin")
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.save()
dataset = services.create_dataset(team=team, name="Live", actor=user.email)
print(session.session_key, dataset.code)
"""
CSRF = "c" * 32
pytestmark = pytest.mark.xdist_group("tus_live")


class Portal(Server):
    """A server with one person signed in and one dataset."""

    def set_up(self) -> None:
        session, self.dataset = self.shell(MAKE).splitlines()[-1].split()
        self.signed_in = {
            "Cookie": f"sessionid={session}; csrftoken={CSRF}",
            "X_CSRFToken": CSRF,
            "Accept": "application/json",
            "Content_Type": "application/json",
        }
        self.paths: dict[str, str] = {}

    def new_upload(self, size: int, digest: str = "") -> str:
        path = f"file{len(self.paths)}.bin"
        body = json.dumps({"files": [{"path": path, "size": size, "digest": digest}]}).encode()
        answer = self.request("POST", f"/staging/{self.dataset}/manifest", body, **self.signed_in)
        assert answer.status == 200, answer.body
        address = answer.json()["files"][0]["upload"]
        self.paths[address] = path
        return address

    def sizes_in_store(self) -> list[int]:
        files = (self.folder / "store").rglob("*")
        return [file.stat().st_size for file in files if file.is_file()]

    def stored(self, address: str) -> tuple[str, str]:
        """(digest of the row, plain SHA-256 of what the store holds)"""
        path = f"/staging/{self.dataset}/files/{self.paths[address]}"
        answer = self.request("GET", path, **self.signed_in)
        assert answer.status == 200, answer.body
        return answer.headers["etag"].strip('"'), hashlib.sha256(answer.body).hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Portal]:
    server = Portal(tmp_path_factory.mktemp("live"))
    with serving(server):
        server.set_up()
        yield server


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)  # noqa: S311  data, not a secret


class TestCuts:
    def test_every_cut_keeps_what_arrived(self, server):
        """Cut at odd bytes, resume each time, at the end the file is whole."""
        data = content(3_000_017)
        address = server.new_upload(len(data))
        at = 0
        for sent in (1, 7, 4095, 65537, 1_048_577, 700_001):
            with server.connect() as sock:
                sock.sendall(patch_head(address, at, len(data) - at))
                sock.sendall(data[at : at + sent])
            until(lambda want=at + sent: server.offset(address) == want, f"{at + sent} bytes kept")
            at += sent
        answer = server.patch(address, at, data[at:])
        assert (answer.status, answer.headers["upload-offset"]) == (204, str(len(data)))
        digest = hashlib.sha256(data).hexdigest()
        assert server.stored(address) == (digest, digest)

    def test_a_reset_keeps_what_was_read(self, server):
        data = content(200_000)
        address = server.new_upload(len(data))
        with server.connect() as sock:
            sock.sendall(patch_head(address, 0, len(data)) + data[:150_000])
            until(lambda: server.offset(address) == 150_000, "the bytes before the reset")
            sock.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER 0: close sends a reset
        assert server.patch(address, 150_000, data[150_000:]).status == 204

    def test_chunked_bodies(self, server):
        data = content(300_000)
        address = server.new_upload(len(data))
        with server.connect() as sock:
            sock.sendall(patch_head(address, 0, None))
            for start in range(0, 200_000, 33_333):
                part = data[start : min(200_000, start + 33_333)]
                sock.sendall(f"{len(part):x};x=y\r\n".encode() + part + b"\r\n")
            sock.sendall(b"0\r\nX-Trailer: 1\r\n\r\n")
            assert Answer.read(sock).headers["upload-offset"] == "200000"
            sock.sendall(patch_head(address, 200_000, 100_000) + data[200_000:])
            assert Answer.read(sock).status == 204
        assert server.stored(address)[1] == hashlib.sha256(data).hexdigest()

    def test_a_chunked_body_that_is_cut_keeps_what_arrived(self, server):
        data = content(100_000)
        address = server.new_upload(len(data))
        with server.connect() as sock:
            sock.sendall(patch_head(address, 0, None) + b"186a0\r\n" + data[:54_321])
        until(lambda: server.offset(address) == 54_321, "what arrived")

    def test_an_overlong_chunked_body_keeps_what_fits(self, server):
        address = server.new_upload(10)
        with server.connect() as sock:
            sock.sendall(patch_head(address, 0, None) + b"14\r\n" + b"x" * 20 + b"\r\n0\r\n\r\n")
            assert Answer.read(sock).status == 413
        until(lambda: server.offset(address) == 10, "what fits")

    @pytest.mark.parametrize(
        "frames", [b"zz\r\n", b"-5\r\nabc", b"\r\n", b"5\r\nabcdeXX", b"f" * 5000]
    )
    def test_broken_framing_is_refused(self, server, frames):
        address = server.new_upload(10)
        with server.connect() as sock:
            sock.sendall(patch_head(address, 0, None) + frames)
            assert Answer.read(sock).status == 400
        assert server.offset(address) <= 5

    @pytest.mark.parametrize("size", [5, 10])
    def test_what_came_before_broken_framing_is_kept(self, server, size):
        """In one packet with the fault; the last byte of the file makes it complete."""
        address = server.new_upload(size)
        with server.connect() as sock:
            sock.sendall(patch_head(address, 0, None) + b"3\r\nabc\r\n2\r\ndeXX")
            answer = Answer.read(sock)
        assert (answer.status, answer.headers["upload-offset"]) == (400, "5")
        assert server.offset(address) == 5

    def test_a_checksum_keeps_nothing_of_broken_framing(self, server):
        address = server.new_upload(10)
        more = b"Upload-Checksum: sha1 " + b"A" * 27 + b"=\r\n"
        top = patch_head(address, 0, None).replace(b"\r\n", b"\r\n" + more, 1)
        with server.connect() as sock:
            sock.sendall(top + b"5\r\nabcdeXX")
            answer = Answer.read(sock)
        assert (answer.status, answer.headers["upload-offset"]) == (400, "0")
        assert server.offset(address) == 0

    @pytest.mark.parametrize("coding", ["gzip, chunked", "identity, chunked", "GZIP,chunked"])
    def test_another_coding_is_refused(self, server, coding):
        address = server.new_upload(5)
        top = patch_head(address, 0, None).replace(b"chunked", coding.encode())
        pack = f"/staging/{server.dataset}/pack"
        headers = server.signed_in | {"Content_Type": "application/x-e31-pack"}
        for first in (top, head("POST", pack, named(headers | {"Transfer_Encoding": coding}))):
            with server.connect() as sock:
                sock.sendall(first + b"5\r\nabcde\r\n0\r\n\r\n")
                answer = Answer.read(sock)
            assert answer.status == 400
            assert "Transfer-Encoding" in answer.json()["message"]
        assert server.offset(address) == 0

    def test_two_requests_on_one_connection(self, server):
        """The server's count of the body stays right, so the connection can be used again."""
        data = content(50_000)
        address = server.new_upload(len(data))
        with server.connect() as sock:
            first = patch_head(address, 0, 20_000) + data[:20_000]
            sock.sendall(first + patch_head(address, 20_000, 30_000) + data[20_000:])
            assert Answer.read(sock).headers["upload-offset"] == "20000"
            assert Answer.read(sock).headers["upload-offset"] == "50000"


class TestKill:
    def test_no_acknowledged_byte_is_lost(self, tmp_path):
        server = Portal(tmp_path)
        with serving(server):
            server.set_up()
            data = content(20_000_003)
            address = server.new_upload(len(data))
            assert server.patch(address, 0, data[:9_000_001]).status == 204
            with server.connect() as sock:
                sock.sendall(patch_head(address, 9_000_001, len(data) - 9_000_001))
                sock.sendall(data[9_000_001:15_000_000])
                server.kill()
            server.start()
            at = server.offset(address)
            assert 9_000_001 <= at <= 15_000_000
            assert server.patch(address, at, data[at:]).status == 204
            digest, plain = server.stored(address)
            assert plain == hashlib.sha256(data).hexdigest()
            assert digest.endswith("-3")
            assert server.sizes_in_store() == [len(data)]

    def test_what_no_row_counts_leaves_the_disk(self, tmp_path):
        """A checksum is open until its request ends, so the killed one counted nothing."""
        server = Portal(tmp_path)
        with serving(server):
            server.set_up()
            name = base64.b64encode(b"later.bin").decode()
            metadata = (
                f"dataset {base64.b64encode(server.dataset.encode()).decode()},filename {name}"
            )
            made = server.tus(
                *("POST", "/tus/"),
                Upload_Defer_Length="1",
                Upload_Metadata=metadata,
                **{k: v for k, v in server.signed_in.items() if k != "Content_Type"},
            )
            address = made.headers["location"]
            assert server.patch(address, 0, b"0123456789").status == 204
            with server.connect() as sock:
                sock.sendall(
                    patch_head(address, 10, 9_000_000).replace(
                        b"\r\n\r\n", b"\r\nUpload-Checksum: sha1 " + b"A" * 27 + b"=\r\n\r\n"
                    )
                    + bytes(5_000_000)
                )
                until(lambda: server.sizes_in_store() > [1_000_000], "bytes on the disk")
                server.kill()
            server.start()
            assert server.sizes_in_store() > [1_000_000]
            assert server.patch(address, 10, b"", Upload_Length="10").status == 204
            assert server.sizes_in_store() == [10]


class TestTakeover:
    def test_a_hanging_request_is_taken_over(self, server):
        data = content(90_000)
        address = server.new_upload(len(data))
        with server.connect() as hanging:
            hanging.sendall(patch_head(address, 0, len(data)) + data[:40_000])
            until(lambda: server.offset(address) == 40_000, "HEAD shows what arrived")
            assert Answer.read(hanging).status == 409
        with server.connect() as hanging:
            hanging.sendall(patch_head(address, 40_000, 50_000) + data[40_000:60_000])
            at = until(lambda: server.offset(address) == 60_000 and 60_000, "the second part")
            answer = server.patch(address, at, data[at:])
            assert (answer.status, answer.headers["upload-offset"]) == (204, "90000")
        assert server.stored(address)[1] == hashlib.sha256(data).hexdigest()

    def test_two_writers_converge_on_one_file(self, server):
        data = content(4_000_000)
        address = server.new_upload(len(data))
        statuses: list[int] = []

        def tab() -> None:
            while (at := server.offset(address)) < len(data):
                try:
                    answer = server.patch(address, at, data[at : at + 500_000])
                except (AssertionError, OSError):
                    continue
                statuses.append(answer.status)

        tabs = [threading.Thread(target=tab) for _ in range(3)]
        for one in tabs:
            one.start()
        for one in tabs:
            one.join(60)
        assert set(statuses) <= {204, 409}
        assert server.stored(address)[1] == hashlib.sha256(data).hexdigest()

    def test_termination_stops_a_hanging_request(self, server):
        address = server.new_upload(1000)
        with server.connect() as hanging:
            hanging.sendall(patch_head(address, 0, 1000) + b"x" * 10)
            until(lambda: server.offset(address) == 10, "it has begun")
        with server.connect() as hanging:
            hanging.sendall(patch_head(address, 10, 990) + b"x" * 10)
            assert server.tus("DELETE", address).status == 204
            assert Answer.read(hanging).status in (409, 410)
        assert server.tus("HEAD", address).status == 410


def test_wrong_bytes_for_a_declared_digest_begin_again(server):
    right, wrong = content(5000), content(5001)[:5000]
    address = server.new_upload(5000, hashlib.sha256(right).hexdigest())
    answer = server.patch(address, 0, wrong)
    assert (answer.status, answer.headers["upload-offset"]) == (460, "0")
    assert server.patch(address, 0, right).status == 204
    assert server.stored(address)[1] == hashlib.sha256(right).hexdigest()


def test_promises_made_at_once_never_exceed_the_quota(server):
    """Two processes with eight threads each, one database file."""
    server.shell("from portal.teams.models import Team; Team.objects.update(quota_bytes=10**9)")
    won: list[str] = []
    refused: list[int] = []

    def promise(number: int) -> None:
        body = json.dumps({"files": [{"path": f"race{number}", "size": 3 * 10**8}]}).encode()
        path = f"/staging/{server.dataset}/manifest"
        answer = server.request("POST", path, body, **server.signed_in)
        if answer.status == 200:
            won.append(answer.json()["files"][0]["upload"])
        else:
            refused.append(answer.status)

    threads = [threading.Thread(target=promise, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(won), refused) == (3, [507] * 5)
    for address in won:
        assert server.tus("DELETE", address).status == 204
    server.shell("from portal.teams.models import Team; Team.objects.update(quota_bytes=None)")


def test_many_bodies_at_once_have_their_own_digests(server):
    """Each is hashed in another thread while the next one is received into the same rooms."""
    found: list[tuple[str, str, str]] = []

    def send(number: int, addresses: list[str]) -> None:
        for turn, address in enumerate(addresses):
            data = random.Random(f"{number}-{turn}").randbytes(6_000_000)  # noqa: S311  data
            assert server.patch(address, 0, data[:3_000_000]).status == 204
            assert server.patch(address, 3_000_000, data[3_000_000:]).status == 204
            found.append((hashlib.sha256(data).hexdigest(), *server.stored(address)))

    addresses = [[server.new_upload(6_000_000) for _ in range(4)] for _ in range(6)]
    threads = [threading.Thread(target=send, args=each) for each in enumerate(addresses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 24
    assert all(sent == row == stored for sent, row, stored in found)


def test_a_file_that_is_too_short_in_the_store_ends_the_connection(server):
    """Nothing follows in its place: not the answer to the next request, and not silence."""
    data = content(300_001)
    address = server.new_upload(len(data))
    assert server.patch(address, 0, data).status == 204
    (blob,) = (
        f for f in (server.folder / "store").rglob("*") if f.is_file() and f.read_bytes() == data
    )
    os.truncate(blob, 100_000)
    get = head(
        "GET", f"/staging/{server.dataset}/files/{server.paths[address]}", named(server.signed_in)
    )
    with server.connect() as sock:
        sock.sendall(get + head("GET", "/healthz", {}))
        came = b"".join(iter(lambda: sock.recv(2**16), b""))
    top, _, body = came.partition(b"\r\n\r\n")
    assert b"Content-Length: 300001" in top
    assert body == data[:100_000]


def test_whoever_has_the_writers_turn_for_long_holds_up_nobody(server):
    """A process that stands still with it; the turn is a politeness, and not a right."""
    address = server.new_upload(10)
    with open(server.folder / "portal.sqlite3-turn", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert server.patch(address, 0, b"0123456789").status == 204

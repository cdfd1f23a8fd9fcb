"""Clients that stay connected, send too much or not enough: they hold up nobody but themselves."""

import contextlib
import itertools
import select
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.launch import slow_server
from tests.staging.live import Answer, Server, head, named, patch_head, serving, until
from tests.staging.test_tus_live import CSRF, Portal

pytestmark = [pytest.mark.stalls, pytest.mark.xdist_group("server_live")]
MANY = 24  # more than there are threads


class Slow(Portal):
    config = "tests.launch.slow_server"


@pytest.fixture(scope="module")
def portal(tmp_path_factory) -> Iterator[Slow]:
    portal = Slow(tmp_path_factory.mktemp("slow"))
    portal.log = portal.folder / "said.log"
    with serving(portal):
        portal.set_up()
        yield portal


@pytest.fixture
def connect(portal):
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(portal.connect())


def refused(portal: Server, sock: socket.socket) -> Answer:
    """An answer that was given before the body was here; the rest of the body never comes."""
    sock.sendall(head("POST", "/agent/v1/poll", {"Content-Length": "50000000"}) + b"x" * 1000)
    return Answer.read(sock)


def is_open(sock: socket.socket) -> bool:
    """Whether the server still takes bytes: what reaches a closed end is answered with a reset."""
    try:
        for _ in range(2):
            sock.sendall(b"x")
            sock.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                while sock.recv(4096):
                    pass
    except ConnectionError:
        return False
    return True


def test_clients_that_do_not_hang_up_hold_up_nobody(portal, connect):
    rude = [connect() for _ in range(MANY)]
    assert {refused(portal, sock).status for sock in rude} == {401}
    assert portal.request("GET", "/healthz").status == 200
    assert all(is_open(sock) for sock in rude)  # nobody waited for their end


def test_a_hung_request_that_was_overtaken_holds_up_nobody(portal, connect):
    address = portal.new_upload(1000)
    hung = connect()
    hung.sendall(patch_head(address, 0, 1000) + b"x" * 10)
    while portal.offset(address) < 10:
        pass
    assert Answer.read(hung).status == 409
    assert portal.patch(address, 10, b"x" * 990).status == 204
    assert is_open(hung)


PATHS = ("/accounts/login/", "/staging/nosuchcode/manifest")


@pytest.mark.parametrize("signed_in", [False, True])
def test_a_body_that_does_not_come_ends_its_request(portal, connect, signed_in):
    """A small one without a thread, a large one with it."""
    length, who = (100_000, {"Cookie": portal.signed_in["Cookie"]}) if signed_in else (500, {})
    silent = [connect() for _ in range(MANY)]
    bodies = itertools.cycle(itertools.product(PATHS, (b"", b"csrfmiddlewaretoken=x", b"{")))
    for sock, (path, body) in zip(silent, bodies, strict=False):
        kind = "application/json" if body == b"{" else "application/x-www-form-urlencoded"
        headers = {"Content-Length": str(length), "Content-Type": kind, **who}
        sock.sendall(head("POST", path, headers) + body)
    assert portal.request("GET", "/healthz").status == 200
    assert {Answer.read(sock).status for sock in silent} == {400}


def is_cut(sock: socket.socket) -> bool:
    """Whether the server has ended it already, after an answer or without; waits for nothing."""
    try:
        while select.select([sock], [], [], 0)[0]:
            if not sock.recv(4096):
                return True
    except ConnectionError:
        return True
    return False


def test_a_head_that_does_not_end_takes_no_thread(portal, connect):
    silent = [connect() for _ in range(MANY)]
    for sock in silent:
        sock.sendall(b"G")
    assert portal.request("GET", "/healthz").status == 200
    assert not any(is_cut(sock) for sock in silent)


@pytest.mark.parametrize("before", [b"", head("GET", "/healthz", {})])
def test_a_head_that_came_in_pieces_is_answered(portal, connect, before):
    """Behind another request in the same packet, too."""
    sock = connect()
    whole = before + head("GET", "/healthz", {"X-Long": "x" * 10_000})
    first = len(before) + 5
    sock.sendall(whole[:first])
    if before:
        assert Answer.read(sock).status == 200
    for at in range(first, len(whole), 999):
        sock.sendall(whole[at : at + 999])
    assert Answer.read(sock).status == 200


def test_requests_in_one_packet_are_answered_one_by_one(portal, connect):
    sock = connect()
    body = head("POST", "/agent/v1/poll", {"Content-Length": "5"}) + b"hello"
    sock.sendall((head("GET", "/healthz", {}) + body) * 30)
    assert [Answer.read(sock).status for _ in range(60)] == [200, 401] * 30


def small_form(**more: str) -> bytes:
    """Without a token: who reads it whole answers 403, who finds it cut 400."""
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": "30000"}
    return head("POST", "/accounts/login/", kind | named(more)) + b"login=" + b"a" * 29_994


def has_answer(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "application/json", "x/y"])
@pytest.mark.parametrize("cut", [-1, -30_000])
def test_a_small_form_that_does_not_end_takes_no_thread(portal, connect, kind, cut):
    """Each would take one for as long as nothing comes."""
    silent = [connect() for _ in range(MANY)]
    for sock in silent:
        sock.sendall(small_form(Content_Type=kind)[:cut])
    assert portal.request("GET", "/healthz").status == 200
    assert not any(has_answer(sock) for sock in silent)
    for sock in silent:
        sock.shutdown(socket.SHUT_WR)
    assert {Answer.read(sock).status for sock in silent} == {400}


@pytest.mark.parametrize("before", [b"", head("GET", "/healthz", {}), small_form()])
def test_a_small_form_that_came_in_pieces_is_read(portal, connect, before):
    """Behind another request in the same packet, and with one behind it, too."""
    sock = connect()
    whole = before + small_form() + head("GET", "/healthz", {})
    first = len(before) + 200
    sock.sendall(whole[:first])
    if before:
        assert Answer.read(sock).status in (200, 403)
    for at in range(first, len(whole), 999):
        sock.sendall(whole[at : at + 999])
        portal.request("GET", "/healthz")  # it has been looked at
    assert [Answer.read(sock).status for _ in range(2)] == [403, 200]


def test_small_forms_in_one_packet_are_answered_one_by_one(portal, connect):
    sock = connect()
    form = head("POST", "/accounts/login/", {"Content-Length": "7"}) + b"login=a"
    sock.sendall((form + head("GET", "/healthz", {})) * 30)
    assert [Answer.read(sock).status for _ in range(60)] == [403, 200] * 30


def test_who_asks_before_a_small_form_is_told_once(portal, connect):
    sock, form = connect(), small_form(Expect="100-continue")
    for _ in range(2):
        sock.sendall(form[:-30_000])
        assert Answer.read(sock).status == 100
        sock.sendall(form[-30_000:])
        assert Answer.read(sock).status == 403
    sock.sendall(head("GET", "/healthz", {"Expect": "100-continue"}))
    assert Answer.read(sock).status == 200
    older = small_form(Expect="100-continue").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    sock.sendall(older)
    assert Answer.read(sock).status == 403


def test_an_upload_that_asks_first_is_told_when_it_is_wanted(portal, connect):
    """Its body is read, in either framing, or it is refused at once."""
    asks = b"\r\nExpect: 100-continue\r\n"
    for length, frame in ((10, b"%s"), (None, b"a\r\n%s\r\n0\r\n\r\n")):
        address, sock = portal.new_upload(20), connect()
        sock.sendall(patch_head(address, 0, length).replace(b"\r\n", asks, 1))
        assert Answer.read(sock).status == 100
        sock.sendall(frame % (b"x" * 10))
        assert Answer.read(sock).status == 204
        sock.sendall(patch_head(address, 0, length).replace(b"\r\n", asks, 1))
        refusal = Answer.read(sock)
        assert (refusal.status, refusal.headers["connection"]) == (409, "close")
        assert sock.recv(1) == b""


def test_an_upload_shows_its_bytes_as_they_arrive(portal, connect):
    """Small as it is, in either way of sending it."""
    for sent in ("PATCH", "POST"):
        address, sock = portal.new_upload(100), connect()
        top = patch_head(address, 0, 100).replace(b"PATCH", sent.encode(), 1)
        sock.sendall(top.replace(b"\r\n", b"\r\nX-HTTP-Method-Override: PATCH\r\n", 1) + b"x" * 9)
        until(lambda at=address: portal.offset(at) == 9, "what came is kept")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\nX: y", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 80_000, 431),
        (b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n", 414),
    ],
)
def test_a_head_that_cannot_become_one_is_refused_at_once(portal, connect, sent, status):
    sock = connect()
    sock.sendall(sent)
    assert Answer.read(sock).status == status


def test_a_kept_connection_has_no_longer_for_its_next_head(portal, connect):
    sock = connect()
    sock.sendall(head("GET", "/healthz", {}))
    assert Answer.read(sock).status == 200
    sock.sendall(b"G")
    assert sock.recv(1) == b""


def test_a_new_connection_that_says_nothing_ends_soon(connect):
    assert connect().recv(1) == b""


def test_a_process_that_is_full_ends_who_was_silent_for_longest(portal, connect):
    silent = [connect() for _ in range(slow_server.worker_connections + 20)]
    assert portal.request("GET", "/healthz").status == 200
    assert not is_cut(silent[-1])


def test_a_head_that_does_not_end_ends_its_connection(portal, connect):
    silent = [connect() for _ in range(MANY)]
    for sock in silent:
        sock.sendall(b"GET / HTTP/1.1\r\nHost:")
    assert portal.request("GET", "/healthz").status == 200
    for sock in silent:
        assert sock.recv(100) == b""


def test_connections_that_say_nothing_take_no_thread(portal, connect):
    silent = [connect() for _ in range(MANY)]
    assert portal.request("GET", "/healthz").status == 200
    assert is_open(silent[-1])


@contextlib.contextmanager
def every_moment(act: Callable[[socket.socket], object], socks: list[socket.socket]):
    """Something that is done with each connection, three times a second."""
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(0.3):
            for sock in socks:
                with contextlib.suppress(OSError):
                    act(sock)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


FORM = b"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999\r\n\r\n"


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", FORM, None])
def test_who_sends_a_byte_now_and_then_is_cut_off(portal, connect, start):
    """Each byte comes within the limit for one; the whole does not come."""
    slow = [connect() for _ in range(MANY)]
    for sock in slow:
        sock.sendall(start or patch_head(portal.new_upload(100_000), 0, None))
        sock.setblocking(False)
    with every_moment(lambda sock: sock.send(b"x" if start else b"1\r\nx\r\n"), slow):
        assert portal.request("GET", "/healthz").status == 200
        if start is None:  # each of them, not just one that made room
            until(lambda: all(is_cut(sock) for sock in slow), "all are cut")


@pytest.fixture(scope="module")
def large(portal) -> bytes:
    """The request for a file of 64 MiB."""
    address = portal.new_upload(2**26)
    assert portal.patch(address, 0, bytes(2**26)).status == 204
    path = f"/staging/{portal.dataset}/files/{portal.paths[address]}"
    return head("GET", path, {"Cookie": portal.signed_in["Cookie"]})


def test_who_takes_a_byte_now_and_then_is_cut_off(portal, large):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.socket()) for _ in range(MANY)]
        for sock in slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", portal.port))
            sock.sendall(large)
            sock.setblocking(False)
        with every_moment(lambda sock: sock.recv(100), slow):
            assert portal.request("GET", "/healthz").status == 200


def test_a_download_that_goes_on_is_not_cut(portal, connect, large):
    """Longer than an answer may take, at a rate that is no attack."""
    sock = connect()
    sock.sendall(large)
    taken, pause = 0, threading.Event()
    for _ in range(20):
        pause.wait(0.3)
        taken += len(sock.recv(2**16))
    while taken < 2**26:
        piece = sock.recv(2**20)
        assert piece, taken
        taken += len(piece)


def test_who_does_not_take_the_answer_is_cut_off(portal, connect, large):
    stuck = [connect() for _ in range(MANY)]
    for sock in stuck:
        sock.sendall(large)
    assert portal.request("GET", "/healthz").status == 200


def test_an_upload_of_little_by_little_goes_on(portal, connect):
    """Longer than a whole head or form may take, at a rate that is no attack."""
    address = portal.new_upload(200_000)
    sock = connect()
    sock.sendall(patch_head(address, 0, 200_000))
    for _ in range(19):
        sock.sendall(b"x" * 10_000)
        assert not select.select([sock], [], [], 0.3)[0]  # no answer yet
    sock.sendall(b"x" * 10_000)
    assert Answer.read(sock).status == 204


def test_who_sends_too_much_can_read_why(portal, connect):
    address = portal.new_upload(10)
    sock = connect()
    sock.sendall(patch_head(address, 0, 12 * 2**20))
    sock.sendall(b"x" * 12 * 2**20)
    answer = Answer.read(sock)
    assert (answer.status, answer.json()["error"]) == (413, "too_long")


def test_a_connection_whose_body_was_refused_in_whole_goes_on(portal, connect):
    sock = connect()
    for _ in range(3):
        sock.sendall(head("POST", "/agent/v1/poll", {"Content-Length": "1000"}) + b"x" * 1000)
        assert Answer.read(sock).status == 401


BOUNDARY = "multipart/form-data; boundary=b"


def multipart(**fields: str) -> bytes:
    parts = (
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    return "".join(parts).encode()


class TestBodiesThatAreCut:
    """What came of them would make sense by itself."""

    def send(self, portal: Slow, sock: socket.socket, path: str, kind: str, body: bytes, **more):
        headers = portal.signed_in | {"Content_Type": kind, "Origin": portal.env["PUBLIC_URL"]}
        headers |= more or {"Content_Length": str(len(body) + 100)}
        where = f"127.0.0.1:{portal.port}"
        top = head("POST", path, named(headers)).replace(
            b"Host: 127.0.0.1", f"Host: {where}".encode()
        )
        sock.sendall(top + body)
        sock.shutdown(socket.SHUT_WR)
        return Answer.read(sock)

    def rows(self, portal: Slow) -> list[tuple]:
        with contextlib.closing(sqlite3.connect(portal.folder / "portal.sqlite3")) as database:
            return database.execute(
                "SELECT name, state, (SELECT COUNT(*) FROM jobs_job), "
                "(SELECT COUNT(*) FROM staging_file) FROM staging_dataset ORDER BY id"
            ).fetchall()

    @pytest.mark.parametrize(
        ("path", "kind", "body"),
        [
            ("/staging/new", "application/x-www-form-urlencoded", b"name=cut"),
            ("/staging/new", BOUNDARY, multipart(name="cut")),
            ("/staging/{}/delete", "application/x-www-form-urlencoded", b""),
            ("/staging/{}/delete", "text/plain", b"x"),
            (
                "/staging/{}/manifest",
                "application/json",
                b'{"files": [{"path": "cut", "size": 1}]}',
            ),
            ("/staging/{}/upload", BOUNDARY, multipart(folder="cut")),
            ("/jobs/new", BOUNDARY, multipart(action="save", name="cut")),
            ("/jobs/new", "application/x-www-form-urlencoded", b"action=save&name=cut"),
            ("/accounts/login/", "application/x-www-form-urlencoded", b"login=a@b.example"),
            ("/agent/v1/enrol", "application/json", b'{"token": "x"}'),
        ],
    )
    @pytest.mark.parametrize("token", [True, False])
    def test_they_are_refused(self, portal, connect, path, kind, body, token):
        before, said = self.rows(portal), len(portal.log.read_bytes())
        field = f"csrfmiddlewaretoken={CSRF}&".encode()
        if token and "urlencoded" in kind:
            body = field + body
        answer = self.send(portal, connect(), path.format(portal.dataset), kind, body)
        assert answer.status == 400, answer.body
        assert self.rows(portal) == before
        assert b"Traceback" not in portal.log.read_bytes()[said:]

    @pytest.mark.parametrize(
        ("path", "kind"),
        [
            ("/staging/new", "application/x-www-form-urlencoded"),
            ("/staging/new", BOUNDARY),
            ("/staging/{}/manifest", "application/json"),
            ("/staging/{}/delete", "text/plain"),
            ("/staging/{}/upload", BOUNDARY),
            ("/jobs/new", BOUNDARY),
            ("/agent/v1/enrol", "application/json"),
            ("/agent/v1/poll", "application/json"),
            ("/agent/v1/leases/x/log?offset=0", "text/plain"),
            ("/agent/v1/leases/x/output", "application/json"),
        ],
    )
    def test_without_a_length_they_are_refused(self, portal, connect, path, kind):
        body = b"3\r\na=b\r\n0\r\n\r\n"
        chunked = {"Transfer_Encoding": "chunked"}
        answer = self.send(portal, connect(), path.format(portal.dataset), kind, body, **chunked)
        assert answer.status == 411

    def test_a_chunked_body_that_nobody_reads_gets_one_answer(self, portal, connect):
        sock = connect()
        chunked = {"Transfer-Encoding": "chunked"}
        sock.sendall(head("POST", "/agent/v1/poll", chunked) + b"qq\r\n" + head("GET", "/", {}))
        assert Answer.read(sock).status == 411
        assert sock.recv(1) == b""

    def test_an_upload_keeps_what_came(self, portal, connect):
        for length, body in ((100, b"x" * 10), (None, b"a\r\n" + b"x" * 10)):
            address, sock = portal.new_upload(100), connect()
            sock.sendall(patch_head(address, 0, length) + body)
            sock.shutdown(socket.SHUT_WR)
            Answer.read(sock)
            assert portal.offset(address) == 10


def test_a_foreign_host_is_refused_in_one_line(portal, connect):
    before, sock = len(portal.log.read_bytes()), connect()
    sock.sendall(b"GET /accounts/login/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert Answer.read(sock).status == 400
    said = portal.log.read_bytes()[before:]
    assert len([line for line in said.splitlines() if b"evil" in line]) <= 1
    assert b"Traceback" not in said


@pytest.mark.parametrize("depth", [33, 900, 100_000])
def test_a_deep_body_is_refused(portal, depth):
    body = b'{"token": ' + b"[" * depth + b"]" * depth + b"}"
    answer = portal.request("POST", "/agent/v1/enrol", body, Content_Type="application/json")
    assert answer.status in (400, 413)

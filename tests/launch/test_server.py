"""Clients that stay connected, send too much or not enough: they hold up nobody but themselves."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.staging.live import Answer, Server, head, patch_head, serving
from tests.staging.test_tus_live import Portal

pytestmark = [pytest.mark.stalls, pytest.mark.xdist_group("server_live")]
MANY = 24  # more than there are threads


class Slow(Portal):
    config = "tests.launch.slow_server"


@pytest.fixture(scope="module")
def portal(tmp_path_factory) -> Iterator[Slow]:
    portal = Slow(tmp_path_factory.mktemp("slow"))
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


@pytest.mark.parametrize("body", [b"", b"csrfmiddlewaretoken=x", b"{"])
@pytest.mark.parametrize("path", ["/accounts/login/", "/staging/nosuchcode/manifest"])
def test_a_body_that_does_not_come_ends_its_request(portal, connect, path, body):
    silent = [connect() for _ in range(MANY)]
    for sock in silent:
        kind = "application/json" if body == b"{" else "application/x-www-form-urlencoded"
        sock.sendall(head("POST", path, {"Content-Length": "500", "Content-Type": kind}) + body)
    assert portal.request("GET", "/healthz").status == 200
    for sock in silent:
        assert Answer.read(sock).status in (400, 403, 404)


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
    assert all(is_open(sock) for sock in silent)


@pytest.mark.parametrize(
    "start", ["", "POST /accounts/login/ HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n"]
)
def test_who_sends_a_byte_now_and_then_is_cut_off(portal, connect, start):
    """Each byte comes within the limit for one; the whole does not come."""
    slow = [connect() for _ in range(MANY)]
    for sock in slow:
        sock.sendall(start.encode() or b"GET / HTTP/1.1\r\n")
        sock.setblocking(False)
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.3):
            for sock in slow:
                with contextlib.suppress(OSError):
                    sock.send(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        assert portal.request("GET", "/healthz").status == 200
    finally:
        stop.set()
        thread.join(60)


def test_who_does_not_take_the_answer_is_cut_off(portal, connect):
    address = portal.new_upload(2**26)
    assert portal.patch(address, 0, bytes(2**26)).status == 204
    path = f"/staging/{portal.dataset}/files/{portal.paths[address]}"
    cookie = {"Cookie": portal.signed_in["Cookie"]}
    stuck = [connect() for _ in range(MANY)]
    for sock in stuck:
        sock.sendall(head("GET", path, cookie))
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

"""A fast client's bytes are gathered into large pieces; none waits for those that do not come."""

import secrets
import socket
import threading
from types import SimpleNamespace

import pytest

from staging import body
from staging.bell import ring

LONG = 600.0  # seconds: no tick comes within a test
LENGTH = 8 * 2**20


@pytest.fixture
def ends():
    """(the client's end, the server's) of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server:
        yield client, server


def environ_of(server: socket.socket, length: int) -> dict:
    unreader = SimpleNamespace(take_buffered=lambda: b"", unread=lambda data: None)
    reader = SimpleNamespace(length=length, unreader=unreader)
    return {"wsgi.input": SimpleNamespace(reader=reader), "gunicorn.socket": server}


def wakes_at(server: socket.socket) -> int:
    return server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def sending(client: socket.socket, content: bytes) -> threading.Thread:
    thread = threading.Thread(target=client.sendall, args=(content,), daemon=True)
    thread.start()
    return thread


def test_a_fast_body_comes_whole_and_the_connection_stays_as_it_was(ends):
    client, server = ends
    content = secrets.token_bytes(LENGTH)
    thread = sending(client, content)
    found = b"".join(bytes(piece) for piece in body.pieces(environ_of(server, LENGTH), LENGTH))
    thread.join(60)
    assert found == content
    assert wakes_at(server) == 1


def test_what_a_fast_client_sent_before_it_stopped_is_handed_out(ends, monkeypatch):
    client, server = ends
    monkeypatch.setattr(body, "FAST", 1)
    pieces = body.pieces(environ_of(server, LENGTH), LENGTH)
    client.sendall(b"a")
    assert bytes(next(pieces)) == b"a"
    client.sendall(b"b")
    assert next(piece for piece in map(bytes, pieces) if piece) == b"b"
    pieces.close()
    assert wakes_at(server) == 1


def test_what_came_before_a_cut_is_handed_out(ends, monkeypatch):
    client, server = ends
    monkeypatch.setattr(body, "FAST", 1)
    monkeypatch.setattr(body, "GATHER_WAIT", LONG)
    pieces = body.pieces(environ_of(server, LENGTH), LENGTH)
    client.sendall(b"a")
    assert bytes(next(pieces)) == b"a"
    client.sendall(b"bc")
    client.shutdown(socket.SHUT_WR)
    assert b"".join(bytes(piece) for piece in pieces) == b"bc"


def test_a_ring_while_bytes_are_gathered_hands_out_those_that_came(ends, monkeypatch):
    client, server = ends
    monkeypatch.setattr(body, "FAST", 1)
    monkeypatch.setattr(body, "GATHER_WAIT", LONG)
    monkeypatch.setattr(body, "LISTEN_EVERY", 0.0)
    key = secrets.token_hex(20)
    pieces = body.pieces(environ_of(server, LENGTH), LENGTH, key)
    client.sendall(b"a")
    assert bytes(next(pieces)) == b"a"
    found: list[bytes] = []

    def take() -> None:
        found.extend(bytes(next(pieces)) for _ in range(2))

    thread = threading.Thread(target=take)
    client.sendall(b"bc")
    thread.start()
    while thread.is_alive():  # the bell hangs soon
        ring(key)
        thread.join(0.05)
    assert found == [b"bc", b""]

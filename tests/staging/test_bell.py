"""A takeover wakes the one who writes at once; nobody waits for a tick."""

import secrets
import socket
import threading
from types import SimpleNamespace

import pytest

from staging import body
from staging.bell import Bell, ring

LONG = 600.0  # seconds: no tick comes within a test


@pytest.fixture
def connection(monkeypatch):
    """(the client's end, the environ that gunicorn would hand out)"""
    monkeypatch.setattr(body, "TICK", LONG)
    monkeypatch.setattr(body, "IDLE_LIMIT", LONG)
    client, server = socket.socketpair()
    reader = SimpleNamespace(
        length=100, unreader=SimpleNamespace(take_buffered=lambda: b"", unread=lambda data: None)
    )
    environ = {"wsgi.input": SimpleNamespace(reader=reader), "gunicorn.socket": server}
    yield client, environ
    client.close()
    server.close()


def test_a_ring_hands_out_an_empty_piece(connection):
    client, environ = connection
    key = secrets.token_hex(20)
    pieces = body.pieces(environ, 100, key)
    client.sendall(b"abc")
    assert bytes(next(pieces)) == b"abc"
    assert bytes(next(pieces)) == b""  # the first look, once it is quiet
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(bytes(next(pieces))))
    waiting.start()
    ring(key)
    waiting.join(60)
    assert found == [b""]
    client.sendall(b"def")
    assert bytes(next(pieces)) == b"def"
    pieces.close()
    with_again = Bell(key)  # the name is free once the pieces have ended
    assert with_again.fileno() >= 0
    with_again.close()


def test_a_ring_is_heard_between_pieces(connection, monkeypatch):
    client, environ = connection
    monkeypatch.setattr(body, "LISTEN_EVERY", 0.0)
    key = secrets.token_hex(20)
    pieces = body.pieces(environ, 100, key)
    client.sendall(b"a")
    assert bytes(next(pieces)) == b"a"
    client.sendall(b"b")
    assert bytes(next(pieces)) == b"b"  # the bell hangs from the first look on
    ring(key)
    client.sendall(b"c")
    assert [bytes(next(pieces)) for _ in range(2)] == [b"", b"c"]


def test_ringing_where_nobody_is_does_nothing():
    ring(secrets.token_hex(20))


def test_a_second_bell_of_one_key_is_deaf_and_does_no_harm():
    key = secrets.token_hex(20)
    first, second = Bell(key), Bell(key)
    assert second.fileno() == -1
    assert not second.rang()
    ring(key)
    assert first.rang()
    first.close()
    second.close()


class TestRooms:
    """Large pieces come from a few rooms of the process; nobody waits for one."""

    @pytest.fixture
    def take(self, monkeypatch):
        monkeypatch.setattr(body, "_rooms", [None] * body.MOST_LARGE)
        rooms = []

        def take(wanted: int) -> body.Room:
            rooms.append(room := body.Room())
            room.take(wanted)
            return room

        yield take
        for room in rooms:
            room.give_back()
        assert len(body._rooms) == body.MOST_LARGE

    def test_a_room_is_used_again(self, take):
        first = take(2 * body.LARGE_ROOM)
        kept = first.large
        first.give_back()
        second = take(2 * body.LARGE_ROOM)
        assert second.large is second.now.obj is second.next.obj is kept

    def test_a_room_is_given_back_once(self, take):
        room = take(body.LARGE_ROOM)
        room.give_back()
        room.give_back()

    def test_its_halves_share_nothing(self, take):
        room = take(body.LARGE_ROOM)
        room.now[:] = b"1" * len(room.now)
        room.next[:] = b"2" * len(room.next)
        assert bytes(room.now) == b"1" * (body.LARGE_ROOM // 2)

    def test_whoever_comes_later_gets_a_smaller_one(self, take):
        sizes = [len(take(body.LARGE_ROOM).now) for _ in range(body.MOST_LARGE + 1)]
        assert sizes == [body.LARGE_ROOM // 2] * body.MOST_LARGE + [body.PIECE]

    def test_a_small_body_has_a_small_room(self, take):
        assert len(take(10).now) == 10

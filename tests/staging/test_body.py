"""The body of a request as it arrives: nothing waits for bytes that do not come."""

import secrets
import socket
import threading
from types import SimpleNamespace

import pytest

from staging import body
from staging.bell import ring

LONG = 600.0  # seconds: no tick comes within a test
LENGTH = 8 * 2**20


@pytest.fixture(autouse=True)
def rooms(monkeypatch):
    """Of this test alone: a body that is not closed keeps its own."""
    monkeypatch.setattr(body, "_rooms", [None] * body.MOST_LARGE)


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


def sending(client: socket.socket, content: bytes) -> threading.Thread:
    thread = threading.Thread(target=client.sendall, args=(content,), daemon=True)
    thread.start()
    return thread


def test_a_body_comes_whole(ends):
    client, server = ends
    content = secrets.token_bytes(LENGTH)
    thread = sending(client, content)
    found = b"".join(bytes(piece) for piece in body.pieces(environ_of(server, LENGTH), LENGTH))
    thread.join(60)
    assert found == content


def test_what_a_client_sent_before_it_stopped_is_handed_out(ends):
    client, server = ends
    pieces = body.pieces(environ_of(server, LENGTH), LENGTH)
    client.sendall(b"a")
    assert bytes(next(pieces)) == b"a"
    client.sendall(b"b")
    assert next(piece for piece in map(bytes, pieces) if piece) == b"b"
    pieces.close()


def test_what_came_before_a_cut_is_handed_out(ends):
    client, server = ends
    pieces = body.pieces(environ_of(server, LENGTH), LENGTH)
    client.sendall(b"a")
    assert bytes(next(pieces)) == b"a"
    client.sendall(b"bc")
    client.shutdown(socket.SHUT_WR)
    assert b"".join(bytes(piece) for piece in pieces) == b"bc"


def test_a_ring_hands_out_what_came_and_then_a_moment(ends, monkeypatch):
    client, server = ends
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


def test_the_last_piece_is_nobody_elses_before_the_body_is_closed(ends, monkeypatch):
    """It is still hashed in another thread when the end has come (staging.beside)."""
    monkeypatch.setattr(body, "_rooms", [None])
    size = 3 * 2**20
    client, server = ends
    first = body.pieces(environ_of(server, size), size)
    sending(client, b"A" * size)
    held = list(first)
    again = body.pieces(environ_of(server, size), size)
    sending(client, b"B" * size)
    list(again)
    again.close()
    assert set(bytes(held[-1])) == set(b"A")
    first.close()
    assert len(body._rooms) == 1  # and none was lost


def payload(*feeds: bytes) -> list[bytes]:
    frames = body.Frames()
    return [piece for feed in feeds for piece in frames.feed(feed)]


def test_chunks_of_one_byte_are_one_piece_a_feed():
    wire = b"1\r\nx\r\n" * 2000
    assert payload(wire, wire, b"0\r\n\r\n") == [b"x" * 2000, b"x" * 2000]


def test_the_buffer_is_cut_once_a_feed_not_once_a_chunk():
    """A chunk used to copy all that was left: a feed of n chunks moved n * n bytes."""

    class Counting(bytes):
        copied = 0

        def __getitem__(self, key):
            found = Counting(bytes.__getitem__(self, key))
            Counting.copied += len(found)
            return found

        def __radd__(self, other):
            return Counting(other + bytes(self))

    wire = Counting(b"1\r\nx\r\n" * 2000)
    frames = body.Frames()
    assert b"".join(frames.feed(wire)) == b"x" * 2000
    assert Counting.copied < 10 * len(wire)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_framing_may_be_cut_anywhere(step):
    wire = b"5;a=b\r\nhello\r\n1\r\n \r\n00005\r\nworld\r\n0\r\nTrailer: x\r\n\r\nGET /"
    frames = body.Frames()
    found = [p for n in range(0, len(wire), step) for p in frames.feed(wire[n : n + step])]
    assert (b"".join(found), frames.done, frames.rest) == (b"hello world", True, b"GET /")


def test_what_came_before_a_fault_is_handed_out():
    frames, found = body.Frames(), []
    with pytest.raises(body.BadFraming):
        found.extend(frames.feed(b"1\r\na\r\n2\r\nbcXX"))
    assert b"".join(found) == b"abc"


@pytest.mark.parametrize(
    "trailer",
    [
        b"A: b\r\n" * (body.MOST_TRAILERS + 1),
        (b"A" * (body.LONGEST_LINE - 1) + b"\r\n") * 3,
        b"A" * (body.LONGEST_LINE + 2),
    ],
)
def test_a_trailer_has_an_end(trailer):
    with pytest.raises(body.BadFraming):
        payload(b"0\r\n", trailer)


def test_a_short_trailer_is_dropped():
    assert payload(b"1\r\nx\r\n0\r\n" + b"A: b\r\n" * body.MOST_TRAILERS + b"\r\n") == [b"x"]


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n", b"x" * 100])
@pytest.mark.parametrize(
    "line",
    [
        b"1\n",
        b"1\nx",
        b"1\rx",
        b"1;a=b\nx",
        b"1;a=\rb",
        b"1 \r\n",
        b"1\r\nx\r\n0;\n",
        b"1\r\nx\r\n0\r\nA: b\nC: d",
        b"1\r\nx\r\n0\r\nA: \rb",
    ],
)
def test_a_line_ends_with_cr_and_lf_only(line, end):
    """What another parser on the way takes for an end must not be in it."""
    with pytest.raises(body.BadFraming):
        payload(line + end)

"""Large pieces are hashed in another thread: what is found is what one thread would find."""

import hashlib
import random
import threading
from collections.abc import Iterator

import pytest

from staging import digests, services
from staging.beside import LARGE, MOST, Beside
from staging.checksums import Checksum
from staging.errors import ChecksumMismatch, DigestMismatch
from staging.models import File, Upload
from staging.receive import receive

pytestmark = pytest.mark.django_db
PIECE = 3 * 2**20  # chunks of 8 MiB end inside of pieces
SIZE = 27 * 2**20 + 5
CONTENT = random.Random(3).randbytes(SIZE)  # noqa: S311  data, not a secret


def chunks_of(content: bytes) -> bytes:
    return b"".join(
        hashlib.sha256(content[at : at + digests.SMALLEST_CHUNK]).digest()
        for at in range(0, len(content), digests.SMALLEST_CHUNK)
    )


def by_turns(content: bytes) -> Iterator[memoryview]:
    """Pieces as the server's socket gives them: two rooms, one filled while the other is used."""
    assert PIECE > LARGE
    rooms = [memoryview(bytearray(PIECE)) for _ in range(2)]
    for number, at in enumerate(range(0, len(content), PIECE)):
        piece, room = content[at : at + PIECE], rooms[number % 2]
        room[: len(piece)] = piece
        yield room[: len(piece)]


@pytest.fixture
def send(dataset, owner):
    """send(offset, bytes, ...) to an upload whose chunks are declared."""
    chunks = chunks_of(CONTENT)
    digest = digests.combine(chunks)
    entry = services.Entry(path="a", size=SIZE, digest=digest, chunks=chunks)
    services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)

    def one(offset: int, content: bytes, **options) -> Upload:
        pieces = by_turns(content)
        return receive(upload=Upload.objects.get(), offset=offset, pieces=pieces, **options)

    return one


def test_the_whole_and_its_chunks_have_their_digests(send):
    send(0, CONTENT)
    file = File.objects.select_related("blob").get()
    assert (file.state, file.digest) == (
        "uploaded",
        digests.combine(bytes(file.blob.chunk_digests)),
    )
    assert bytes(file.blob.chunk_digests) == chunks_of(CONTENT)


@pytest.mark.parametrize("at", [0, 8 * 2**20 - 1, 8 * 2**20, 20 * 2**20, SIZE - 1])
def test_a_wrong_byte_goes_back_to_the_begin_of_its_chunk(send, at):
    wrong = bytearray(CONTENT)
    wrong[at] ^= 1
    with pytest.raises(DigestMismatch) as caught:
        send(0, bytes(wrong))
    start = at // digests.SMALLEST_CHUNK * digests.SMALLEST_CHUNK
    assert caught.value.data["offset"] == Upload.objects.get().offset == start
    send(start, CONTENT[start:])
    assert File.objects.get().state == "uploaded"


def test_a_cut_between_two_pieces_keeps_all_that_came(send):
    cut = 5 * PIECE
    send(0, CONTENT[:cut])
    upload = Upload.objects.get()
    assert upload.offset == cut
    assert bytes(upload.chunk_digests) == chunks_of(CONTENT)[:32]
    send(cut, CONTENT[cut:])
    assert File.objects.get().state == "uploaded"


def test_a_checksum_of_the_request_is_that_of_all_its_pieces(send):
    part = CONTENT[: 2 * PIECE]
    with pytest.raises(ChecksumMismatch):
        send(0, part, checksum=Checksum("sha256", hashlib.sha256(part[1:]).digest()))
    assert Upload.objects.get().offset == 0
    send(0, part, checksum=Checksum("sha256", hashlib.sha256(part).digest()))
    assert Upload.objects.get().offset == len(part)


def test_one_call_at_a_time_and_its_error_is_told():
    order: list[int] = []
    gate = threading.Event()

    def first() -> None:
        gate.wait(60)
        order.append(1)

    def fail() -> None:
        order.append(2)
        raise ValueError("told")

    beside = Beside()
    beside.run(first)
    gate.set()
    beside.run(fail)
    with pytest.raises(ValueError, match="told"):
        beside.settle()
    beside.settle()
    assert order == [1, 2]


def test_more_calls_than_threads_wait_their_turn():
    gate = threading.Event()
    done: list[int] = []

    def wait_turn(number: int) -> None:
        gate.wait(60)
        done.append(number)

    many = [Beside() for _ in range(MOST + 3)]
    for number, beside in enumerate(many):
        beside.run(wait_turn, number)
    gate.set()
    for beside in many:
        beside.settle()
    assert sorted(done) == list(range(MOST + 3))

"""On the disk lies what the row counts: no byte beyond the offset outlives its request."""

import hashlib
import os

import pytest

from portal.base.errors import NoRoom, NotFound
from staging import services, store
from staging.checksums import Checksum
from staging.errors import ChecksumMismatch, DigestMismatch, TooLong, WrongOffset
from staging.models import Blob, Upload
from staging.receive import receive
from staging.writer import Writer

pytestmark = [pytest.mark.django_db, pytest.mark.db]
CHUNK = 8 * 2**20


def wrong() -> Checksum:
    return Checksum("sha256", hashlib.sha256(b"of other bytes").digest())


def right(content: bytes) -> Checksum:
    return Checksum("sha256", hashlib.sha256(content).digest())


def on_disk() -> int:
    return os.stat(store.path_of(Upload.objects.get().key)).st_size


@pytest.fixture
def begin(dataset, owner):
    """begin(...) declares one file; send(offset, pieces, ...) to its upload."""

    def declare(**facts) -> None:
        entry = services.Entry(path="a", **facts)
        services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)

    return declare


def send(offset: int, *pieces: bytes, **options) -> Upload:
    return receive(upload=Upload.objects.get(), offset=offset, pieces=pieces, **options)


@pytest.mark.parametrize("kept", [b"", b"0123"])
def test_a_failed_checksum_leaves_nothing(begin, kept):
    begin(size=20)
    send(0, kept)
    with pytest.raises(ChecksumMismatch):
        send(len(kept), b"xxxx", b"yyyy", checksum=wrong())
    assert Upload.objects.get().offset == len(kept) == on_disk()


def test_a_length_that_is_told_later_is_the_files_length(begin):
    begin(size=0, deferred=True)
    send(0, b"0123")
    with pytest.raises(ChecksumMismatch):
        send(4, b"x" * 1000, checksum=wrong())
    assert on_disk() == 4
    send(4, b"45", length=6)
    assert (on_disk(), Blob.objects.get().size) == (6, 6)


def test_more_than_was_declared_is_cut(begin):
    begin(size=6)
    with pytest.raises(TooLong):
        send(0, b"0123456789")
    assert (on_disk(), Blob.objects.get().size) == (6, 6)


def test_more_than_was_declared_with_a_wrong_checksum_is_cut_whole(begin):
    begin(size=6)
    with pytest.raises(ChecksumMismatch):
        send(0, b"0123456789", checksum=wrong())
    assert (Upload.objects.get().offset, on_disk()) == (0, 0)


def test_bytes_that_are_not_those_declared_leave_the_disk(begin):
    begin(size=6, digest=hashlib.sha256(b"012345").hexdigest())
    with pytest.raises(DigestMismatch):
        send(0, b"543210")
    assert (Upload.objects.get().offset, on_disk()) == (0, 0)


def test_a_right_that_ended_meanwhile(begin, monkeypatch):
    monkeypatch.setattr("staging.writer.ASK_EVERY", 0.0)
    begin(size=20)
    with pytest.raises(NotFound):
        send(0, b"0123", b"", checksum=wrong(), may_go_on=lambda: False)
    assert (Upload.objects.get().offset, on_disk()) == (0, 0)


def test_a_later_request_took_over(begin, monkeypatch):
    begin(size=20)
    upload = Upload.objects.get()

    def pieces():
        yield b"0123"
        Upload.objects.filter(pk=upload.pk).update(generation=upload.generation + 1)
        yield b""

    with pytest.raises(WrongOffset):
        receive(upload=upload, offset=0, pieces=pieces(), checksum=wrong())
    assert (Upload.objects.get().offset, on_disk()) == (0, 0)


def test_a_disk_that_fills_within_a_piece(begin, monkeypatch):
    begin(size=20)
    send(0, b"0123")

    def half(fd, piece, offset):
        os.pwrite(fd, bytes(piece)[: len(piece) // 2], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_all", half)
    with pytest.raises(NoRoom):
        send(4, b"456789")
    assert Upload.objects.get().offset == 4 == on_disk()


def test_a_source_that_breaks_keeps_what_was_counted(begin):
    begin(size=20)

    def pieces():
        yield b"0123"
        raise RuntimeError("the server ends")

    with pytest.raises(RuntimeError):
        receive(upload=Upload.objects.get(), offset=0, pieces=pieces())
    assert Upload.objects.get().offset == on_disk()


def test_what_a_killed_process_left_is_cut_by_the_next(begin):
    """It wrote a second's bytes that no row counts, and the file ends before them."""
    begin(size=0, deferred=True)
    send(0, b"0123")
    with store.path_of(Upload.objects.get().key).open("ab") as file:
        file.write(b"x" * 1000)
    send(4, length=4)
    assert (on_disk(), Blob.objects.get().size) == (4, 4)
    assert Blob.objects.get().digest == hashlib.sha256(b"0123").hexdigest()


def test_where_the_row_may_have_moved_nothing_is_cut(begin, monkeypatch):
    """The database's answer to a commit was lost: it may count these bytes."""
    begin(size=20)
    monkeypatch.setattr("staging.writer.change", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        send(0, b"0123")
    assert on_disk() == 4


@pytest.mark.parametrize("kept", [0, 1000, CHUNK])
def test_a_wrong_chunk_commits_nothing_of_a_request_whose_checksum_is_wrong(begin, kept):
    """The first chunks are those declared, and still nobody said that the request came whole."""
    content = os.urandom(2 * CHUNK) + b"the last chunk"
    chunks = b"".join(
        hashlib.sha256(content[at : at + CHUNK]).digest() for at in (0, CHUNK, 2 * CHUNK)
    )
    begin(size=len(content), chunks=chunks)
    send(0, content[:kept])
    spoilt = content[kept : 2 * CHUNK - 1] + b"?" + content[2 * CHUNK :]
    spoilt = spoilt[:-1] + b"!"
    with pytest.raises(DigestMismatch) as refusal:
        send(kept, spoilt, checksum=wrong())
    upload = Upload.objects.get()
    assert upload.offset == refusal.value.data["offset"] == on_disk() == kept
    assert len(upload.chunk_digests) == kept // CHUNK * 32
    send(kept, content[kept:], checksum=right(content[kept:]))
    assert Blob.objects.get().size == len(content) == on_disk()


def test_a_wrong_chunk_whose_first_bytes_were_kept_before_goes_back_to_its_start(begin):
    content = os.urandom(CHUNK) + b"the last chunk"
    chunks = b"".join(hashlib.sha256(content[at : at + CHUNK]).digest() for at in (0, CHUNK))
    begin(size=len(content), chunks=chunks)
    send(0, b"other bytes")
    with pytest.raises(DigestMismatch):
        send(11, content[11:], checksum=right(content[11:]))
    assert (Upload.objects.get().offset, on_disk()) == (0, 0)


def test_a_writer_leaves_a_file_alone_that_is_as_long_as_its_row_says(begin, monkeypatch):
    begin(size=20)
    send(0, b"0123")
    monkeypatch.setattr(os, "ftruncate", lambda *args: pytest.fail("it was cut"))
    with store.path_of(Upload.objects.get().key).open("r+b") as file:
        Writer(Upload.objects.get(), file.fileno()).close()
    assert on_disk() == 4

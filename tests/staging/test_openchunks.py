"""What a process remembers of an open chunk is used for the very bytes it hashed, or not at all."""

import hashlib
import os

import pytest

from staging import openchunks, services, store
from staging.checksums import Checksum
from staging.digests import Hasher
from staging.errors import ChecksumMismatch, DigestMismatch, WrongOffset
from staging.models import File, Upload
from staging.receive import receive

pytestmark = pytest.mark.django_db
WHOLE = b"0123456789"


@pytest.fixture(autouse=True)
def forgotten():
    """A process that remembers nothing yet."""
    openchunks._kept.clear()
    yield
    openchunks._kept.clear()


@pytest.fixture
def send(dataset, owner):
    """send(offset, bytes, ...) to an upload of 10 bytes that are declared by their digest."""
    entry = services.Entry(path="a", size=10, digest=hashlib.sha256(WHOLE).hexdigest())
    services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)

    def one(offset: int, content: bytes, **options) -> Upload:
        return receive(upload=Upload.objects.get(), offset=offset, pieces=[content], **options)

    return one


def test_the_next_request_reads_nothing_again(send, monkeypatch):
    send(0, WHOLE[:5])
    monkeypatch.setattr(os, "pread", lambda *args: pytest.fail("it was read again"))
    send(5, WHOLE[5:])
    assert File.objects.get().digest == hashlib.sha256(WHOLE).hexdigest()


def test_another_process_reads_the_open_chunk_again(send):
    send(0, WHOLE[:5])
    openchunks._kept.clear()
    send(5, WHOLE[5:])
    assert File.objects.get().state == "uploaded"


def test_bytes_that_came_again_are_not_those_that_were_hashed(send):
    """Meanwhile another process went back and took other bytes, up to the same offset."""
    send(0, b"wrong")
    remembered = dict(openchunks._kept)
    openchunks._kept.clear()
    with pytest.raises(DigestMismatch):
        send(5, b"wrong")
    send(0, WHOLE[:5])
    openchunks._kept.clear()
    openchunks._kept.update(remembered)
    send(5, WHOLE[5:])
    assert File.objects.get().digest == hashlib.sha256(WHOLE).hexdigest()


def test_bytes_that_were_not_kept_are_not_remembered(send):
    send(0, WHOLE[:3])
    with pytest.raises(ChecksumMismatch):
        send(3, b"xx", checksum=Checksum("sha1", hashlib.sha1(b"other").digest()))  # noqa: S324
    send(3, WHOLE[3:])
    assert File.objects.get().state == "uploaded"


def test_a_file_that_lost_bytes_is_hashed_anew(send):
    send(0, b"wrong")
    key = Upload.objects.get().key
    store.path_of(key).write_bytes(b"")
    with pytest.raises(WrongOffset):
        send(5, b"wrong")
    send(0, WHOLE[:5])
    send(5, WHOLE[5:])
    assert File.objects.get().state == "uploaded"


def test_only_so_many_are_kept():
    for index in range(openchunks.MOST + 3):
        openchunks.keep(Upload(key=str(index)), Hasher(1))
    assert len(openchunks._kept) == openchunks.MOST
    assert openchunks.take(Upload(key="0")) is None
    assert openchunks.take(Upload(key=str(openchunks.MOST))) is not None
    assert openchunks.take(Upload(key=str(openchunks.MOST))) is None  # it was given away

"""Bytes into the store: one writer per upload, offsets that never lie.

A writer holds a lock on the file under the upload's key for as long as it writes; the system
drops that lock when its process dies. Whoever finds it taken raises `generation` and waits: the
one who writes looks at that number several times a second, commits what it has, and lets go. So
the later request wins, nothing that arrived is lost, and no two of them ever write at once.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import F

from portal.base.clock import db_now
from portal.base.errors import NoRoom
from staging import blobs, store, usage
from staging.datasets import begin_verifying
from staging.digests import Hasher
from staging.errors import Busy, DigestMismatch, Gone, TooMany, WrongOffset
from staging.models import Blob, Dataset, DeadKey, File, Upload
from staging.states import DatasetReason, DatasetState, FileState, UploadState

LOOK_EVERY = 0.2  # seconds between looks at the fence
COMMIT_EVERY = 1.0  # seconds between commits of the offset while bytes flow
TAKEOVER_LIMIT = 10.0  # seconds to wait for another writer to let go
RETRY_LOCK = 0.02

ENDED = {
    UploadState.EXPIRED: "This upload was not finished in time; its bytes were removed.",
    UploadState.TERMINATED: "This upload was ended.",
}


def check_open(upload: Upload) -> None:
    """Raise Gone for an upload that expired or was terminated."""
    if upload.state in ENDED:
        raise Gone(ENDED[UploadState(upload.state)])


@contextmanager
def writing(upload: Upload) -> Iterator[int]:
    """The only writer of an upload: yields the file descriptor, rereads the row.

    Raises Busy when another writer does not let go in time, Gone when the upload has ended.
    """
    fd = store.open_to_write(upload.key)
    try:
        generation = _take_lock(fd, upload)
        upload.refresh_from_db()
        upload.generation = generation
        if upload.state != UploadState.OPEN and not _in_use(upload.key):
            store.delete(upload.key)  # opening it made it again
        check_open(upload)
        yield fd
    finally:
        os.close(fd)


def _in_use(key: str) -> bool:
    return Blob.objects.filter(key=key, dead_at=None).exists()


def _take_lock(fd: int, upload: Upload) -> int:
    """Wait for the lock; the generation that stands while this request is the last one."""
    seen = _generation(upload)
    if _locked(fd):
        return seen
    Upload.objects.filter(pk=upload.pk).update(generation=F("generation") + 1)
    mine = _generation(upload)
    give_up = time.monotonic() + TAKEOVER_LIMIT
    while not _locked(fd):
        if time.monotonic() > give_up:
            raise Busy("Another request still writes to this upload. Try again in a moment.")
        if _generation(upload) != mine:
            upload.refresh_from_db(fields=["offset", "state"])
            raise WrongOffset(upload.offset, "A later request took this upload over.")
        time.sleep(RETRY_LOCK)
    return mine


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _generation(upload: Upload) -> int:
    row = Upload.objects.filter(pk=upload.pk).values_list("generation", flat=True).first()
    return -1 if row is None else row


def settle_offset(upload: Upload) -> Upload:
    """Stop whoever writes and reread the row: the offset is the one that is accepted next."""
    if upload.state == UploadState.OPEN:
        try:
            with writing(upload):
                pass
        except (Busy, WrongOffset, Gone):
            upload.refresh_from_db()
    return upload


class Writer:
    """Writes the pieces of one request. Use it inside `writing`."""

    def __init__(self, upload: Upload, fd: int) -> None:
        self.upload = upload
        self.fd = fd
        self.position = upload.offset
        self.generation = upload.generation
        self.looked = self.committed = time.monotonic()
        self._repair()
        self.hasher = Hasher(upload.length, bytes(upload.chunk_digests))
        self.known_chunks = len(self.hasher.chunks)
        self._rehash()

    def _repair(self) -> None:
        """After a power cut the file may be shorter than the row says: go back to a chunk's end."""
        there = os.fstat(self.fd).st_size
        if there >= self.upload.offset:
            return
        chunks = there // self.upload.chunk_size
        self.position = chunks * self.upload.chunk_size
        digests = bytes(self.upload.chunk_digests)[: chunks * 32]
        self._swap(offset=self.position, chunk_digests=digests)
        self.upload.chunk_digests = digests

    def _rehash(self) -> None:
        """Read again what had arrived of the open chunk."""
        at = self.hasher.resume_at
        while at < self.position:
            piece = os.pread(self.fd, min(store.READ_PIECE, self.position - at), at)
            if not piece:
                raise OSError(f"{self.upload.key} ends at {at}")
            self.hasher.update(piece)
            at += len(piece)

    @property
    def left(self) -> int:
        return self.upload.length - self.position

    def take(self, piece: bytes | memoryview) -> None:
        """Write one piece; an empty one is a moment to look around. Raises WrongOffset when
        a later request took over, Gone when the upload ended, NoRoom when the disk is full."""
        if piece:
            self._write(piece)
        now = time.monotonic()
        idle = not piece
        if now - self.committed >= COMMIT_EVERY or (idle and self.position > self.upload.offset):
            self.commit()
        if now - self.looked >= LOOK_EVERY or idle:
            self.looked = now
            self._look()

    def _write(self, piece: bytes | memoryview) -> None:
        part = memoryview(piece)[: self.left]
        try:
            store.write_all(self.fd, part, self.position)
        except OSError as error:
            self.commit()
            raise self._no_room() from error
        self.hasher.update(part)
        self.position += len(part)
        if len(part) < len(piece):
            self.commit()
            raise TooMany("More bytes came than were declared.", offset=self.position)

    def _no_room(self) -> NoRoom:
        file = self.upload.file
        if file is not None:
            Dataset.objects.filter(pk=file.dataset_id, state=DatasetState.TRANSFERRING).update(
                reason=DatasetReason.DISK_FULL
            )
        return NoRoom("The store's disk is full. Retry once there is room.", offset=self.position)

    def _look(self) -> None:
        if _generation(self.upload) == self.generation:
            return
        self.commit()
        raise WrongOffset(self.upload.offset, "A later request took this upload over.")

    def commit(self) -> None:
        """Write the offset, and the digests of chunks that were completed. Expiry slides."""
        self.committed = time.monotonic()
        if self.position == self.upload.offset:
            return
        changes: dict[str, object] = {"offset": self.position}
        if len(self.hasher.chunks) != self.known_chunks:
            changes["chunk_digests"] = bytes(self.hasher.chunks)
            self.known_chunks = len(self.hasher.chunks)
        self._swap(**changes)
        if store.free_bytes() < 0:
            raise self._no_room()

    def _swap(self, **changes: object) -> None:
        expires_at = db_now() + settings.UPLOAD_LIFETIME
        swapped = Upload.objects.filter(
            pk=self.upload.pk, state=UploadState.OPEN, offset=self.upload.offset
        ).update(expires_at=expires_at, **changes)
        if not swapped:
            self.upload.refresh_from_db()
            check_open(self.upload)
            raise WrongOffset(self.upload.offset, "Another request wrote to this upload.")
        self.upload.expires_at = expires_at
        self.upload.offset = int(changes["offset"])  # type: ignore[call-overload]

    def finish(self) -> None:
        """At the last byte: onto stable storage, digest checked, the file has its blob."""
        store.make_durable(self.fd, self.upload.key)
        digest, chunks = self.hasher.finish()
        if self.upload.expected_digest not in ("", digest):
            self._swap(offset=0, chunk_digests=b"")
            raise DigestMismatch(
                "The bytes that arrived are not those that were declared. Send the file again.",
                offset=0,
                digest=digest,
            )
        complete(upload=self.upload, digest=digest, chunks=chunks)


def receive(*, upload: Upload, offset: int, pieces: Iterable[bytes | memoryview]) -> Upload:
    """Append the pieces of one request at `offset`; keeps what came when they end early.

    Raises WrongOffset, Gone, NoRoom, TooMany, DigestMismatch or Busy; what arrived before is kept.
    """
    if upload.state == UploadState.COMPLETE:
        if offset != upload.offset:
            raise WrongOffset(upload.offset)
        return upload
    with writing(upload) as fd:
        if offset != upload.offset:
            raise WrongOffset(upload.offset)
        if upload.state == UploadState.COMPLETE:
            return upload
        writer = Writer(upload, fd)
        if writer.position != offset:
            raise WrongOffset(writer.position)
        for piece in pieces:
            writer.take(piece)
        if writer.left:
            writer.commit()
        else:
            writer.finish()
    return upload


def complete(*, upload: Upload, digest: str, chunks: bytes) -> None:
    """open -> complete: the file stands on the team's blob of these bytes."""
    with transaction.atomic():
        now = db_now()
        _close(upload, now)
        blob, fresh = blobs.adopt(
            team_id=upload.team_id,
            digest=digest,
            size=upload.length,
            key=upload.key,
            chunk_size=upload.chunk_size,
            chunks=chunks,
        )
        if not fresh:
            DeadKey.objects.create(
                key=upload.key,
                size=upload.length,
                dataset=Dataset.objects.filter(files__upload=upload).first(),
            )
        stored = upload.length if fresh else 0
        usage.settle(team_id=upload.team_id, promised=-upload.length, stored=stored)
        File.objects.filter(upload=upload).update(
            state=FileState.UPLOADED, digest=digest, blob=blob
        )
    _arrived(upload, now)


def _close(upload: Upload, now: datetime) -> None:
    expires_at = now + settings.UPLOAD_LIFETIME
    swapped = Upload.objects.filter(
        pk=upload.pk, state=UploadState.OPEN, offset=upload.offset
    ).update(
        state=UploadState.COMPLETE,
        offset=upload.length,
        chunk_digests=b"",
        expires_at=expires_at,
    )
    if not swapped:
        upload.refresh_from_db()
        check_open(upload)
        raise WrongOffset(upload.offset)
    upload.state, upload.offset, upload.expires_at = (
        UploadState.COMPLETE,
        upload.length,
        expires_at,
    )


def _arrived(upload: Upload, now: datetime) -> None:
    """The last file of a sealed dataset starts its check; the pump does so too, if we do not."""
    from staging.tasks import wake_verify

    if upload.file_id is None:
        return
    dataset = Dataset.objects.get(files=upload.file_id)
    if dataset.reason == DatasetReason.DISK_FULL:
        Dataset.objects.filter(pk=dataset.pk, state=DatasetState.TRANSFERRING).update(reason="")
    with transaction.atomic():
        if begin_verifying(dataset=dataset, at=now, actor=upload.holder):
            wake_verify(dataset)

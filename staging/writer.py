"""The bytes of one request on their way into the store: hashed as they come, counted in the row.

What arrived survives `kill -9`: it is in the file before the row says so. What the row does not
count leaves the file again: when the request ends or, where its process was killed or the database
did not answer, when the next one begins. So no file is longer than its blob. Bytes are forced onto
the disk, many files at once, before a dataset is staged (staging.verification); for the output of a
lease, which is accepted without that check, at its last byte.
"""

import os
import time
from collections.abc import Callable

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from portal.base.commits import light_statement
from portal.base.errors import DomainError, NoRoom, NotFound, TooLarge
from portal.base.rows import change
from portal.base.words import in_bytes
from staging import names, openchunks, store, usage
from staging.beside import LARGE, Beside
from staging.checksums import Checksum
from staging.completion import complete
from staging.digests import RAW, Hasher, chunk_count, chunk_size_of
from staging.errors import ChecksumMismatch, DigestMismatch, TooLong, WrongOffset
from staging.models import Dataset, File, Upload
from staging.states import DatasetReason, DatasetState, UploadState
from staging.takeover import check_open, drop_if_dead, generation_of
from staging.uploads import for_a_lease

LOOK_EVERY = 0.2  # seconds between looks at the fence, where no bell woke the writer
ASK_EVERY = 5.0  # seconds between questions whether the sender still may
COMMIT_EVERY = 1.0  # seconds between commits of the offset while bytes flow
GROW_BY = 64 * 2**20  # bytes of room promised at once to an upload of unknown length


class Writer:
    """Writes the pieces of one request. Use it inside `staging.takeover.writing`.

    With a checksum nothing is committed before all of it has matched.
    """

    def __init__(
        self,
        upload: Upload,
        fd: int,
        checksum: Checksum | None = None,
        may_go_on: Callable[[], bool] | None = None,
    ) -> None:
        self.upload = upload
        self.fd = fd
        self.checksum = checksum
        self.position = upload.offset
        self.generation = upload.generation
        self.may_go_on = may_go_on
        self.looked = self.committed = self.asked = time.monotonic()
        self._row_known = True  # `upload.offset` is the row's
        self._repair()
        self.hasher: Hasher | None = None
        self._compared = 0  # chunks that are known to be what the client declared
        self._beside = Beside()

    def _repair(self) -> None:
        """After a power cut the file may be shorter than the row says: go back to a chunk's end.
        After `kill -9` it may be longer."""
        there = os.fstat(self.fd).st_size
        if there < self.upload.offset:
            self._back_to(there // self.upload.chunk_size)
        self._cut()

    def _cut(self) -> None:
        """Drop bytes that the row does not count; nobody's quota would."""
        if self._row_known and os.fstat(self.fd).st_size > self.upload.offset:
            os.ftruncate(self.fd, self.upload.offset)

    def _back_to(self, chunks: int) -> None:
        """Keep only this many chunks; whoever remembers another state must look again.

        While the checksum of a request is open, nothing that came with it is kept.
        """
        self._raise_generation()
        self.position = chunks * self.upload.chunk_size
        if self.checksum is not None:
            self.position = min(self.position, self.upload.offset)
        digests = bytes(self.upload.chunk_digests)[: self.position // self.upload.chunk_size * RAW]
        self._swap(offset=self.position, chunk_digests=digests)
        self.upload.chunk_digests = digests

    def _raise_generation(self) -> None:
        """Nobody may go by what they knew of the bytes. Others' raises still show after ours."""
        Upload.objects.filter(pk=self.upload.pk).update(generation=F("generation") + 1)
        self.upload.generation += 1
        self.generation += 1

    def settle_length(self, length: int) -> None:
        """The length of an upload that was begun without one. Raises DomainError, NoRoom."""
        upload = self.upload
        if not upload.deferred:
            if length != upload.length:
                raise DomainError(f"The length of this upload is {upload.length} already.")
            return
        if length < self.position:
            raise DomainError(f"{self.position} bytes are here; the length cannot be {length}.")
        _check_size(length)
        chunk = chunk_size_of(length)
        digests = bytes(upload.chunk_digests) if chunk == upload.chunk_size else b""
        changes = {"length": length, "chunk_size": chunk, "chunk_digests": digests}
        with transaction.atomic():
            usage.change_promise(team_id=upload.team_id, amount=length - upload.length)
            self._swap(offset=self.position, deferred=False, **changes)
            File.objects.filter(upload=upload).update(size=length)
        upload.deferred = False
        for name, value in changes.items():
            setattr(upload, name, value)

    def announce(self, size: int | None) -> None:
        """Refuse a body that is known to be too long before a byte of it is read."""
        if size is None or size <= self.left:
            return
        if not self.upload.deferred:
            raise TooLong(
                f"{size} bytes were announced; the upload has room for {self.left}.",
                offset=self.upload.offset,
            )
        self._grow(size - self.left)

    def _grow(self, size: int) -> None:
        """Promise room for `size` more bytes of an upload whose length is not known."""
        upload = self.upload
        _check_size(self.position + self.left + size)
        with transaction.atomic():
            usage.promise(team_id=upload.team_id, amount=size)
            rows = Upload.objects.filter(pk=upload.pk, state=UploadState.OPEN)
            if not rows.update(length=F("length") + size):
                raise self._lost()  # it was ended: nobody would give this room back
        upload.length += size

    def _begin_hashing(self) -> Hasher:
        self.hasher = self._hasher()
        self._compared = len(self.hasher.chunks) // RAW
        return self.hasher

    def _hasher(self) -> Hasher:
        """A hasher that knows all bytes before `position`; the open chunk is read again, where
        this process did not hash it in the request before."""
        hasher = Hasher(self.upload.length, bytes(self.upload.chunk_digests))
        hasher.chunk_size = self.upload.chunk_size
        known = openchunks.take(self.upload)
        if known is not None:
            hasher.open_chunk = known
            return hasher
        at = hasher.resume_at
        while at < self.position:
            piece = os.pread(self.fd, min(store.READ_PIECE, self.position - at), at)
            if not piece:
                raise OSError(f"{self.upload.key} ends at {at}")
            hasher.update(piece)
            at += len(piece)
        return hasher

    @property
    def left(self) -> int:
        return self.upload.length - self.position

    @property
    def whole(self) -> bool:
        return not self.left and not self.upload.deferred

    def take(self, piece: bytes | memoryview) -> None:
        """Write one piece; an empty one is a moment to look around. Raises WrongOffset when
        a later request took over, Gone when the upload ended, NotFound when the right to send
        did, NoRoom when the disk is full."""
        if piece:
            self._write(piece)
        now = time.monotonic()
        idle = not piece
        if now - self.committed >= COMMIT_EVERY or (idle and self.position > self.upload.offset):
            self.commit()
        if now - self.looked >= LOOK_EVERY or idle:
            self.looked = now
            self._look()
            self._ask(now)

    def _write(self, piece: bytes | memoryview) -> None:
        if self.upload.deferred and len(piece) > self.left:
            self._make_room(len(piece) - self.left)
        if self.hasher is None:
            self._begin_hashing()
        part = memoryview(piece)[: self.left]
        try:
            store.write_all(self.fd, part, self.position)
        except OSError as error:
            self.commit()
            raise self._no_room() from error
        self.settle()
        self.position += len(part)
        if len(part) > LARGE:
            self._beside.run(self._hash, part)
        else:
            self._hash(part)
        if len(part) < len(piece):
            self.end()
            raise TooLong(
                f"More came than the {self.upload.length} bytes that were declared.",
                offset=self.upload.offset,
            )

    def _hash(self, part: memoryview) -> None:
        assert self.hasher is not None  # noqa: S101  a byte was written
        self.hasher.update(part)
        if self.checksum is not None:
            self.checksum.update(part)

    def settle(self) -> None:
        """All bytes before `position` are hashed when this returns. Raises DigestMismatch."""
        self._beside.settle()
        if self.hasher is not None and len(self.hasher.chunks) > self._compared * RAW:
            self._compare_chunks()

    def close(self) -> None:
        """Nobody uses the last piece any more when this returns, and the file ends at the row's
        offset. To be called in any case."""
        try:
            self._beside.settle()
        finally:
            self._cut()

    def _make_room(self, size: int) -> None:
        try:
            self._grow(max(size, GROW_BY))
        except DomainError:
            try:
                self._grow(size)
            except DomainError:
                self.commit()
                raise

    def _compare_chunks(self) -> None:
        """Chunks that were just completed, against what the client declared for them."""
        assert self.hasher is not None  # noqa: S101  a chunk was completed
        expected, found = bytes(self.upload.expected_chunks), self.hasher.chunks
        first, self._compared = self._compared, len(found) // RAW
        for index in range(first, self._compared) if expected else ():
            if expected[index * RAW : (index + 1) * RAW] != found[index * RAW : (index + 1) * RAW]:
                self.upload.chunk_digests = bytes(found)
                self.hasher = None
                self._back_to(index)
                raise self._mismatch(index)

    def _mismatch(self, chunk: int | None) -> DigestMismatch:
        count = chunk_count(self.upload.length)
        name = _name_of(self.upload)
        where = f"chunk {chunk + 1} of {count}" if chunk is not None else "the file"
        again = f"Send it again from byte {self.position}."
        return DigestMismatch(
            f"{name}: the bytes of {where} that arrived are not those that were declared. {again}",
            offset=self.position,
            path=name,
            chunk=0 if count == 1 else chunk,
        )

    def _no_room(self) -> NoRoom:
        file = self.upload.file
        if file is not None:
            Dataset.objects.filter(pk=file.dataset_id, state=DatasetState.TRANSFERRING).update(
                reason=DatasetReason.DISK_FULL
            )
        free = max(0, store.free_bytes())
        needed = self.upload.length - self.upload.offset
        return NoRoom(
            f"The store's disk is full: {in_bytes(free)} are free, {in_bytes(needed)} of this file "
            "are missing. What arrived is kept. Retry once there is room.",
            offset=self.upload.offset,
            free=free,
            needed=needed,
        )

    def _ask(self, now: float) -> None:
        """A request may last for hours, and the right behind it end meanwhile: a membership, a
        lease. What arrived stays, for whoever declares the file again."""
        if self.may_go_on is None or now - self.asked < ASK_EVERY:
            return
        self.asked = now
        if not self.may_go_on():
            self.commit()
            raise NotFound("There is no such upload.")

    def _look(self) -> None:
        if generation_of(self.upload) == self.generation:
            return
        self.commit()
        raise WrongOffset(self.upload.offset, "A later request took this upload over.")

    def commit(self) -> None:
        """Write the offset, and the digests of chunks that were completed. Expiry slides.

        The last byte is left to `finish`: an upload whose offset is its length is complete.
        """
        self.settle()
        self.committed = time.monotonic()
        if self.checksum is not None:
            self._swap(offset=self.upload.offset)
        elif self.position != self.upload.offset and not self.whole:
            assert self.hasher is not None  # noqa: S101  a byte was written
            self._swap(offset=self.position, chunk_digests=bytes(self.hasher.chunks))
            if store.free_bytes() < 0:
                raise self._no_room()

    def _swap(self, **changes: object) -> None:
        """Compare-and-swap on the offset. The expiry is on the portal's own clock: it only says
        that something came."""
        expires_at = timezone.now() + settings.UPLOAD_LIFETIME
        self._row_known = False  # until the database has answered
        with light_statement():
            swapped = change(
                Upload,
                {"expires_at": expires_at, **changes},
                f"id = %s AND state = %s AND {connection.ops.quote_name('offset')} = %s",
                [self.upload.pk, UploadState.OPEN.value, self.upload.offset],
            )
        if not swapped:
            raise self._lost()
        self.upload.expires_at = expires_at
        self.upload.offset = int(changes["offset"])  # type: ignore[call-overload]
        self._row_known = True

    def _lost(self) -> WrongOffset:
        """The row is no longer as this writer left it. Raises Gone where it has ended."""
        self.upload.refresh_from_db()
        drop_if_dead(self.upload)
        check_open(self.upload)
        return WrongOffset(self.upload.offset, "Another request wrote to this upload.")

    def end(self) -> None:
        """No more bytes come in this request. Raises ChecksumMismatch, DigestMismatch."""
        self.settle()
        if self.checksum is not None:
            checksum, self.checksum = self.checksum, None
            if not checksum.matches():
                raise self._not_its_checksum(checksum)
        if self.whole:
            self.finish()
            return
        self.commit()
        if self.hasher is not None and self.position == self.upload.offset:
            openchunks.keep(self.upload, self.hasher)

    def _not_its_checksum(self, checksum: Checksum) -> ChecksumMismatch:
        start, stop = self.upload.offset, self.position
        self.position = start
        name, chunk = _name_of(self.upload), start // self.upload.chunk_size
        return ChecksumMismatch(
            f"{name}: the {checksum.algorithm} of bytes {start} to {stop} (chunk {chunk + 1}) is "
            "not the one that was declared. None of them was kept; send them again.",
            offset=start,
            path=name,
            chunk=chunk,
        )

    def finish(self) -> None:
        """At the last byte: the digest is checked, the file has its blob."""
        hasher = self.hasher or self._begin_hashing()
        digest, chunks = hasher.finish()
        self._compare_chunks()
        if self.upload.expected_digest not in ("", digest):
            self._back_to(0)
            raise self._mismatch(0 if chunk_count(self.upload.length) == 1 else None)
        if for_a_lease(self.upload):
            store.make_durable(self.fd, self.upload.key)
        complete(upload=self.upload, digest=digest, chunks=chunks)


def _name_of(upload: Upload) -> str:
    return names.shown(upload.file.path) if upload.file else "This upload"


def _check_size(size: int) -> None:
    most = settings.LARGEST_UPLOAD_BYTES
    if size > most:
        raise TooLarge(f"{in_bytes(size)} are too many: at most {in_bytes(most)} make one file.")

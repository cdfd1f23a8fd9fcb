"""One writer per upload; whoever comes later wins.

A writer holds a lock on the file under the upload's key for as long as it writes; the system
drops that lock when its process dies. Whoever finds it taken raises `generation`, rings the
upload's bell (staging.bell) and waits: the one who writes looks at that number, commits what it
has, and lets go. So the later request wins, nothing that arrived is lost, and no two of them ever
write at once.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection
from django.db.models import F

from portal.base.rows import fetch, find, table
from portal.base.words import in_words
from staging import bell, store
from staging.errors import Busy, Gone, WrongOffset
from staging.models import Blob, Upload
from staging.states import UploadState
from staging.uploads import PARTS

TAKEOVER_LIMIT = 10.0  # seconds to wait for another writer to let go
RETRY_LOCK = 0.002
RING_EVERY = 0.02
MOVING = ("generation", "offset", "state", "length", "deferred", "concat")  # of a row that lives


def check_open(upload: Upload) -> None:
    """Raise Gone for an upload that expired or was terminated."""
    if upload.state == UploadState.EXPIRED:
        limit = in_words(settings.UPLOAD_LIFETIME)
        raise Gone(f"No byte came for {limit}, so this upload expired and its bytes were removed.")
    if upload.state == UploadState.TERMINATED:
        raise Gone("This upload was ended.")


@contextmanager
def writing(upload: Upload) -> Iterator[int]:
    """The only writer of an upload: yields the file descriptor, rereads the row.

    Raises Busy when another writer does not let go in time, WrongOffset when a later request took
    the upload over, Gone when it has ended.
    """
    fd = store.open_to_write(upload.key)
    try:
        generation = _take_lock(fd, upload)
        _reread(upload)
        drop_if_dead(upload)  # opening it made it again
        check_open(upload)
        if upload.generation != generation:
            raise WrongOffset(upload.offset, "A later request took this upload over.")
        yield fd
    finally:
        os.close(fd)


def _reread(upload: Upload) -> None:
    """Bring the row up to date. Nearly always nothing has moved: that is asked first."""
    columns = ", ".join(connection.ops.quote_name(name) for name in MOVING)
    row = fetch(f"SELECT {columns} FROM {table(Upload)} WHERE id = %s", [upload.pk])  # noqa: S608
    if row == tuple(getattr(upload, name) for name in MOVING):
        return
    fresh = find(Upload, "id = %s", [upload.pk])
    if fresh is None:
        raise Gone("This upload was ended.")
    for field in Upload._meta.concrete_fields:
        setattr(upload, field.attname, getattr(fresh, field.attname))


def drop_if_dead(upload: Upload) -> None:
    """Remove what is under the key of an upload that ended, unless it is a blob's or a part."""
    if upload.state == UploadState.OPEN or upload.concat in PARTS:
        return
    if not Blob.objects.filter(key=upload.key, dead_at=None).exists():
        store.delete(upload.key)


def _take_lock(fd: int, upload: Upload) -> int:
    """Wait for the lock; the generation that stands while this request is the last one.

    Where nobody has the lock it is the one that was read with the row: a takeover since then
    ends this request.
    """
    if _locked(fd):
        return upload.generation
    Upload.objects.filter(pk=upload.pk).update(generation=F("generation") + 1)
    mine = generation_of(upload)
    give_up = time.monotonic() + TAKEOVER_LIMIT
    rung = 0.0
    while not _locked(fd):
        now = time.monotonic()
        if now > give_up:
            raise Busy("Another request still writes to this upload. Try again in a moment.")
        if now - rung > RING_EVERY:
            rung = now
            bell.ring(upload.key)
            if generation_of(upload) != mine:
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


def generation_of(upload: Upload) -> int:
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

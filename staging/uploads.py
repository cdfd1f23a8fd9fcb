"""Uploads: who may send, the address that is the capability, how one ends."""

import hmac
from collections.abc import Callable, Iterable
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.crypto import salted_hmac

from portal.base.clock import db_now
from portal.base.codes import new_code
from portal.base.crypto import hash_token
from portal.base.errors import Conflict, NotFound
from portal.base.rows import find
from portal.teams.access import is_member
from staging import store, usage
from staging.digests import chunk_size_of
from staging.models import Dataset, DeadKey, File, Upload
from staging.states import Concat, UploadState

CODE_LENGTH = 32
LEASE = "lease:"  # and its code: what holds the uploads of an output
PARTS = (Concat.PARTIAL, Concat.TAKEN)

_holders: dict[str, Callable[[str], bool]] = {}


def register_holder(kind: str, check: Callable[[str], bool]) -> None:
    """`check(code)` tells whether holders "<kind>:<code>" may still send bytes."""
    _holders[kind] = check


def may_send(upload: Upload) -> bool:
    """Whether the one on whose behalf bytes arrive still has that right."""
    kind, colon, code = upload.holder.partition(":")
    if colon and kind in _holders:
        return _holders[kind](code)
    return is_member(upload.holder, upload.team_id)


def is_lease(holder: str) -> bool:
    """Whether a lease holds it, and no person: no address of a person begins so."""
    return holder.startswith(LEASE)


def for_a_lease(upload: Upload) -> bool:
    """Whether a lease, not a person, stands behind it: its bytes are accepted as they are,
    without the check of a dataset."""
    return is_lease(upload.holder)


def token_of(code: str, holder: str) -> str:
    """The signed part of an address; another holder has another one."""
    return salted_hmac("staging.upload", f"{code} {holder}", algorithm="sha256").hexdigest()


def address_of(upload: Upload) -> str:
    """The relative address that bytes are sent to. Whoever knows it may send."""
    return f"/tus/{upload.code}/{token_of(upload.code, upload.holder)}"


def new_upload(
    *,
    file: File | None,
    team_id: int,
    length: int,
    holder: str,
    at: datetime,
    digest: str = "",
    chunks: bytes = b"",
    metadata: str = "",
    deferred: bool = False,
) -> Upload:
    """An open upload, not yet saved: many are created with one statement."""
    code = new_code(CODE_LENGTH)
    return Upload(
        code=code,
        token_hash=hash_token(token_of(code, holder)),
        file=file,
        team_id=team_id,
        length=length,
        chunk_size=chunk_size_of(length),
        expected_digest=digest,
        expected_chunks=chunks,
        deferred=deferred,
        metadata=metadata,
        key=store.new_key(),
        holder=holder,
        created_at=at,
        expires_at=at + settings.UPLOAD_LIFETIME,
    )


def renew_right(upload: Upload, holder: str) -> None:
    """Hand an upload whose holder lost the right to the one who declares it again.

    The address changes with the holder, so the old one opens nothing. The same holder gets the
    same address, unless the signing key changed. What a lease held is never a person's.
    """
    theirs = is_lease(upload.holder) == is_lease(holder)
    if upload.holder != holder and theirs and not may_send(upload):
        upload.holder = holder
    wanted = hash_token(token_of(upload.code, upload.holder))
    if wanted != upload.token_hash:
        upload.token_hash = wanted
        Upload.objects.filter(pk=upload.pk).update(holder=upload.holder, token_hash=wanted)


def find_upload(code: str, token: str) -> Upload:
    """The upload of an address. Raises NotFound for a wrong address or a right that has ended."""
    if not code.isalnum():  # no code is anything else; and PostgreSQL refuses a NUL
        raise NotFound("There is no such upload.")
    upload = find(Upload, "code = %s", [code])
    if upload is None or not hmac.compare_digest(upload.token_hash, hash_token(token)):
        raise NotFound("There is no such upload.")
    if not may_send(upload):
        raise NotFound("There is no such upload.")
    return upload


def end_upload(
    *, upload: Upload, to: UploadState, at: datetime, parts: Iterable[str] = PARTS
) -> bool:
    """open -> expired or terminated: the room is given back, the bytes die. False: it had ended.

    So end the parts of a concatenation, complete or not; with a final upload end those it was
    being made of. `parts`: which of them, where not those of a final. Call it inside a
    transaction. The one who writes notices at the next piece.
    """
    usage.lock(upload.team_id)
    part = Q(state=UploadState.COMPLETE, concat__in=parts)
    rows = Upload.objects.filter(Q(state=UploadState.OPEN) | part, pk=upload.pk)
    swapped = rows.update(state=to, expires_at=at + settings.UPLOAD_LIFETIME, chunk_digests=b"")
    if not swapped:
        return False
    upload.refresh_from_db(fields=["length", "offset"])  # it may have grown since it was read
    usage.settle(team_id=upload.team_id, promised=-upload.length, stored=0)
    dataset = Dataset.objects.filter(files__upload=upload).first()
    DeadKey.objects.create(key=upload.key, size=upload.offset, dataset=dataset)
    upload.state = to
    for part_row in Upload.objects.filter(code__in=upload.parts, concat=Concat.TAKEN):
        end_upload(upload=part_row, to=UploadState.TERMINATED, at=at)
    return True


def end_uploads(*, files: Iterable[File], at: datetime) -> None:
    """Terminate the open uploads of files and keep all their uploads as tombstones."""
    rows = Upload.objects.filter(file__in=list(files))
    for upload in rows.filter(state=UploadState.OPEN).order_by("pk"):
        end_upload(upload=upload, to=UploadState.TERMINATED, at=at)
    rows.update(file=None)


def terminate_upload(*, upload: Upload, actor: str) -> None:
    """The client gives up: bytes and, in a dataset that is still open, the file's row go.

    Raises Conflict when every byte has arrived: the file is part of its dataset then.
    """
    with transaction.atomic():
        now = db_now()
        free = (Concat.PARTIAL,)  # a final may take it just now: the row decides
        if not end_upload(upload=upload, to=UploadState.TERMINATED, at=now, parts=free):
            upload.refresh_from_db(fields=["state", "concat"])
            if upload.concat == Concat.TAKEN and upload.state == UploadState.COMPLETE:
                raise Conflict("A file is being made of this part.")
            if upload.state == UploadState.COMPLETE:
                raise Conflict("Every byte of this file has arrived; remove it on its page.")
            return
        file = upload.file
        Upload.objects.filter(pk=upload.pk).update(file=None)
        if file is None:
            return
        file.dataset.note("terminate", at=now, actor=actor, detail={"bytes": upload.length})
        if file.dataset.sealed_at is None:
            file.delete()

"""Concatenation (tus 1.0.0): parts that are sent side by side, and the file made of them.

The parts of a file are copied in the background, in order, by the same writer that takes requests:
it hashes as it goes, commits its offset, and after a restart goes on from there. Their room stays
promised, and their bytes where they are, until the file is whole.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from django.db import transaction

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from portal.base.turns import is_over
from staging import names, store, usage
from staging.creation import create_upload
from staging.entries import Entry
from staging.errors import Busy, DigestMismatch, Gone, WrongOffset
from staging.models import Dataset, Upload
from staging.receive import receive
from staging.states import Concat, UploadState
from staging.uploads import address_of, end_upload, find_upload, new_upload

ADDRESS = re.compile(r"(?:https?://[^/\s]+)?/tus/([^/\s]+)/([0-9a-f]+)", re.ASCII)
AT_ONCE = 32 * 2**20  # bytes that are put together while the client waits


def create_part(
    *, team_id: int, length: int, deferred: bool, holder: str, metadata: str
) -> tuple[Upload, str]:
    """A part; it lies in no dataset. Raises NoRoom."""
    with transaction.atomic():
        usage.promise(team_id=team_id, amount=length)
        part = new_upload(
            file=None,
            team_id=team_id,
            length=length,
            holder=holder,
            at=db_now(),
            metadata=metadata,
            deferred=deferred,
        )
        part.concat = Concat.PARTIAL
        part.save()
    if not length and not deferred:
        receive(upload=part, offset=0, pieces=())
    return part, address_of(part)


def parts_named(text: str, *, team_id: int, holder: str) -> list[Upload]:
    """The parts that "final;<address> <address>" names. Raises DomainError (400).

    They are found by the pattern of an address and by their owner, never by a path.
    """
    parts = []
    for address in text.split():
        match = ADDRESS.fullmatch(address)
        if match is None:
            raise DomainError("Upload-Concat needs the addresses of parts.")
        part = find_upload(*match.groups())
        if (part.team_id, part.holder) != (team_id, holder) or not part.concat:
            raise DomainError("One of the addresses in Upload-Concat is no part of yours.")
        parts.append(part)
    if not parts or len({part.pk for part in parts}) != len(parts):
        raise DomainError("Upload-Concat needs at least one part, and each of them once.")
    return parts


def create_final(
    *, dataset: Dataset, entry: Entry, parts: list[Upload], actor: str, metadata: str
) -> tuple[Upload, str]:
    """The file of these parts, in their order; asking again gives the same one.

    Raises DomainError (400) while a part is unfinished or belongs to another file.
    """
    from staging.tasks import wake_assemble

    codes = [part.code for part in parts]
    with transaction.atomic():
        known = Upload.objects.filter(
            file__dataset=dataset, file__path=entry.path, concat=Concat.FINAL
        ).first()
        if known is not None and known.parts == codes:
            return known, address_of(known)
        usage.lock(dataset.team_id, dataset=dataset)
        _take(parts)
        entry = replace(entry, size=sum(part.length for part in parts))
        final, address = create_upload(dataset=dataset, entry=entry, actor=actor, metadata=metadata)
        if final.offset and final.state == UploadState.OPEN:
            raise Conflict("Another upload of this file has begun. End it first.")
        Upload.objects.filter(pk=final.pk).update(concat=Concat.FINAL, parts=codes)
    final.concat, final.parts = Concat.FINAL, codes
    if final.length <= AT_ONCE:
        assemble(final=final, until=time.monotonic() + 1)
    else:
        wake_assemble(final)
    return final, address


def _take(parts: list[Upload]) -> None:
    """partial -> taken, all or none: another final may be at them, or their end. In a transaction
    that an error rolls back."""
    free = Upload.objects.filter(
        pk__in=[part.pk for part in parts], state=UploadState.COMPLETE, concat=Concat.PARTIAL
    )
    if free.update(concat=Concat.TAKEN) != len(parts):
        raise DomainError("Every part must be complete, and part of no other file.")


def waiting(upload_id: int | None) -> list[Upload]:
    """Finals that are not whole, or whose parts were not ended yet: all, or this one."""
    parts = Upload.objects.filter(concat=Concat.TAKEN, state=UploadState.COMPLETE)
    taken = set(parts.values_list("code", flat=True))
    rows = Upload.objects.filter(
        concat=Concat.FINAL, state__in=(UploadState.OPEN, UploadState.COMPLETE)
    )
    rows = rows.filter(pk=upload_id) if upload_id else rows.order_by("pk")
    return [final for final in rows if taken.intersection(final.parts)] if taken else []


def assemble(*, final: Upload, until: float) -> None:
    """Copy the parts until the file is whole or a time.monotonic() value has come; may run twice.

    Raises NoRoom, and what else `receive` raises when the disk is full; what was copied stays.
    Raises DigestMismatch, and the file's upload has ended then, where the parts do not make the
    file that was declared: they never will.
    """
    try:
        if final.state == UploadState.OPEN:
            receive(upload=final, offset=final.offset, pieces=_bytes_of(final, until))
    except (Busy, WrongOffset, Gone):
        return  # another worker is at it, or it was ended
    except DigestMismatch:
        _give_up(final)
        raise
    if final.state == UploadState.COMPLETE:
        _end_parts(final)


def _give_up(final: Upload) -> None:
    """The file is expected as before; whoever declares it again sends it anew."""
    with transaction.atomic():
        now = db_now()
        file = final.file
        if not end_upload(upload=final, to=UploadState.TERMINATED, at=now) or file is None:
            return
        Upload.objects.filter(pk=final.pk).update(file=None)
        detail = {"path": names.shown(file.path)}
        file.dataset.note("mismatch", at=now, actor=final.holder, detail=detail)


def _bytes_of(final: Upload, until: float) -> Iterator[bytes]:
    at, start = final.offset, 0
    parts = {part.code: part for part in Upload.objects.filter(code__in=final.parts)}
    for part in (parts[code] for code in final.parts):  # taken parts stay until the file is whole
        stop = start + part.length
        for piece in store.read(part.key, max(0, at - start), part.length):
            yield piece
            if is_over(until):
                return
        at, start = max(at, stop), stop


def _end_parts(final: Upload) -> None:
    with transaction.atomic():
        now = db_now()
        for part in Upload.objects.filter(code__in=final.parts, concat=Concat.TAKEN):
            end_upload(upload=part, to=UploadState.TERMINATED, at=now)


def concat_header(upload: Upload) -> str:
    """Upload-Concat as HEAD echoes it; the addresses are made anew, as only hashes are kept."""
    if upload.concat != Concat.FINAL:
        return "partial" if upload.concat else ""
    parts = {part.code: part for part in Upload.objects.filter(code__in=upload.parts)}
    return "final;" + " ".join(address_of(parts[c]) for c in upload.parts if c in parts)

"""Blobs: copies of bytes in the store, shared inside a team, dead when no file stands on them."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import F, QuerySet

from portal.base.errors import Conflict
from portal.base.rows import insert
from staging import store, usage
from staging.digests import EMPTY, SMALLEST_CHUNK
from staging.models import Blob, Dataset, DeadKey, File
from staging.states import FileState

TRIES = 5
BATCH = 500


def live_by_digest(team_id: int, digests: Iterable[str]) -> dict[str, Blob]:
    """The team's live blobs with these digests."""
    wanted = sorted(set(digests) - {""})
    rows = Blob.objects.filter(team_id=team_id, digest__in=wanted, dead_at=None)
    return {blob.digest: blob for blob in rows.defer("chunk_digests")}


def link(blob: Blob, count: int = 1) -> bool:
    """Let `count` more files stand on a blob; False when it died in the meantime."""
    rows = Blob.objects.filter(pk=blob.pk, dead_at=None)
    return bool(rows.update(links=F("links") + count))


def link_all(counts: dict[int, int]) -> set[int]:
    """Let more files stand on blobs (primary key -> how many); those that were still alive.

    Call it inside a transaction: the rows are written first, so what is alive then stays so.
    """
    alive: set[int] = set()
    by_count: dict[int, list[int]] = {}
    for pk, count in sorted(counts.items()):
        by_count.setdefault(count, []).append(pk)
    for count, keys in by_count.items():
        for start in range(0, len(keys), BATCH):
            rows = Blob.objects.filter(pk__in=keys[start : start + BATCH], dead_at=None)
            rows.update(links=F("links") + count)
            alive.update(rows.values_list("pk", flat=True))
    return alive


def adopt(
    *,
    team_id: int,
    digest: str,
    size: int,
    key: str,
    chunk_size: int,
    chunks: bytes,
    count: int = 1,
) -> tuple[Blob, bool]:
    """The live blob with this digest, with `count` links more: (blob, whether `key` became it).

    When False the bytes under `key` are not needed: the caller marks that key as dead.
    """
    new = Blob(
        team_id=team_id,
        digest=digest,
        size=size,
        key=key,
        chunk_size=chunk_size,
        chunk_digests=chunks,
        links=count,
    )
    for _ in range(TRIES):
        if insert(new, "ON CONFLICT DO NOTHING"):
            return new, True
        blob = Blob.objects.filter(team_id=team_id, digest=digest, dead_at=None).first()
        if blob is not None and link(blob, count):
            return blob, False
    raise Conflict("These bytes were being deleted while they arrived. Send the file again.")


def empty_blob(team_id: int, count: int = 1) -> Blob:
    """The team's blob of no bytes, with `count` links more. Its key has nothing in the store."""
    blob, _ = adopt(
        team_id=team_id,
        digest=EMPTY,
        size=0,
        key=store.new_key(),
        chunk_size=SMALLEST_CHUNK,
        chunks=bytes.fromhex(EMPTY),
        count=count,
    )
    return blob


def unlink(files: list[File], *, at: datetime, dataset: Dataset | None) -> int:
    """Take files off their blobs; bytes that leave the store by it, as dead keys of `dataset`.

    The rows stay as they are but for `blob`. Call it inside a transaction, after the uploads of
    these files have ended. What the rows say counts, not the instances: each link is given back
    by the one who takes it off its row, however many do this at once.
    """
    freed = 0
    if files:
        usage.lock(files[0].dataset.team_id)
    for start in range(0, len(files), BATCH):
        keys = [file.pk for file in files[start : start + BATCH]]
        freed += _unlink_rows(File.objects.filter(pk__in=keys), at, dataset)
    for file in files:
        file.blob = None
    if freed:
        usage.settle(team_id=files[0].dataset.team_id, promised=0, stored=-freed)
    return freed


def _unlink_rows(rows: QuerySet[File], at: datetime, dataset: Dataset | None) -> int:
    freed = 0
    standing = rows.exclude(blob=None).values_list("blob", flat=True)
    for blob_id in sorted(set(standing)):
        taken = rows.filter(blob=blob_id).update(blob=None)
        if taken:
            Blob.objects.filter(pk=blob_id).update(links=F("links") - taken)
            freed += _kill(blob_id, at, dataset)
    return freed


def _kill(blob_id: int, at: datetime, dataset: Dataset | None) -> int:
    if not Blob.objects.filter(pk=blob_id, links=0, dead_at=None).update(dead_at=at):
        return 0
    key, size = Blob.objects.values_list("key", "size").get(pk=blob_id)
    DeadKey.objects.create(key=key, dataset=dataset, size=size)
    return size


def condemn(blob: Blob, *, at: datetime) -> list[int]:
    """The store's bytes of a blob are not what they should be: no file may stand on it any more.

    Its files are expected again. Returns their datasets. Call it inside a transaction.
    """
    usage.lock(blob.team_id)
    if not Blob.objects.filter(pk=blob.pk, dead_at=None).update(links=0, dead_at=at):
        return []  # another check of the same bytes, or a deletion, was first
    files = list(File.objects.filter(blob=blob).select_related("dataset"))
    File.objects.filter(blob=blob).update(state=FileState.EXPECTED, digest="", blob=None)
    DeadKey.objects.get_or_create(key=blob.key, defaults={"size": blob.size})
    usage.settle(team_id=blob.team_id, promised=0, stored=-blob.size)
    return sorted({file.dataset_id for file in files})


def bury(dead: Iterable[DeadKey]) -> int:
    """Delete the bytes of dead keys, then their rows: bytes deleted. Repeating it does no harm."""
    gone, size = [], 0
    for row in dead:
        store.delete(row.key)
        gone.append(row.pk)
        size += row.size
    DeadKey.objects.filter(pk__in=gone).delete()
    return size

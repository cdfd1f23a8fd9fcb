"""Writing down what came of parts: one transaction for what a pump has gathered of a source.

The source's row is written first, so that recording, relisting and cancelling come one after the
other. A part is accepted once, from whoever holds its present claim; what anybody else brings is
let go.
"""

import random
from datetime import datetime, timedelta

from django.db import IntegrityError, connection, transaction
from django.db.models import F

from portal.base.clock import db_now
from portal.base.moves import move
from portal.base.rows import table, when
from staging import blobs, usage
from staging.datasets import fail_dataset, seal_dataset, settled
from staging.digests import chunk_size_of
from staging.models import Blob, Dataset, DeadKey, File, Part, Source, SourceFile
from staging.states import DatasetReason, DatasetState, FileState
from staging.sync.copying import Arrived, Outcome
from staging.sync.errors import Changed, SourceAway, SourceRefuses, Trouble
from staging.sync.listing import SYSTEM, pause_for
from staging.sync.parts import split_pack
from staging.sync.states import PartKind, SourceFileState, SourceReason, SourceState

MOST_TRIES = 10  # of a part: about a quarter of an hour
LAST_TRIES = 3  # of a file that comes out of a pack which was given up
MOST_AWAY = 12  # failures of a source in a row: about half an hour
MOST_REFUSALS = 3
LONGEST_WAIT_S = 300
BATCH = 500
SLOW_S = 10  # a turn this long that brought nothing shows that a pack is too much


def wait_of(tries: int) -> timedelta:
    """How long to leave alone what has failed `tries` times; spread, so that not all come back
    at once."""
    return timedelta(seconds=min(2**tries, LONGEST_WAIT_S) * random.uniform(0.5, 1))  # noqa: S311


def record(source_id: int, outcomes: list[Outcome]) -> None:
    """Write down outcomes of one source; repeating it changes nothing."""
    with transaction.atomic():
        now = db_now()
        rows = Source.objects.filter(pk=source_id)
        if rows.exclude(state=SourceState.CANCELLED).update(listing=F("listing")):
            source = rows.select_related("dataset").get()
            ours = [_close_claim(outcome, now) for outcome in outcomes]
        else:
            source, ours = None, [False] * len(outcomes)
        kept = [outcome for outcome, own in zip(outcomes, ours, strict=True) if own]
        lost = [outcome for outcome, own in zip(outcomes, ours, strict=True) if not own]
        _let_go([file.store_key for outcome in lost for file in outcome.order.files])
        if source is None:
            return
        _take(source, kept, now)
    settle(source)


def _close_claim(outcome: Outcome, now: datetime) -> bool:
    """Give the claim back with the part as it is now; False when it was no longer ours."""
    order = outcome.order
    rows = Part.objects.filter(pk=order.part, generation=order.generation, done=False)
    values: dict[str, object] = {"claimed_until": None, "done": not outcome.left}
    if order.kind == PartKind.RANGE:
        values |= {"arrived": outcome.arrived, "digests": outcome.digests}
    if outcome.refused and order.kind != PartKind.PACK:
        values["done"] = True
    progress = bool(outcome.files) or outcome.arrived > order.arrived
    trouble = outcome.trouble
    if trouble is None or isinstance(trouble, SourceAway) or outcome.disk_full:
        values |= {"sentence": str(trouble or "")[:300]}
    elif progress:
        values |= {"tries": 1, "sentence": str(trouble)[:300], "next_try_at": now + wait_of(1)}
    else:
        tries = Part.objects.values_list("tries", flat=True).filter(pk=order.part).first() or 0
        values |= {"tries": tries + 1, "sentence": str(trouble)[:300]}
        values |= {"next_try_at": now + wait_of(tries + 1)}
    return bool(rows.update(**values))


def _let_go(keys: list[str]) -> None:
    """Bytes of files that nobody knows any more are removed by the sweep."""
    for start in range(0, len(keys), BATCH):
        some = keys[start : start + BATCH]
        known = set(
            SourceFile.objects.filter(store_key__in=some).values_list("store_key", flat=True)
        )
        known |= set(Blob.objects.filter(key__in=some).values_list("key", flat=True))
        DeadKey.objects.bulk_create(
            [DeadKey(key=key) for key in some if key not in known], ignore_conflicts=True
        )


def _take(source: Source, outcomes: list[Outcome], now: datetime) -> None:
    files = [file for outcome in outcomes for file in outcome.files]
    for outcome in outcomes:
        _refuse(source, outcome.refused, now)
        if outcome.order.kind == PartKind.RANGE:
            _add_range(source, outcome, now)
        elif outcome.mismatch:
            _begin_again(outcome, now)
        elif outcome.order.kind == PartKind.PACK and outcome.left:
            _keep_rest(outcome)
        _give_up(source, outcome, now)
    complete_files(source, files, now)
    _note_source(source, outcomes, now)


def _refuse(source: Source, refused: list[tuple[int, Trouble]], now: datetime) -> None:
    """Files that changed or cannot be had; the dataset says so at once."""
    for pk, trouble in refused:
        changed = isinstance(trouble, Changed)
        state = SourceFileState.STALE if changed else SourceFileState.FAILED
        rows = SourceFile.objects.filter(pk=pk, source=source, state=SourceFileState.OPEN)
        if not rows.update(state=state, sentence=str(trouble)[:300]):
            continue
        Part.objects.filter(file_id=pk).update(done=True, claimed_until=None)
        dataset = source.dataset
        dataset.refresh_from_db()
        if changed and dataset.state == DatasetState.TRANSFERRING:
            reason = DatasetReason.SOURCE_CHANGED
            move(
                dataset,
                DatasetState.STALE,
                "change",
                at=now,
                actor=SYSTEM,
                reason=reason,
                changes={"reason": reason, "sealed_at": None},
            )
            settled(dataset)


def _add_range(source: Source, outcome: Outcome, now: datetime) -> None:
    order = outcome.order
    (pinned,) = order.files
    more = outcome.arrived - order.arrived
    rows = SourceFile.objects.filter(pk=pinned.pk, state=SourceFileState.OPEN)
    if not rows.update(arrived=F("arrived") + more) or outcome.left or outcome.refused:
        return
    if Part.objects.filter(file_id=pinned.pk, done=False).exists():
        return
    Part.objects.create(source=source, kind=PartKind.CHECK, file_id=pinned.pk)


def _begin_again(outcome: Outcome, now: datetime) -> None:
    """A file whose bytes are not those of its source: every range of it comes once more."""
    (pinned,) = outcome.order.files
    check = Part.objects.get(pk=outcome.order.part)
    ranges = Part.objects.filter(file_id=pinned.pk, kind=PartKind.RANGE)
    ranges.update(
        done=False,
        arrived=0,
        digests=b"",
        claimed_until=None,
        generation=F("generation") + 1,
        tries=F("tries") + 1,
        next_try_at=check.next_try_at,
        sentence=check.sentence,
    )
    SourceFile.objects.filter(pk=pinned.pk).update(arrived=0)
    tries = ranges.values_list("tries", flat=True).first() or 0
    check.delete()
    if tries >= MOST_TRIES:
        trouble = outcome.trouble or Trouble("It does not arrive as it is.")
        outcome.refused.append((pinned.pk, trouble))


def _keep_rest(outcome: Outcome) -> None:
    """A pack of which not one file came in a whole turn is too slow to be a pack."""
    stuck = not outcome.files and not outcome.refused and outcome.trouble is None
    if not stuck or outcome.took_s < SLOW_S:
        return
    part = Part.objects.get(pk=outcome.order.part)
    rest = list(part.pack.filter(state=SourceFileState.OPEN))
    Part.objects.filter(pk=part.pk).update(done=True)
    split_pack(rest)


def _give_up(source: Source, outcome: Outcome, now: datetime) -> None:
    """What has failed too often is no longer tried; the file says why."""
    if outcome.mismatch and outcome.refused:
        _refuse(source, outcome.refused, now)
        return
    if outcome.trouble is None or isinstance(outcome.trouble, SourceAway):
        return
    part = Part.objects.filter(pk=outcome.order.part, done=False, tries__gte=MOST_TRIES).first()
    if part is None:
        return
    came = {file.pk for file in outcome.files}
    keys = [pinned.pk for pinned in outcome.order.files if pinned.pk not in came]
    Part.objects.filter(pk=part.pk).update(done=True)
    if part.kind == PartKind.PACK and len(keys) > 1:
        rest = list(part.pack.filter(state=SourceFileState.OPEN).exclude(pk__in=came))
        split_pack(rest, MOST_TRIES - LAST_TRIES)
        return
    _refuse(source, [(pk, outcome.trouble) for pk in keys], now)


def _note_source(source: Source, outcomes: list[Outcome], now: datetime) -> None:
    """One failure of the source is one, however many parts met it."""
    if any(outcome.disk_full for outcome in outcomes):
        _stop_for(source, SourceReason.DISK_FULL, str(SourceReason.DISK_FULL.label), now)
        rows = Dataset.objects.filter(pk=source.dataset_id, state=DatasetState.TRANSFERRING)
        rows.update(reason=DatasetReason.DISK_FULL)
        return
    away = next((o.trouble for o in outcomes if isinstance(o.trouble, SourceAway)), None)
    if away is not None:
        note_away(source, away, now)
    elif source.tries and any(outcome.files or outcome.arrived for outcome in outcomes):
        Source.objects.filter(pk=source.pk).update(tries=0, sentence="")


def note_away(source: Source, trouble: Trouble, now: datetime) -> None:
    """Leave a source alone for a while; pause it once it has been away or refused too often."""
    if source.next_try_at is not None and source.next_try_at > now:
        return
    tries = source.tries + 1
    source.next_try_at = now + wait_of(tries)
    Source.objects.filter(pk=source.pk).update(
        tries=tries, next_try_at=source.next_try_at, sentence=str(trouble)[:300]
    )
    refuses = isinstance(trouble, SourceRefuses)
    if tries >= (MOST_REFUSALS if refuses else MOST_AWAY):
        reason = SourceReason.SOURCE_REFUSES if refuses else SourceReason.SOURCE_AWAY
        _stop_for(source, reason, str(trouble), now)


def _stop_for(source: Source, reason: SourceReason, sentence: str, now: datetime) -> None:
    source.refresh_from_db()
    if source.state in (SourceState.LISTING, SourceState.COPYING):
        pause_for(source, reason, sentence, now)


def complete_files(source: Source, arrived: list[Arrived], now: datetime) -> None:
    """Let files stand on the blobs of what came: theirs, or those that the team has already.

    Call it inside a transaction.
    """
    usage.lock(source.dataset.team_id)
    rows = SourceFile.objects.filter(
        pk__in=[file.pk for file in arrived], source=source, state=SourceFileState.OPEN
    )
    still = dict(rows.values_list("pk", "file_id"))
    files = sorted((f for f in arrived if f.pk in still), key=lambda f: f.digest)
    _let_go([file.store_key for file in arrived if file.pk not in still])
    if not files:
        return
    on, new_keys = _blobs_for(source.dataset.team_id, files)
    uploaded, moment = FileState.UPLOADED.value, str(when(now))
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {table(File)} SET state = %s, digest = %s, blob_id = %s, changed_at = %s"  # noqa: S608
            " WHERE id = %s",
            [(uploaded, f.digest, on[f.digest], moment, still[f.pk]) for f in files],
        )
    SourceFile.objects.filter(pk__in=still).update(state=SourceFileState.DONE, sentence="")
    Part.objects.filter(file_id__in=[file.pk for file in files]).delete()
    DeadKey.objects.bulk_create(
        [DeadKey(key=f.store_key, size=f.size) for f in files if f.store_key not in new_keys],
        ignore_conflicts=True,
    )
    size = sum(file.size for file in files)
    Source.objects.filter(pk=source.pk).update(
        moved_files=F("moved_files") + len(files),
        moved_bytes=F("moved_bytes") + size,
        promised_bytes=F("promised_bytes") - size,
    )
    stored = sum(file.size for file in files if file.store_key in new_keys)
    usage.settle(team_id=source.dataset.team_id, promised=-size, stored=stored)


def _blobs_for(team_id: int, files: list[Arrived]) -> tuple[dict[str, int], set[str]]:
    """(digest -> key of its blob, linked once for each file; the store keys that became blobs)"""
    by_digest: dict[str, list[Arrived]] = {}
    for file in files:
        by_digest.setdefault(file.digest, []).append(file)
    have = blobs.live_by_digest(team_id, by_digest)
    alive = blobs.link_all({blob.pk: len(by_digest[d]) for d, blob in have.items()})
    on = {digest: blob.pk for digest, blob in have.items() if blob.pk in alive}
    fresh = [(same[0], len(same)) for digest, same in by_digest.items() if digest not in on]
    try:
        with transaction.atomic():
            made = Blob.objects.bulk_create(
                [_blob(team_id, file, count) for file, count in fresh], batch_size=BATCH
            )
        on |= {blob.digest: blob.pk for blob in made}
        return on, {blob.key for blob in made}
    except IntegrityError:  # an upload or another sync brought one of them just now
        return _adopt_each(team_id, fresh, on)


def _adopt_each(
    team_id: int, fresh: list[tuple[Arrived, int]], on: dict[str, int]
) -> tuple[dict[str, int], set[str]]:
    keys = set()
    for file, count in fresh:
        blob, ours = blobs.adopt(
            team_id=team_id,
            digest=file.digest,
            size=file.size,
            key=file.store_key,
            chunk_size=chunk_size_of(file.size),
            chunks=file.chunks,
            count=count,
        )
        on[file.digest] = blob.pk
        if ours:
            keys.add(file.store_key)
    return on, keys


def _blob(team_id: int, file: Arrived, count: int) -> Blob:
    return Blob(
        team_id=team_id,
        digest=file.digest,
        size=file.size,
        key=file.store_key,
        chunk_size=chunk_size_of(file.size),
        chunk_digests=file.chunks,
        links=count,
    )


def settle(source: Source) -> None:
    """copying -> done, stale or failed, once nothing is open; may be called at any time."""
    with transaction.atomic():
        now = db_now()
        rows = Source.objects.filter(pk=source.pk, state=SourceState.COPYING)
        if source.files.filter(state=SourceFileState.OPEN).exists():
            return
        if not rows.update(listing=F("listing")):
            return
        source.refresh_from_db()
        left = set(source.files.exclude(state=SourceFileState.DONE).values_list("state", flat=True))
        if SourceFileState.OPEN in left:
            return
        Part.objects.filter(source=source).delete()
        if SourceFileState.STALE in left:
            _end(source, SourceState.STALE, SourceReason.CHANGED, now)
        elif left:
            _end(source, SourceState.FAILED, SourceReason.UNREADABLE, now)
            _fail_dataset(source, now)
        else:
            _end(source, SourceState.DONE, SourceReason.NONE, now)
            _seal(source)


def _end(source: Source, state: SourceState, reason: SourceReason, now: datetime) -> None:
    changes = {"reason": reason, "sentence": str(reason.label), "next_try_at": None, "tries": 0}
    move(
        source,
        state,
        "settle",
        at=now,
        actor=SYSTEM,
        reason=reason,
        detail={"files": source.moved_files, "bytes": source.moved_bytes},
        changes=changes,
    )


def _fail_dataset(source: Source, now: datetime) -> None:
    dataset = source.dataset
    dataset.refresh_from_db()
    if dataset.state == DatasetState.TRANSFERRING:
        fail_dataset(dataset=dataset, reason=DatasetReason.SOURCE_UNREADABLE, at=now, actor=SYSTEM)


def _seal(source: Source) -> None:
    dataset = source.dataset
    dataset.refresh_from_db()
    if dataset.state == DatasetState.TRANSFERRING:
        seal_dataset(dataset=dataset, actor=source.created_by)

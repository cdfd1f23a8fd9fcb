"""The verbs of a dataset's life up to its seal, and the holds that keep it."""

from datetime import datetime
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import F

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError, NotFound
from portal.base.moves import move
from portal.base.unseen import is_blank, unseen_in
from portal.teams.models import Team
from staging import blobs, names, usage
from staging.access import check_writer
from staging.errors import NothingChosen
from staging.models import Dataset, File, Hold
from staging.signals import dataset_settled
from staging.states import (
    FILLING,
    TAKES_FILES,
    DatasetKind,
    DatasetReason,
    DatasetState,
    FileState,
)
from staging.sync.ending import bury_files
from staging.uploads import end_uploads

LONGEST_NAME = 120
MOST_DAYS = 36500
ON_ITS_WAY_OUT = (DatasetState.EXPIRING, DatasetState.PURGED)


def create_dataset(
    *,
    team: Team,
    name: str,
    actor: str,
    kind: str = DatasetKind.INPUT,
    keep_days: int | None = None,
    at: datetime | None = None,
) -> Dataset:
    """A declared dataset. `keep_days`: None for the policy's, 0 for no date of deletion.

    `at`, here and in the verbs below: the time of the transaction that this is a part of.
    """
    name = " ".join(str(name).split())
    if found := unseen_in(name):
        raise DomainError(f"The name of a dataset holds {found}, which cannot be seen.")
    if is_blank(name) or len(name) > LONGEST_NAME:
        raise DomainError(f"A dataset needs a name of 1 to {LONGEST_NAME} printable characters.")
    if keep_days is not None and not 0 <= keep_days <= MOST_DAYS:
        raise DomainError(f"A dataset is kept for 0 to {MOST_DAYS} days.")
    with transaction.atomic():
        now = at or db_now()
        dataset = Dataset.objects.create(
            team=team,
            name=name,
            kind=DatasetKind(kind),
            keep_days=keep_days,
            created_by=actor[:254],
            created_at=now,
        )
        dataset.note("declare", at=now, actor=actor, frm="", to=DatasetState.DECLARED)
    return dataset


def seal_dataset(*, dataset: Dataset, actor: str, at: datetime | None = None) -> Dataset:
    """No file will be added any more; once all have arrived it is checked.

    Sealing again does nothing. An input without a file is refused; an output may be empty.
    A partial output leaves behind what did not arrive.
    """
    from staging.tasks import wake_verify

    with transaction.atomic():
        now = at or db_now()
        dataset.refresh_from_db()
        if dataset.state in (DatasetState.VERIFYING, DatasetState.STAGED):
            return dataset
        if dataset.state not in FILLING:
            raise Conflict(f"This dataset is {dataset.state}; it cannot be completed.")
        if dataset.partial:
            _leave_behind(dataset, now)
        _refuse_nothing(dataset)
        if dataset.state == DatasetState.DECLARED:
            move(dataset, DatasetState.TRANSFERRING, "list", at=now, actor=actor)
        if Dataset.objects.filter(pk=dataset.pk, sealed_at=None).update(sealed_at=now):
            dataset.sealed_at = now
            dataset.note("seal", at=now, actor=actor)
        begin_verifying(dataset=dataset, at=now, actor=actor)
    wake_verify(dataset)
    return dataset


def _refuse_nothing(dataset: Dataset) -> None:
    if dataset.kind != DatasetKind.OUTPUT and not dataset.files.exists():
        raise NothingChosen("There is no file in this dataset. Choose at least one.")


def _leave_behind(dataset: Dataset, at: datetime) -> None:
    usage.lock(dataset.team_id, dataset=dataset)
    missing = dataset.files.filter(state=FileState.EXPECTED)
    end_uploads(files=list(missing), at=at)
    missing.delete()


def begin_verifying(*, dataset: Dataset, at: datetime, actor: str) -> bool:
    """transferring -> verifying, when it is sealed and every file has arrived.

    The row is written before the files are counted: a declaration that is under way opens the
    dataset again, and its files would be missed otherwise.
    """
    if dataset.state != DatasetState.TRANSFERRING or dataset.sealed_at is None:
        return False
    sealed = Dataset.objects.filter(
        pk=dataset.pk, state=DatasetState.TRANSFERRING, sealed_at__isnull=False
    )
    if not sealed.update(claimed_until=F("claimed_until")):
        return False
    if dataset.files.filter(state=FileState.EXPECTED).exists():
        return False
    move(
        dataset,
        DatasetState.VERIFYING,
        "check",
        at=at,
        actor=actor,
        changes={"reason": DatasetReason.NONE},  # a worker's claim stands: it is at it now
    )
    return True


def settled(dataset: Dataset) -> None:
    """Tell the layers above, after commit."""
    transaction.on_commit(partial(dataset_settled.send_robust, Dataset, dataset=dataset))


def fail_dataset(*, dataset: Dataset, reason: str, at: datetime, actor: str, **changes) -> None:
    """It cannot become staged as it is; declaring its files again takes it up."""
    move(
        dataset,
        DatasetState.FAILED,
        "fail",
        at=at,
        actor=actor,
        reason=reason,
        changes={"reason": reason, "sealed_at": None, "claimed_until": None, **changes},
    )
    settled(dataset)


def discard_files(*, dataset: Dataset, prefix: str = "", source: str | None = None) -> int:
    """Drop the files below `prefix` ("" for all), with their uploads; how many.

    Only before the dataset is staged. `source`: only what this lease wrote. Folders stay.
    """
    with transaction.atomic():
        now = db_now()
        usage.lock(dataset.team_id, dataset=dataset)  # its lease's transaction may seal it, too
        dataset.refresh_from_db()
        if dataset.state not in TAKES_FILES:
            raise Conflict(f"This dataset is {dataset.state}; its files can no longer change.")
        rows = dataset.files.filter(path__startswith=prefix)
        if source is not None:
            rows = rows.filter(source=source)
        # SQLite's LIKE knows no case; the prefix does.
        files = [file for file in rows if file.path.startswith(prefix)]
        drop_files(files, at=now)
    return len(files)


def drop_files(files: list[File], *, at: datetime) -> None:
    """End the uploads of files, take them off their blobs, delete their rows."""
    if files:
        usage.lock(files[0].dataset.team_id)
    for start in range(0, len(files), blobs.BATCH):
        batch = files[start : start + blobs.BATCH]
        end_uploads(files=batch, at=at)
        bury_files(batch)
        blobs.unlink(batch, at=at, dataset=None)
        File.objects.filter(pk__in=[file.pk for file in batch]).delete()


def remove_file(*, dataset: Dataset, path: str, actor: str) -> None:
    """Take one file out of a dataset that is still open. Raises Conflict when it is not.

    Removing what is not there (any more) does nothing: whoever lost an answer asks again.
    """
    if names.problem(path):
        raise NotFound("There is no such file in this dataset.")
    with transaction.atomic():
        now = db_now()
        check_writer(dataset, actor)
        if dataset.fed_by:
            raise Conflict("A sync fills this dataset; leave files out with its patterns.")
        rows = Dataset.objects.filter(pk=dataset.pk, sealed_at=None, state__in=TAKES_FILES)
        if not rows.update(claimed_until=F("claimed_until")):
            raise Conflict("This dataset is complete; its files can no longer change.")
        rows.filter(reason=DatasetReason.DISK_FULL).update(reason="")
        files = list(dataset.files.filter(path=path))
        drop_files(files, at=now)
        if files:
            dataset.note("remove", at=now, actor=actor, detail={"path": names.shown(path)})


def hold(*, dataset: Dataset, holder: str, label: str, at: datetime) -> None:
    """Keep a dataset from being deleted. Holding twice is holding once.

    Raises Conflict when it is on its way out, was deleted or has failed.
    """
    with transaction.atomic():
        if Hold.objects.filter(dataset=dataset, holder=holder).exists():
            return
        if not Dataset.objects.filter(pk=dataset.pk).usable().update(holds=F("holds") + 1):
            raise Conflict(f"The dataset {dataset.name} has failed or is being deleted.")
        try:
            with transaction.atomic():
                Hold.objects.create(
                    dataset=dataset, holder=holder, label=label[:200], created_at=at
                )
        except IntegrityError:
            Dataset.objects.filter(pk=dataset.pk).update(holds=F("holds") - 1)
    dataset.refresh_from_db(fields=["holds", "state"])


def unhold(*, dataset: Dataset, holder: str) -> None:
    """Let go; letting go of what is not held does nothing."""
    with transaction.atomic():
        if Hold.objects.filter(dataset=dataset, holder=holder).delete()[0]:
            Dataset.objects.filter(pk=dataset.pk).update(holds=F("holds") - 1)
    dataset.refresh_from_db(fields=["holds", "state"])

"""One new file, listed by one request: the rows that declaring makes, in a handful of statements.

It serves what a plain tus client does thousands of times: a name that is not there yet, in a
dataset that takes files, in a folder that exists. Everything else is left to staging.files, which
also finds the words for a refusal.
"""

from portal.base.clock import db_now
from portal.base.commits import light_atomic
from portal.base.rows import execute, fetch, insert, table
from staging import usage
from staging.entries import Entry, problem_of
from staging.models import Dataset, File, Folder, Upload
from staging.states import DatasetKind, DatasetState
from staging.uploads import new_upload


class _NotThisWay(Exception):
    """The long way is needed; what was written is rolled back."""


def list_one(*, dataset: Dataset, entry: Entry, actor: str, metadata: str) -> Upload | None:
    """The open upload of a new file, or None where this is not the simple case."""
    simple = entry.size and not entry.deferred and not entry.digest and not problem_of(entry)
    closed = dataset.sealed_at or dataset.fed_by or dataset.kind == DatasetKind.OUTPUT
    if not simple or dataset.state != DatasetState.TRANSFERRING or closed:
        return None
    try:
        with light_atomic():
            return _list(dataset, entry, actor, metadata)
    except _NotThisWay:
        return None


def _list(dataset: Dataset, entry: Entry, actor: str, metadata: str) -> Upload:
    now = db_now()
    # The row is written first, so that a seal and a listing come one after the other.
    if not execute(
        f"UPDATE {table(Dataset)} SET claimed_until = NULL WHERE id = %s AND state = %s"  # noqa: S608
        " AND sealed_at IS NULL AND reason = ''",
        [dataset.pk, DatasetState.TRANSFERRING.value],
    ):
        raise _NotThisWay
    folder_id = _folder_for(dataset, entry.path)
    if not usage.promise_simply(dataset.team_id, entry.size):
        raise _NotThisWay
    file = File(dataset=dataset, path=entry.path, folder_id=folder_id, size=entry.size)
    insert(file)
    upload = new_upload(
        file=file,
        team_id=dataset.team_id,
        length=entry.size,
        holder=actor,
        at=now,
        metadata=metadata,
    )
    insert(upload)
    return upload


def _folder_for(dataset: Dataset, path: str) -> int | None:
    """The key of the folder a path lies in. Raises _NotThisWay when it is not there yet, or when
    the path is a file or a folder already."""
    parent = path.rpartition("/")[0]
    row = fetch(
        f"SELECT (SELECT id FROM {table(Folder)} WHERE dataset_id = %s AND path = %s),"  # noqa: S608
        f" EXISTS (SELECT 1 FROM {table(Folder)} WHERE dataset_id = %s AND path = %s),"
        f" EXISTS (SELECT 1 FROM {table(File)} WHERE dataset_id = %s AND path = %s)",
        [dataset.pk, parent, dataset.pk, path, dataset.pk, path],
    )
    assert row is not None  # noqa: S101  a SELECT without FROM has a row
    folder_id, is_folder, is_file = row
    if is_folder or is_file or (parent and folder_id is None):
        raise _NotThisWay
    return folder_id

"""What is said of a dataset's end: kept without a date, kept until, or deleted. Pure."""

from dataclasses import dataclass
from datetime import datetime

from portal.base.words import in_utc
from staging.models import Dataset
from staging.states import DatasetState

NO_DATE = "No retention period has been published here. This data stays until your team deletes it."


@dataclass(frozen=True)
class Retention:
    """`word` fits a table cell, `sentence` stands alone; `at` is the date of deletion if any."""

    word: str
    sentence: str
    at: datetime | None = None
    gone: bool = False


def retention(dataset: Dataset | None) -> Retention:
    if dataset is None:
        return Retention("none", "There is none.", gone=True)
    if dataset.state == DatasetState.PURGED and dataset.kind == "output" and not dataset.file_count:
        return Retention("none", "Nothing came back.", gone=True)
    if dataset.state == DatasetState.PURGED:
        sentence = (
            f"Deleted {in_utc(dataset.purged_at)} by {dataset.purged_by or 'the portal'}: "
            f"{dataset.get_reason_display()}"
            if dataset.purged_at
            else "Deleted."
        )
        return Retention("deleted", sentence, dataset.purged_at, gone=True)
    if dataset.state == DatasetState.EXPIRING:
        return Retention("being deleted", "Its bytes are being deleted.", gone=True)
    if dataset.expires_at is None:
        return Retention("no date set", NO_DATE)
    by = dataset.expiry_set_by or "this installation's policy"
    return Retention(
        "kept until",
        f"Will be deleted {in_utc(dataset.expires_at)}, set by {by}.",
        dataset.expires_at,
    )

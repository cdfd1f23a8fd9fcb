"""What the page of a running upload polls: counts, what changed, and when it may be done.

The cursor that goes out and comes back carries the place in the changes.
"""

import base64
import json
from datetime import UTC, datetime, timedelta

from django.db.models import Q

from portal.base.clock import db_now, milliseconds
from staging import listing
from staging.estimates.shown import shown_of
from staging.estimates.subjects import of_dataset
from staging.estimates.uploading import look_at_upload
from staging.models import Dataset, File
from staging.states import DatasetState, FileState, UploadState
from staging.uploads import address_of, may_send, renew_right

MOST_CHANGED = 200
PER_PAGE = 500
# A change is shown this long after it was made, so that none that commits late is passed over.
LAG = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SETTLING = (DatasetState.DECLARED, DatasetState.TRANSFERRING, DatasetState.FAILED)


def progress_of(dataset: Dataset, since: str, *, anew: bool = False) -> dict[str, object]:
    """Counts and bytes as the server confirmed them; rates in bytes a second, times in seconds.

    `anew`: nothing was to move since the last poll, so that time is no part of a rate.
    """
    now = db_now()
    totals = listing.totals_of(dataset)
    changed, place = _changed(dataset, now, *read_cursor(since))
    if dataset.state == DatasetState.TRANSFERRING and not dataset.fed_by:
        look_at_upload(dataset, now, totals, anew=anew)
    return {
        "state": dataset.state,
        "reason": dataset.reason,
        "files": totals.files,
        "uploaded": totals.uploaded,
        "verified": totals.verified,
        "bytes": totals.size,
        "uploaded_bytes": totals.arrived,
        **_estimate(dataset, now),
        "changed": changed,
        "cursor": _cursor(*place),
    }


def _estimate(dataset: Dataset, now: datetime) -> dict[str, float | None]:
    found = shown_of(of_dataset(dataset.code), now)
    if found is None or found.p50 is None or found.p90 is None:
        return {"rate_bps": None, "p50_s": None, "p90_s": None}
    p50, p90 = found.p50.total_seconds(), found.p90.total_seconds()
    return {"rate_bps": round(found.rate or 0), "p50_s": round(p50, 1), "p90_s": round(p90, 1)}


def _changed(
    dataset: Dataset, now: datetime, at_ms: int, last: int
) -> tuple[list[dict[str, str]], tuple[int, int]]:
    """Files that became complete after a place in the order of (time, key), and the new place."""
    at = EPOCH + timedelta(milliseconds=at_ms)
    rows = File.objects.filter(dataset=dataset).filter(
        Q(changed_at__gt=at) | Q(changed_at=at, pk__gt=last)
    )
    if dataset.state in SETTLING:
        rows = rows.filter(changed_at__lte=now - LAG)
    found = list(
        rows.order_by("changed_at", "pk").values_list("path", "state", "changed_at", "pk")[
            :MOST_CHANGED
        ]
    )
    changed = [{"path": path, "state": state} for path, state, _, _ in found]
    if not found:
        return changed, (at_ms, last)
    *_, changed_at, pk = found[-1]
    assert changed_at is not None  # noqa: S101  the filter says so
    return changed, (milliseconds(changed_at - EPOCH), pk)


def _cursor(at_ms: int, last: int) -> str:
    raw = json.dumps([at_ms, last], separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode()


def read_cursor(text: str) -> tuple[int, int]:
    """(ms, key) of a cursor; the beginning for one that is none. It is never trusted: whatever it
    says changes only what its sender is shown of a dataset that is open to them."""
    try:
        at_ms, last = json.loads(base64.urlsafe_b64decode(text.encode()))
        place = (int(at_ms), int(last))
        if not all(0 <= n < 2**53 for n in place):
            raise ValueError
        EPOCH + timedelta(milliseconds=place[0])
    except (ValueError, TypeError, OverflowError, RecursionError):
        return 0, 0
    return place


def unfinished_of(dataset: Dataset, actor: str, after: str) -> dict[str, object]:
    """A page of files that are still expected, after the key `after`, with address and offset."""
    start = int(after) if after.isascii() and after.isdigit() and len(after) < 19 else 0
    rows = (
        File.objects.filter(dataset=dataset, state=FileState.EXPECTED, pk__gt=start)
        .select_related("upload")
        .order_by("pk")[: PER_PAGE + 1]
    )
    files = list(rows)
    more, files = len(files) > PER_PAGE, files[:PER_PAGE]
    rights: dict[str, bool] = {actor: True}
    return {
        "files": [_unfinished(file, actor, rights) for file in files],
        "next": str(files[-1].pk) if more else None,
    }


def _unfinished(file: File, actor: str, rights: dict[str, bool]) -> dict[str, object]:
    upload = getattr(file, "upload", None)
    answer: dict[str, object] = {"path": file.path, "size": file.size, "modified": file.modified}
    answer |= {"offset": 0, "upload": None}
    if upload is None or upload.state != UploadState.OPEN:
        return answer  # its upload expired; declaring the file again begins another
    if upload.holder not in rights:
        rights[upload.holder] = may_send(upload)
    if not rights[upload.holder]:
        renew_right(upload, actor)
    return answer | {"offset": upload.offset, "upload": address_of(upload)}

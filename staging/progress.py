"""What the page of a running upload polls: counts, what changed, and when it may be done.

Nothing is kept on the server for it: the cursor that goes out and comes back carries the place in
the changes and the last samples of what was confirmed. Rates and times are made of those alone.
"""

import base64
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from django.db.models import Q

from portal.base.clock import db_now, milliseconds
from staging import listing
from staging.models import Dataset, File
from staging.states import DatasetState, FileState, UploadState
from staging.uploads import address_of, may_send, renew_right

MOST_CHANGED = 200
PER_PAGE = 500
SAMPLES = 30
SAMPLE_MS = 1000  # least time between two samples
KNOWN_MS = 5000  # before that, rate and time left are not known
# A change is shown this long after it was made, so that none that commits late is passed over.
LAG = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SETTLING = (DatasetState.DECLARED, DatasetState.TRANSFERRING, DatasetState.FAILED)

type Sample = tuple[int, int]  # (milliseconds since 1970, bytes confirmed)


def progress_of(dataset: Dataset, since: str, *, anew: bool = False) -> dict[str, object]:
    """Counts and bytes as the server confirmed them; rates in bytes a second, times in seconds.

    `anew`: the samples so far are of a time when nothing was to move, so they are no rate.
    """
    now = db_now()
    totals = listing.totals_of(dataset)
    at_ms, last, samples = read_cursor(since)
    samples = [] if anew else samples
    changed, place = _changed(dataset, now, at_ms, last)
    samples = _with(samples, (milliseconds(now - EPOCH), totals.arrived))
    return {
        "state": dataset.state,
        "reason": dataset.reason,
        "files": totals.files,
        "uploaded": totals.uploaded,
        "verified": totals.verified,
        "bytes": totals.size,
        "uploaded_bytes": totals.arrived,
        **estimate(samples, max(0, totals.size - totals.arrived)),
        "changed": changed,
        "cursor": _cursor(*place, samples),
    }


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


def _with(samples: list[Sample], sample: Sample) -> list[Sample]:
    """Samples with a new one; a file that is sent again begins the measurement again."""
    if samples and sample[1] < samples[-1][1]:
        return [sample]
    if samples and sample[0] - samples[-1][0] < SAMPLE_MS:
        return samples
    return [*samples, sample][-SAMPLES:]


def estimate(samples: list[Sample], left: int) -> dict[str, float | None]:
    """Rate, and the time left at the median rate and at one that nine in ten samples exceed.

    None while too little has moved to say.
    """
    unknown: dict[str, float | None] = {"rate_bps": None, "p50_s": None, "p90_s": None}
    if len(samples) < 3 or samples[-1][0] - samples[0][0] < KNOWN_MS:
        return unknown
    (first_ms, first), (last_ms, last) = samples[0], samples[-1]
    rate = (last - first) * 1000 / (last_ms - first_ms)
    if rate <= 0:
        return unknown
    steps = sorted((b2 - b1) * 1000 / (t2 - t1) for (t1, b1), (t2, b2) in pairwise(samples))
    median, slow = steps[len(steps) // 2] or rate, steps[len(steps) // 10] or rate / 2
    p50 = left / median
    return {
        "rate_bps": round(rate),
        "p50_s": round(p50, 1),
        "p90_s": round(max(p50, left / min(slow, median)), 1),
    }


def measure(since: str, arrived: int, left: int) -> tuple[dict[str, float | None], str]:
    """`estimate` of bytes that are counted elsewhere, and the cursor that the next poll sends."""
    _, _, samples = read_cursor(since)
    samples = _with(samples, (milliseconds(db_now() - EPOCH), arrived))
    return estimate(samples, left), _cursor(0, 0, samples)


def _cursor(at_ms: int, last: int, samples: list[Sample]) -> str:
    raw = json.dumps([at_ms, last, samples], separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode()


def read_cursor(text: str) -> tuple[int, int, list[Sample]]:
    """(ms, key, samples) of a cursor; the beginning for one that is none. It is never trusted:
    whatever it says changes only what its sender is shown of a dataset that is open to them."""
    try:
        at_ms, last, samples = json.loads(base64.urlsafe_b64decode(text.encode()))
        pairs = [(int(ms), int(count)) for ms, count in samples][-SAMPLES:]
        place = (int(at_ms), int(last))
        rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(pairs))
        if not rising or not all(0 <= n < 2**53 for n in (*place, *(n for p in pairs for n in p))):
            raise ValueError
        EPOCH + timedelta(milliseconds=place[0])
    except (ValueError, TypeError, OverflowError, RecursionError):
        return 0, 0, []
    return *place, pairs


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

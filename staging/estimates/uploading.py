"""Counts of uploads for the estimates. A browser does not say whether it goes on sending, so what
has not moved for a while was paused, and is looked at less often."""

import time
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Max

from portal.base.commits import light_statement
from staging import listing
from staging.estimates import notes
from staging.estimates.models import LinkKind, Transfer
from staging.estimates.notes import Count, Way
from staging.estimates.subjects import DATASET, codes_of, of_dataset
from staging.listing import Totals
from staging.models import Dataset
from staging.states import DatasetKind, DatasetState

IDLE_S = 15.0
LEAST_S, MOST_S = 2.0, 60.0  # between two looks at a dataset
DUTY = 20  # the time between two looks is at least so many times what one takes
SENT = (DatasetState.VERIFYING, DatasetState.STAGED)


def look(now: datetime, going: list[Transfer]) -> None:
    """All datasets that are filled by uploads, and those that were when it was looked last."""
    known = {transfer.subject: transfer for transfer in going}
    codes = codes_of(DATASET, list(known))
    rows = Dataset.objects.filter(fed_by="").exclude(kind=DatasetKind.OUTPUT)
    rows = rows.filter(state=DatasetState.TRANSFERRING) | rows.filter(code__in=codes)
    for dataset in rows.select_related("team"):
        transfer = known.get(of_dataset(dataset.code))
        if dataset.state != DatasetState.TRANSFERRING:
            if transfer is not None:
                _end(dataset, transfer, now)
        elif transfer is None or transfer.next_look_at <= now:
            look_at_upload(dataset, now)


def look_at_upload(
    dataset: Dataset, now: datetime, totals: Totals | None = None, *, anew: bool = False
) -> None:
    """Take the counts of one dataset; `totals` where somebody has just counted. `anew`: its sender
    says that nothing was to move since it was counted last."""
    began = time.monotonic()
    totals = totals or listing.totals_of(dataset)
    if not totals.files:
        return
    transfer = notes.observe(replace(count_of(dataset, totals), anew=anew), now)
    if transfer is not None and transfer.seen_at == now:  # not left out, so soon after another
        still = (now - transfer.moved_at).total_seconds() / 4
        took = (time.monotonic() - began) * DUTY
        wait = timedelta(seconds=min(MOST_S, max(LEAST_S, still, took)))
        with light_statement():
            Transfer.objects.filter(pk=transfer.pk).update(next_look_at=now + wait)


def count_of(dataset: Dataset, totals: Totals) -> Count:
    return Count(
        subject=of_dataset(dataset.code),
        way=Way(LinkKind.UPLOAD, dataset.team.code, notes.store_name()),
        files=totals.files,
        bytes=totals.size,
        files_done=totals.uploaded,
        bytes_done=totals.arrived,
        idle_s=IDLE_S,
    )


def _end(dataset: Dataset, transfer: Transfer, now: datetime) -> None:
    complete = dataset.state in SENT
    last = dataset.files.aggregate(at=Max("changed_at"))["at"] if complete else None
    notes.end(transfer, at=max(last or now, transfer.began_at), complete=complete)

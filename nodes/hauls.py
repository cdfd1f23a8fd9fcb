"""Counts of what moves between store and nodes, for the estimates: data and output of leases."""

from datetime import datetime

from django.db.models import Count as Number
from django.db.models import Q, Sum

from nodes.manifest import lease_totals
from nodes.models import Lease
from nodes.states import LeaseState
from staging.estimates import notes
from staging.estimates.models import LinkKind, Transfer
from staging.estimates.notes import Count, Way
from staging.estimates.subjects import FETCH, OUTPUT, codes_of, of_fetch, of_output
from staging.models import File, Upload
from staging.states import FileState, UploadState


def look(now: datetime, going: list[Transfer]) -> None:
    """Leases whose data is on its way to their node, and those whose output comes back."""
    known = {transfer.subject: transfer for transfer in going}
    _look_at_data(now, known)
    _look_at_output(now, known)


def _leases(wanted: Q) -> list[Lease]:
    return list(Lease.objects.select_related("node", "shard__job__code_dataset").filter(wanted))


def _look_at_data(now: datetime, known: dict[str, Transfer]) -> None:
    on_the_way = _leases(Q(state=LeaseState.PLACED))
    for lease in on_the_way:
        _fetches(lease, now)
    there = set(codes_of(FETCH, list(known))) - {lease.code for lease in on_the_way}
    for lease in _leases(Q(code__in=there)):
        transfer = known[of_fetch(lease.code)]
        free = max(0, lease.fetched_bytes - lease.moved_bytes)
        at = max(lease.ready_at or now, transfer.began_at)
        notes.end(transfer, at=at, complete=lease.ready_at is not None, bytes_free=free)


def _fetches(lease: Lease, now: datetime) -> None:
    files, size = lease_totals(lease)
    if not files:
        return
    count = Count(
        subject=of_fetch(lease.code),
        way=Way(LinkKind.FETCH, notes.store_name(), lease.node.code),
        files=files,
        bytes=size,
        files_done=lease.fetched_files,
        bytes_done=lease.fetched_bytes,
        bytes_free=max(0, lease.fetched_bytes - lease.moved_bytes),
    )
    notes.observe(count, now)


def _look_at_output(now: datetime, known: dict[str, Transfer]) -> None:
    returning = Q(state=LeaseState.RETURNING) | Q(pk__in=Lease.objects.delivering().values("pk"))
    on_the_way = _leases(returning & Q(output_verified_at=None))
    for lease in on_the_way:
        _returns(lease, now)
    there = set(codes_of(OUTPUT, list(known))) - {lease.code for lease in on_the_way}
    for lease in _leases(Q(code__in=there)):
        transfer = known[of_output(lease.code)]
        at = max(lease.output_verified_at or now, transfer.began_at)
        notes.end(transfer, at=at, complete=lease.output_verified_at is not None)


def _returns(lease: Lease, now: datetime) -> None:
    """The files that the lease has declared so far; more may follow."""
    there = ~Q(state=FileState.EXPECTED)
    mine = File.objects.filter(dataset=lease.shard.job.output_id, source=lease.code)
    sums = mine.aggregate(
        files=Number("pk"),
        here=Number("pk", filter=there),
        whole=Sum("size", filter=there, default=0),
        size=Sum("size", default=0),
    )
    if not sums["files"]:
        return
    parts = Upload.objects.filter(file__in=mine, state=UploadState.OPEN)
    count = Count(
        subject=of_output(lease.code),
        way=Way(LinkKind.OUTPUT, lease.node.code, notes.store_name()),
        files=sums["files"],
        bytes=sums["size"],
        files_done=sums["here"],
        bytes_done=sums["whole"] + parts.aggregate(n=Sum("offset", default=0))["n"],
    )
    notes.observe(count, now)

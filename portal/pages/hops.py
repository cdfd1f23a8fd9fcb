"""What of a job is on its way between the store and nodes: data of pieces, and their output."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from jobs.models import Job
from nodes.models import Lease
from nodes.states import LeaseState
from portal.pages.attempts import of_job
from staging.estimates.shown import Shown, all_shown
from staging.estimates.subjects import of_fetch, of_output

MOST = 5


@dataclass(frozen=True)
class Hop:
    """One transfer: what it is of, and in words how far it is and when it will be there."""

    what: str
    words: str


def hops_of(job: Job, at: datetime) -> list[Hop]:
    """At most MOST of them, the data first; in two queries however many pieces there are."""
    placed = Q(state=LeaseState.PLACED)
    comes = Q(state=LeaseState.RETURNING) | Q(state=LeaseState.RELEASED, ledger=None)
    rows = of_job(job).filter(placed | comes, output_verified_at=None)
    rows = rows.select_related("node", "shard").order_by("state", "shard__index")[: MOST * 4]
    leases = list(rows)
    going = all_shown([_subject(lease) for lease in leases], at) if leases else {}
    found = [_hop(job, lease, going.get(_subject(lease))) for lease in leases]
    return [hop for hop in found if hop][:MOST]


def _subject(lease: Lease) -> str:
    fetches = lease.state == LeaseState.PLACED
    return of_fetch(lease.code) if fetches else of_output(lease.code)


def _hop(job: Job, lease: Lease, going: Shown | None) -> Hop | None:
    if going is None:
        return None
    fetches = lease.state == LeaseState.PLACED
    piece = f" of piece {lease.shard.index}" if job.shard_count > 1 else ""
    way = f"to node {lease.node.name}" if fetches else f"from node {lease.node.name}"
    return Hop(f"{'Data' if fetches else 'Output'}{piece} {way}", f"{going.amount}: {going.pace}")

"""Held time of jobs for the list of jobs: the ledger's sums and what is not in it yet."""

from collections import Counter

from django.db.models import Sum

from jobs.models import Job
from nodes.meter import slices
from nodes.models import Lease, LedgerRow
from portal.base.clock import db_now


def held_by_job(jobs: list[Job]) -> dict[int, int]:
    """Milliseconds by the job's primary key; two queries for any number of jobs."""
    at, total = db_now(), Counter[int]()
    rows = LedgerRow.objects.filter(lease__shard__job__in=jobs).order_by()
    for row in rows.values("lease__shard__job").annotate(held=Sum("held_ms")):
        total[row["lease__shard__job"]] += row["held"]
    rest = Lease.objects.unsettled().filter(shard__job__in=jobs)
    for lease in rest.select_related("shard"):
        total[lease.shard.job_id] += slices(lease, at).held_ms
    return dict(total)

"""What the database itself refuses, whatever the code above it does."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from nodes.models import Gpu, Lease, LeaseGpu, LedgerRow
from portal.base.clock import db_now
from portal.base.errors import DomainError
from tests.factories import make_job, make_node

pytestmark = [pytest.mark.django_db, pytest.mark.db]


@pytest.fixture
def node():
    return make_node(gpus=1)


@pytest.fixture
def job(team):
    return make_job(team)


def make_lease(job, node, **fields) -> Lease:
    now = db_now()
    values = {
        "epoch": 1,
        "number": 1,
        "gpu_count": 1,
        "cpus": 1,
        "memory_bytes": 1,
        "disk_bytes": 1,
        "time_limit": timedelta(hours=1),
        "output_window": timedelta(minutes=2),
        "placed_at": now,
    } | fields
    return Lease.objects.create(shard=job.shards.get(), node=node, **values)


def refused(act) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        act()


def test_one_live_lease_per_shard(job, node):
    first = make_lease(job, node)
    refused(lambda: make_lease(job, node, number=2))
    Lease.objects.filter(pk=first.pk).update(state="void", ended_at=db_now())
    assert make_lease(job, node, number=2).token == "1.2"
    refused(lambda: make_lease(job, node, number=2, state="void", ended_at=db_now()))


def test_a_gpu_has_one_holder(job, node, team):
    gpu = Gpu.objects.get()
    now = db_now()
    first = LeaseGpu.objects.create(lease=make_lease(job, node), gpu=gpu, since=now)
    other = make_lease(make_job(team), node)
    refused(lambda: LeaseGpu.objects.create(lease=other, gpu=gpu, since=now))
    refused(lambda: LeaseGpu.objects.filter(pk=first.pk).update(until=now - timedelta(seconds=1)))
    LeaseGpu.objects.filter(pk=first.pk).update(until=now)
    LeaseGpu.objects.create(lease=other, gpu=gpu, since=now)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "gone"},
        {"state": "released"},  # ended_at is missing
        {"state": "running"},  # it was never allocated
        {"state": "placed", "ended_at": db_now},
    ],
)
def test_a_lease_is_in_one_of_its_states(job, node, fields):
    values = {k: v() if callable(v) else v for k, v in fields.items()}
    refused(lambda: make_lease(job, node, **values))


STEPS = [
    "placed_at",
    "ready_at",
    "granted_at",
    "allocated_at",
    "running_at",
    "returning_at",
    "releasing_at",
    "released_at",
]


@pytest.mark.parametrize("later", range(1, len(STEPS)))
def test_no_step_lies_before_the_one_before_it(job, node, later):
    lease = make_lease(job, node)
    at = lease.placed_at
    Lease.objects.filter(pk=lease.pk).update(**dict.fromkeys(STEPS[:later], at))
    early = at - timedelta(milliseconds=1)
    refused(lambda: Lease.objects.filter(pk=lease.pk).update(**{STEPS[later]: early}))


def ledger(lease, **fields) -> LedgerRow:
    values = {
        "gpus": 1,
        "allocated_at": lease.placed_at,
        "ended_at": lease.placed_at,
        "launch_ms": 1,
        "run_ms": 2,
        "output_ms": 3,
        "release_ms": 4,
        "held_ms": 10,
        "counted_ms": 10,
        "created_at": lease.placed_at,
    } | fields
    return LedgerRow.objects.create(lease=lease, **values)


@pytest.mark.parametrize(
    "fields",
    [
        {"held_ms": 11, "counted_ms": 1},
        {"launch_ms": -1, "held_ms": 8, "counted_ms": 8},
        {"counted_ms": 11},
        {"counted_ms": -1},
    ],
)
def test_slices_add_up_and_nothing_is_negative(job, node, fields):
    lease = make_lease(job, node)
    refused(lambda: ledger(lease, **fields))


def test_one_ledger_row_per_lease_and_it_never_changes(job, node):
    lease = make_lease(job, node)
    row = ledger(lease)
    refused(lambda: ledger(lease))
    row.run_ms = 1
    with pytest.raises(DomainError):
        row.save()
    with pytest.raises(DomainError):
        row.delete()
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        LedgerRow.objects.filter(pk=row.pk).update(counted_ms=0)


def test_a_job_or_shard_has_an_outcome_exactly_when_it_has_ended(job):
    shards = job.shards
    refused(lambda: shards.update(state="ended"))
    refused(lambda: shards.update(outcome="succeeded"))
    refused(lambda: type(job).objects.filter(pk=job.pk).update(state="ended"))
    refused(lambda: type(job).objects.filter(pk=job.pk).update(outcome="failed"))
    shards.update(state="ended", outcome="failed", ended_at=db_now())


def test_what_is_held_is_not_deleted(job):
    output = job.output
    type(output).objects.filter(pk=output.pk).update(holds=1)
    refused(lambda: type(output).objects.filter(pk=output.pk).update(state="expiring"))


def test_capacity_never_goes_below_nothing(node):
    refused(lambda: type(node).objects.filter(pk=node.pk).update(reserved_disk_bytes=-1))

"""Two at once: what the second one finds when the first has not committed yet.

On PostgreSQL a read shows the rows as they were before; each test holds one transaction open,
starts the other act, and commits. SQLite lets only one writer in, so there is nothing to see.
"""

import contextlib
import hashlib
from collections.abc import Callable

import pytest
from django.db import OperationalError, transaction

from jobs import services as jobs
from jobs.models import Job, Shard
from nodes import doubt, fleet, leases, results, returns
from nodes.errors import LeaseInDoubt, StaleLease
from nodes.models import Lease, LeaseGpu, LedgerRow, Node
from nodes.release import release
from nodes.report import Report
from nodes.states import LeaseState
from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from staging import services as staging
from staging.models import Dataset, Upload
from tests.factories import make_dataset, make_job, make_node
from tests.nodes.agent_model import ModelAgent, ModelLease
from tests.races import begin, join, together, wait_blocked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]


def meanwhile(first: Callable[[], object], second: Callable[[], object]) -> Exception | None:
    """`second` begins while `first` has not committed; the error that it ended with."""
    error = next(iter(together(first, second)), None)
    assert error is None or isinstance(error, DomainError), error
    return error


def running(job: Job, node: Node) -> Lease:
    """A lease of the job's first piece whose work runs, as its agent's polls would make it."""
    at = db_now()
    shard = job.shards.filter(state="queued").first()
    node.refresh_from_db()
    lease = leases.place(shard=shard, node=node, disk_bytes=1, at=at)
    held = LeaseGpu.objects.filter(until=None).values("gpu")
    gpus = list(node.gpus.exclude(pk__in=held).values_list("uuid", flat=True))
    Lease.objects.filter(pk=lease.pk).update(
        state="ready", ready_at=at, cleared_gpus=gpus[: lease.gpu_count]
    )
    lease.refresh_from_db()
    assert leases.grant(lease=lease, at=at)
    Lease.objects.filter(pk=lease.pk).update(state="running", allocated_at=at, running_at=at)
    return Lease.objects.select_related("node", "shard__job__output").get(pk=lease.pk)


RELEASED = Report(
    phase="released",
    ages={},
    output="pending",
    evidence={"processes": "none", "scratch": "wiped", "gpus": {}},
)


def releasing(lease: Lease) -> Lease:
    at = db_now()
    Lease.objects.filter(pk=lease.pk).update(
        state="releasing", returning_at=at, releasing_at=at, exit_code=0, work_reason="exited"
    )
    return Lease.objects.get(pk=lease.pk)


def test_output_accepted_after_the_lease_was_read_ends_the_piece(team):
    job = make_job(team)
    lease = releasing(running(job, make_node(gpus=1)))
    results.accept_output(lease=Lease.objects.get(pk=lease.pk), files=0, byte_count=0, at=db_now())
    release(lease=lease, report=RELEASED, released_at=db_now(), at=db_now())
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "succeeded")


def test_output_accepted_while_its_lease_is_released_ends_the_piece(team, two_writers):
    job = make_job(team)
    lease = releasing(running(job, make_node(gpus=1)))
    other = Lease.objects.get(pk=lease.pk)
    meanwhile(
        lambda: results.accept_output(lease=other, files=0, byte_count=0, at=db_now()),
        lambda: release(lease=lease, report=RELEASED, released_at=db_now(), at=db_now()),
    )
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "succeeded")


def test_a_piece_requeued_while_its_job_is_cancelled_ends(team, two_writers):
    job = make_job(team)
    lease = running(job, make_node(gpus=1))
    meanwhile(
        lambda: jobs.cancel(job=job, actor="owner"),
        lambda: leases.lose(lease=lease, at=db_now()),
    )
    assert lease.shard.job.shards.get().state == "ended"
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "cancelled")


def test_the_last_two_pieces_end_at_once(team, two_writers):
    job = make_job(team, shards=2)
    node = make_node(gpus=2)
    one, other = running(job, node), running(job, node)

    def end(lease: Lease) -> None:
        jobs.end_shard(shard=lease.shard, outcome="succeeded", reason="", at=db_now())

    assert meanwhile(lambda: end(one), lambda: end(other)) is None
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "succeeded")


def test_a_node_that_is_given_a_lease_is_not_retired(team, two_writers):
    node = make_node(gpus=1)
    job = make_job(team)
    other = Node.objects.get(pk=node.pk)
    error = meanwhile(lambda: running(job, node), lambda: fleet.retire(node=other, actor="op"))
    node.refresh_from_db()
    assert isinstance(error, Conflict)
    assert node.state == "online"


def test_a_draft_that_is_submitted_is_not_deleted(team, two_writers):
    make_node(gpus=1)
    job = make_job(team, state="draft", submitted_at=None, queued_at=None, output=None)
    job.shards.all().delete()
    other = Job.objects.get(pk=job.pk)
    error = meanwhile(
        lambda: jobs.submit(job=job, actor="owner"),
        lambda: jobs.delete_draft(job=other, actor="mate"),
    )
    assert isinstance(error, Conflict)
    assert Job.objects.get(pk=job.pk).state == "queued"


def test_two_jobs_that_end_at_once_let_go_of_what_they_share_in_one_order(team, two_writers):
    """One reads X and Y, the other Y and X. Both wait for X here; in the order of their own
    inputs the second would hold Y by now, which the first needs next."""
    x, y = make_dataset(team, name="X"), make_dataset(team, name="Y")
    both = []
    for order in ((x, y), (y, x)):
        job = make_job(team)
        for dataset in order:
            job.inputs.create(dataset=dataset, mount=dataset.name)
            staging.hold(dataset=dataset, holder=job.code, label="reads it", at=db_now())
        both.append(job)

    def end(job: Job) -> None:
        jobs.end_shard(shard=job.shards.get(), outcome="succeeded", reason="", at=db_now())

    errors = together(
        lambda: Dataset.objects.filter(pk=x.pk).update(reason=""),
        *(lambda job=job: end(job) for job in both),
    )
    assert errors == []
    assert set(Job.objects.values_list("state", flat=True)) == {"ended"}
    assert set(Dataset.objects.filter(pk__in=[x.pk, y.pk]).values_list("holds", flat=True)) == {0}


def test_a_cancel_that_meets_a_release_head_on_is_tried_again(team, two_writers):
    """A release writes its node and then the job; a cancel the job and then the node."""
    job, node = make_job(team, shards=2), make_node(gpus=2)
    running(job, node)
    shard = job.shards.get(state="queued")
    node.refresh_from_db()
    leases.place(shard=shard, node=node, disk_bytes=1, at=db_now())

    caught: list[Exception] = []
    # PostgreSQL may choose either; an agent asks again.
    with contextlib.suppress(OperationalError), transaction.atomic():
        Node.objects.filter(pk=node.pk).update(reason="")
        cancelling = begin(lambda: jobs.cancel(job=job, actor="o"), caught)
        wait_blocked([cancelling])
        jobs.claim(job=Job.objects.get(pk=job.pk))
    join(cancelling)
    assert caught == []
    job.refresh_from_db()
    assert job.cancel_asked_by == "o"
    assert Lease.objects.filter(state="void").count() == 1


FILE = {"path": "a.txt", "size": 3, "digest": "a" * 64}


def test_an_attempt_that_is_lost_lists_no_output_any_more(team):
    job = make_job(team)
    lease = running(job, make_node(gpus=1))
    leases.declare_forgotten(lease=Lease.objects.get(pk=lease.pk), at=db_now())
    with pytest.raises(StaleLease):
        returns.declare_output(lease=lease, files=[FILE])
    with pytest.raises(StaleLease):
        results.accept_output(lease=lease, files=0, byte_count=0, at=db_now())
    assert not job.output.files.exists()


def test_an_attempt_in_doubt_is_asked_to_wait_and_keeps_what_it_has_listed(team):
    job = make_job(team)
    lease = running(job, make_node(gpus=1))
    returns.declare_output(lease=lease, files=[FILE])
    leases.lose(lease=Lease.objects.get(pk=lease.pk), at=db_now())
    with pytest.raises(LeaseInDoubt):
        returns.declare_output(lease=lease, files=[FILE])
    with pytest.raises(LeaseInDoubt):
        results.accept_output(lease=lease, files=0, byte_count=0, at=db_now())
    assert job.output.files.count() == 1


def test_output_listed_while_the_lease_is_lost_is_dropped(team, two_writers):
    for order in (0, 1):
        job = make_job(team)
        lease = running(job, make_node(f"n{order}", gpus=1))
        other = Lease.objects.get(pk=lease.pk)
        acts = [
            lambda lease=other: leases.declare_forgotten(lease=lease, at=db_now()),
            lambda lease=lease: returns.declare_output(lease=lease, files=[FILE]),
        ]
        meanwhile(acts[order], acts[1 - order])
        assert Lease.objects.get(pk=lease.pk).state == LeaseState.LOST
        assert not job.output.files.exists()


def test_output_that_is_declared_anew_as_it_is_accepted_is_not_complete(team, two_writers):
    """What was compared is what is accepted: a late declaration may not replace a file between."""
    job = make_job(team)
    lease = running(job, make_node(gpus=1))
    content = b"0123456789"
    digest = hashlib.sha256(content).hexdigest()
    file = {"path": "a", "size": len(content), "digest": digest}
    returns.declare_output(lease=lease, files=[file])
    upload = Upload.objects.get()
    staging.receive(upload=upload, offset=0, pieces=[content])
    other = Lease.objects.select_related("node", "shard__job__output").get(pk=lease.pk)
    row = job.output.files.get()
    manifest = staging.manifest_digest([(digest, len(content), False, "a")])
    assert (row.state, row.digest) == ("uploaded", digest)
    error = meanwhile(
        lambda: returns.declare_output(lease=lease, files=[file | {"digest": "0" * 64}]),
        lambda: returns.complete_output(
            lease=other, files=1, byte_count=len(content), manifest_digest=manifest
        ),
    )
    assert isinstance(error, returns.OutputIncomplete)
    lease.refresh_from_db()
    assert lease.output_verified_at is None


# A node that was silent comes back while something else happens to its piece


def returning_node(team) -> tuple[Job, Lease, ModelAgent]:
    """A job whose only attempt was lost by silence, and the node that still runs it."""
    job = make_job(team)
    lease = running(job, make_node("n1", gpus=1))
    leases.lose(lease=lease, at=db_now())
    return job, lease, agent_of(lease)


def agent_of(lease: Lease) -> ModelAgent:
    there = ModelLease(lease.code, lease.token, phase="running", reached={"allocated", "running"})
    agent = ModelAgent(lease.node, 1)
    agent.leases[lease.code] = there
    return agent


def second(job: Job) -> Lease:
    return running(job, make_node("n2", gpus=1))


def outcome(first: Lease, other: Lease | None = None) -> tuple:
    rows = [Lease.objects.get(pk=lease.pk) for lease in (first, other) if lease]
    assert first.shard.leases.live().count() <= 1
    return tuple((row.state, row.in_doubt) for row in rows)


def both_orders(first: Callable[[], object], other: Callable[[], object], order: int) -> None:
    acts = [first, other]
    meanwhile(acts[order], acts[1 - order])


@pytest.mark.parametrize("order", [0, 1])
def test_a_node_returns_while_the_other_attempts_output_is_accepted(team, two_writers, order):
    job, lease, agent = returning_node(team)
    other = releasing(second(job))
    both_orders(
        agent.poll,
        lambda: results.accept_output(lease=other, files=0, byte_count=0, at=db_now()),
        order,
    )
    assert outcome(lease, other) == (("lost", False), ("releasing", False))
    assert LedgerRow.objects.get().uncounted_reason == "fenced"


@pytest.mark.parametrize("order", [0, 1])
def test_a_node_returns_while_the_other_is_found_silent(team, two_writers, order):
    job, lease, agent = returning_node(team)
    other = second(job)
    both_orders(
        agent.poll, lambda: leases.lose(lease=Lease.objects.get(pk=other.pk), at=db_now()), order
    )
    assert outcome(lease) == (("running", False),)
    assert Lease.objects.get(pk=other.pk).state == "lost"
    assert Shard.objects.get().state == "active"


@pytest.mark.parametrize("order", [0, 1])
def test_two_silent_nodes_return_at_once(team, two_writers, order):
    job, lease, agent = returning_node(team)
    other = second(job)
    leases.lose(lease=other, at=db_now())
    both_orders(agent.poll, agent_of(other).poll, order)
    assert outcome(lease, other) == (("running", False), ("lost", False))
    assert LedgerRow.objects.get().uncounted_reason == "fenced"
    assert Shard.objects.get().faults <= 1


@pytest.mark.parametrize("order", [0, 1])
def test_a_node_returns_while_its_job_is_cancelled(team, two_writers, order):
    job, lease, agent = returning_node(team)
    both_orders(agent.poll, lambda: jobs.cancel(job=job, actor="owner"), order)
    job.refresh_from_db()
    if order == 0:
        assert outcome(lease) == (("running", False),)
        assert (job.state, job.cancel_asked_by) == ("active", "owner")
    else:
        assert outcome(lease) == (("lost", False),)
        assert (job.state, job.outcome) == ("ended", "cancelled")
        assert LedgerRow.objects.count() == 1


def placed(job: Job, node: Node) -> Lease:
    node.refresh_from_db()
    return leases.place(shard=job.shards.get(), node=node, disk_bytes=1, at=db_now())


@pytest.mark.parametrize("order", [0, 1])
def test_a_node_returns_while_its_piece_is_placed_elsewhere(team, two_writers, order):
    job, lease, agent = returning_node(team)
    node = make_node("n2", gpus=1)
    both_orders(agent.poll, lambda: placed(job, node), order)
    assert outcome(lease) == (("running", False),)
    elsewhere = Lease.objects.exclude(pk=lease.pk).values_list("state", flat=True)
    assert list(elsewhere) == ([] if order == 0 else ["void"])


@pytest.mark.parametrize("order", [0, 1])
def test_a_node_returns_while_the_other_attempt_is_granted(team, two_writers, order):
    job, lease, agent = returning_node(team)
    other = placed(job, make_node("n2", gpus=1))
    Lease.objects.filter(pk=other.pk).update(
        state="ready", ready_at=db_now(), cleared_gpus=["GPU-n2-0"]
    )
    other.refresh_from_db()
    there = ModelAgent(other.node, 1)
    there.leases[other.code] = ModelLease(other.code, other.token, phase="ready", reached={"ready"})
    both_orders(agent.poll, there.poll, order)
    assert outcome(lease, other) == (("running", False), ("void", False))
    assert Shard.objects.get().state == "active"


@pytest.mark.parametrize("order", [0, 1])
def test_output_arrives_while_its_node_is_found_silent(team, two_writers, order):
    job = make_job(team)
    lease = releasing(running(job, make_node(gpus=1)))
    release(lease=lease, report=RELEASED, released_at=db_now(), at=db_now())
    lease = Lease.objects.get(pk=lease.pk)
    other = Lease.objects.get(pk=lease.pk)
    both_orders(
        lambda: results.accept_output(lease=lease, files=0, byte_count=0, at=db_now()),
        lambda: doubt.give_up_output(lease=other, reason="silent", at=db_now()),
        order,
    )
    job.refresh_from_db()
    if order == 0:
        assert (job.outcome, LedgerRow.objects.get().uncounted_reason) == ("succeeded", "")
    else:
        assert outcome(lease) == (("released", True),)
        assert Shard.objects.get().state == "queued"
        assert not LedgerRow.objects.exists()

"""Every order of events over job, shard and lease, with duplicates, losses and late messages."""

from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from jobs import services as jobs
from jobs.models import Job, JobRecord, Shard
from nodes import fleet, scheduler, watch
from nodes.meter import slices
from nodes.models import Installation, Lease, LeaseGpu, LedgerRow, Node
from nodes.states import HOLDING, METERED, TERMINAL
from portal.base.clock import db_now, milliseconds
from portal.base.errors import DomainError
from portal.teams.models import Team
from tests.factories import make_job, make_node
from tests.nodes.agent_model import STEPS, ModelAgent, node_ms, time_passes

GPUS = {"n1": 2, "n2": 1}
ORDER = [
    "placed_at",
    "ready_at",
    "granted_at",
    "allocated_at",
    "running_at",
    "returning_at",
    "releasing_at",
    "released_at",
]


class Portal(RuleBasedStateMachine):
    """Two nodes, two jobs (one with a finish step), everything that can happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        team = Team.objects.create(name="Machine")
        self.jobs = [
            make_job(team, shards=3, name="plain", parallel=2),
            make_job(team, shards=2, name="with finish", finish_command="true", gpus=1),
        ]
        finished = self.jobs[1]
        Shard.objects.create(job=finished, index=0, kind="finish", queued_at=db_now())
        self.agents = {
            name: ModelAgent(make_node(name, gpus=count, code=name), count)
            for name, count in GPUS.items()
        }
        self.old: list[tuple[str, dict]] = []
        self.outcomes: dict[int, str] = {}
        self.ledger: dict[int, tuple] = {}
        self.number = 0
        self.silent: set[str] = set()  # nodes that nobody hears; their work goes on

    def teardown(self) -> None:
        try:
            self._all_ends_well()
        finally:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    # What can happen

    @rule()
    def scheduling_pass(self) -> None:
        scheduler.run_pass()

    @rule(rounds=st.integers(1, 5), exit_code=st.sampled_from([0, 0, 0, 3]))
    def a_while_without_trouble(self, rounds: int, exit_code: int) -> None:
        """Gets examples into the later states, where the other rules then happen."""
        for _ in range(rounds):
            scheduler.run_pass()
            for name, agent in self.agents.items():
                self._poll(name)
                for lease in list(agent.leases.values()):
                    self._advance(agent, lease, exit_code)

    @rule()
    def look_at_time(self) -> None:
        watch.watch()

    @rule(name=st.sampled_from(sorted(GPUS)), age=st.sampled_from([None, 0, 10**7]))
    def poll(self, name: str, age: int | None) -> None:
        body = self.agents[name].body(age)
        if name not in self.silent:
            self.old.append((name, body))
        self._poll(name, body)

    @rule(name=st.sampled_from(sorted(GPUS)))
    def poll_whose_answer_is_lost(self, name: str) -> None:
        self._poll(name, heed=False)

    @rule(
        name=st.sampled_from(sorted(GPUS)),
        late_s=st.integers(1, 1800),
        steps=st.integers(0, 2),
    )
    def poll_that_waits_for_the_portal(self, name: str, late_s: int, steps: int) -> None:
        """It was made `late_s` before it is received; meanwhile the node's work goes on."""
        agent = self.agents[name]
        body = agent.body()
        time_passes(timedelta(seconds=late_s) / 2)
        for _ in range(steps):
            self.work_goes_on(name, 0)
        time_passes(timedelta(seconds=late_s) / 2)
        self._poll(name, body)

    @rule(seconds=st.integers(1, 3600))
    def time_goes_by(self, seconds: int) -> None:
        time_passes(timedelta(seconds=seconds))

    @rule(number=st.integers(0, 99))
    def late_duplicate(self, number: int) -> None:
        if self.old:
            name, body = self.old[number % len(self.old)]
            before = list(Lease.objects.order_by("pk").values())
            with pytest.raises(DomainError):
                self.agents[name].poll(body)
            assert list(Lease.objects.order_by("pk").values()) == before

    @rule(number=st.integers(0, 99))
    def machine_speaks_from_an_old_copy_of_its_disk(self, number: int) -> None:
        if self.old:
            name, body = self.old[number % len(self.old)]
            fresh = self.agents[name].body()
            self._poll(name, fresh | {"leases": body["leases"]}, heed=False)

    @rule(name=st.sampled_from(sorted(GPUS)), exit_code=st.sampled_from([0, 0, 3]))
    def work_goes_on(self, name: str, exit_code: int) -> None:
        agent = self.agents[name]
        for lease in list(agent.leases.values()):
            self._advance(agent, lease, exit_code)

    @rule(name=st.sampled_from(sorted(GPUS)), number=st.integers(0, 5))
    def one_lease_goes_on(self, name: str, number: int) -> None:
        leases = list(self.agents[name].leases.values())
        if leases:
            self._advance(self.agents[name], leases[number % len(leases)], 0)

    @rule(name=st.sampled_from(sorted(GPUS)), number=st.integers(0, 5))
    def node_fault(self, name: str, number: int) -> None:
        leases = list(self.agents[name].leases.values())
        if leases:
            self.agents[name].fail(leases[number % len(leases)])

    @rule(name=st.sampled_from(sorted(GPUS)))
    def agent_restarts(self, name: str) -> None:
        self.number += 1
        self.agents[name].instance = f"{self.number:016x}"

    @rule(name=st.sampled_from(sorted(GPUS)))
    def machine_loses_its_disk(self, name: str) -> None:
        self.agents[name].leases.clear()

    @rule(name=st.sampled_from(sorted(GPUS)))
    def output_is_sealed(self, name: str) -> None:
        """The store is away: the compute is released, the output stays on the node."""
        for lease in self.agents[name].leases.values():
            if lease.phase == "running":
                lease.exit = {"code": 0, "signal": None, "reason": "exited"}
                lease.output = "sealed"
                for phase in ("returning", "releasing", "released"):
                    lease.go(phase)
                lease.evidence = self.agents[name].evidence(lease)

    @rule(name=st.sampled_from(sorted(GPUS)), deaf=st.booleans())
    def node_falls_silent(self, name: str, deaf: bool) -> None:
        """Past the limit; a deaf one stays silent until it returns, and its work goes on."""
        if deaf:
            self.silent.add(name)
        long_ago = db_now() - timedelta(hours=1)
        Node.objects.filter(name=name).update(last_seen_at=long_ago)
        Installation.objects.update(up_since=long_ago, watched_at=db_now())
        watch.watch()

    @rule(name=st.sampled_from(sorted(GPUS)), rounds=st.integers(0, 4), sealed=st.booleans())
    def a_node_is_silent_for_a_while(self, name: str, rounds: int, sealed: bool) -> None:
        """Work is under way there; the others, and what runs there, go on meanwhile."""
        self.a_while_without_trouble(3, 0)
        self.node_falls_silent(name, deaf=True)
        self.one_attempt_of_each_piece_counts()
        if sealed:
            self.output_is_sealed(name)
        self.a_while_without_trouble(rounds, 0)
        self.one_attempt_of_each_piece_counts()
        self.silent_nodes_return()

    @rule()
    def silent_nodes_return(self) -> None:
        for name in sorted(self.silent):
            self.silent.remove(name)
            self._poll(name)

    @rule(number=st.integers(0, 1), really=st.sampled_from([False, False, True]))
    def cancel(self, number: int, really: bool) -> None:
        if really:
            self._try(lambda: jobs.cancel(job=self._fresh(self.jobs[number]), actor="owner"))

    @rule(name=st.sampled_from(sorted(GPUS)), verb=st.sampled_from(["drain", "resume"]))
    def operator(self, name: str, verb: str) -> None:
        node = Node.objects.get(name=name)
        self._try(lambda: getattr(fleet, verb)(node=node, actor="operator"))

    # What must hold after each of them

    @invariant()
    def meter_is_derived_and_adds_up(self) -> None:
        for lease in Lease.objects.all():
            steps = [getattr(lease, name) for name in ORDER if getattr(lease, name)]
            assert steps == sorted(steps)
            assert (lease.ended_at is not None) == (lease.state in TERMINAL)
        rows = {
            row.lease_id: (row.held_ms, row.counted_ms, row.launch_ms, row.run_ms)
            for row in LedgerRow.objects.all()
        }
        began = Lease.objects.filter(allocated_at__isnull=False)
        ended = began.filter(state__in=TERMINAL, in_doubt=False)
        settled = ended.exclude(state="released", shard__state="delivering", ledger=None)
        assert set(rows) == set(settled.values_list("pk", flat=True))
        over = set(began.filter(shard__job__state="ended").values_list("pk", flat=True))
        assert over <= set(rows)
        assert all(rows[pk] == row for pk, row in self.ledger.items())  # append-only
        self.ledger = rows

    @invariant()
    def no_slice_is_longer_than_the_nodes_own(self) -> None:
        lives: dict[str, list[dict[str, int]]] = {}
        for agent in self.agents.values():
            for life in agent.lives:
                lives.setdefault(life.code, []).append(life.stamps)
        for lease in Lease.objects.filter(allocated_at__isnull=False):
            known = [step for step in STEPS[1:] if getattr(lease, f"{step}_at")]
            for first, then in pairwise(known):
                own = [
                    stamps[then] - stamps[first]
                    for stamps in lives[lease.code]
                    if first in stamps and then in stamps
                ]
                length = getattr(lease, f"{then}_at") - getattr(lease, f"{first}_at")
                assert not own or milliseconds(length) <= max(own), (first, then, lives)
            begun = [stamps["allocated"] for stamps in lives[lease.code] if "allocated" in stamps]
            if lease.state in TERMINAL and begun:
                assert slices(lease, db_now()).held_ms <= node_ms() - min(begun)

    @invariant()
    def compute_is_held_once(self) -> None:
        open_holds = LeaseGpu.objects.filter(until=None)
        gpus = list(open_holds.values_list("gpu", flat=True))
        assert len(gpus) == len(set(gpus))
        for lease in Lease.objects.filter(state__in=HOLDING):
            assert lease.gpus.count() == lease.gpu_count
            assert lease.shard.state == "active"
        for lease in Lease.objects.exclude(state__in=HOLDING).filter(granted_at=None):
            assert not lease.gpus.exists()
        for node in Node.objects.all():
            held = Lease.objects.filter(node=node, state__in=HOLDING)
            live = Lease.objects.live().filter(node=node)
            assert node.reserved_cpus == sum(held.values_list("cpus", flat=True))
            assert node.reserved_disk_bytes == sum(live.values_list("disk_bytes", flat=True))

    @invariant()
    def one_attempt_of_each_piece_counts(self) -> None:
        for shard in Shard.objects.all():
            live = shard.leases.live().count()
            delivering = Lease.objects.delivering().filter(shard=shard).count()
            assert live + delivering <= 1
            assert delivering == int(shard.state == "delivering")
            rows = LedgerRow.objects.filter(lease__shard=shard)
            kept = rows.filter(uncounted_reason__in=["", "past_the_window"])
            assert kept.count() <= 1 + shard.work_failures
            verified = shard.leases.filter(output_verified_at__isnull=False)
            assert sum(lease.code == shard.kept_lease for lease in verified) <= 1

    @invariant()
    def ends_are_final_and_recorded_once(self) -> None:
        for shard in Shard.objects.filter(state="ended"):
            assert self.outcomes.setdefault(shard.pk, shard.outcome) == shard.outcome
            assert not shard.leases.filter(state__in=HOLDING).exists()
            assert not shard.leases.filter(in_doubt=True).exists()
            if shard.outcome == "succeeded":
                kept = shard.leases.get(code=shard.kept_lease)
                assert kept.output_verified_at is not None
                assert kept.exit_code == 0
        for job in Job.objects.all():
            done = not job.shards.exclude(state="ended").exists()
            assert (job.state == "ended") == done
            assert JobRecord.objects.filter(job=job).count() == int(done)
            kept = Lease.objects.filter(shard__job=job, events__verb="keep").exists()
            if job.parallel and not kept:  # what has come back is there, whatever the limit
                holding = Lease.objects.filter(shard__job=job, state__in=METERED)
                assert holding.count() <= job.parallel

    # Helpers

    def _poll(self, name: str, body: dict | None = None, heed: bool = True) -> None:
        if name not in self.silent:
            self.agents[name].poll(body, heed)

    def _advance(self, agent: ModelAgent, lease, exit_code: int) -> None:
        if agent.node.name in self.silent and lease.phase == "returning":
            return  # nothing arrives of what it wrote
        if lease.phase == "released" and lease.output == "sealed" and lease.wanted == "release":
            if Lease.objects.delivering().filter(code=lease.code).exists():
                agent.deliver(lease)
            return
        if lease.phase in ("returning", "releasing") and lease.output == "pending":
            row = Lease.objects.get(code=lease.code)
            if row.state in TERMINAL:
                return  # its token is fenced: the portal refuses the output
        agent.advance(lease, exit_code=exit_code)

    def _fresh(self, job: Job) -> Job:
        return Job.objects.get(pk=job.pk)

    def _try(self, act) -> None:
        """What a person asks for may be refused, by a domain error and nothing else."""
        with suppress(DomainError):
            act()

    def _all_ends_well(self) -> None:
        """From wherever it got to, fair polling ends every job."""
        self.silent_nodes_return()
        for node in Node.objects.exclude(state="online"):
            if node.state != "offline":
                fleet.resume(node=node, actor="operator")
        for _ in range(120):
            if not Job.objects.exclude(state="ended").exists():
                break
            scheduler.run_pass()
            for agent in self.agents.values():
                agent.poll()
                for lease in list(agent.leases.values()):
                    self._advance(agent, lease, 0)
                agent.poll()
        self.ends_are_final_and_recorded_once()
        self.meter_is_derived_and_adds_up()
        self.one_attempt_of_each_piece_counts()
        assert not Job.objects.exclude(state="ended").exists()


@pytest.mark.db
@pytest.mark.django_db
def test_every_order_of_events():
    run_state_machine_as_test(
        Portal,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

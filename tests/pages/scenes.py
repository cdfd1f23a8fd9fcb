"""Jobs in every state as rows, for looking at and for testing the pages that show them."""

from datetime import datetime, timedelta

from jobs.models import Job, JobRecord, Shard
from nodes.meter import counted, slices
from nodes.models import Lease, LeaseGpu, LedgerRow, Node, SchedulerReason
from nodes.records import record_body
from portal.base.clock import db_now
from portal.teams.models import Team
from staging.models import Dataset, File
from tests.factories import make_dataset, make_job

STEPS = ("placed", "ready", "granted", "allocated", "running", "returning", "releasing", "released")
STATE_AFTER = {
    "placed": "placed",
    "ready": "ready",
    "granted": "granted",
    "allocated": "allocated",
    "running": "running",
    "returning": "returning",
    "releasing": "releasing",
    "released": "released",
}
EVIDENCE = {"processes": "none", "scratch": "wiped", "output": "delivered"}


def ago(seconds: float, now: datetime | None = None) -> datetime:
    return (now or db_now()) - timedelta(seconds=seconds)


def make_lease(shard: Shard, node: Node, *ages: float, **fields) -> Lease:
    """An attempt whose steps happened so many seconds ago; the last one names its state."""
    now = db_now()
    reached = STEPS[: len(ages)]
    times = {f"{step}_at": ago(age, now) for step, age in zip(reached, ages, strict=True)}
    state = fields.pop("state", STATE_AFTER[reached[-1]])
    job = shard.job
    values = {
        "epoch": 1,
        "number": shard.leases.count() + 1,
        "state": state,
        "gpu_count": job.gpus,
        "cpus": job.cpus,
        "memory_bytes": job.memory_bytes,
        "disk_bytes": job.scratch_bytes,
        "time_limit": job.time_limit,
        "output_window": timedelta(seconds=120),
        "fetched_bytes": 40_000_000,
        "moved_bytes": 40_000_000,
        "last_report_at": now,
    } | fields
    if state in ("released", "void", "lost"):
        values.setdefault("ended_at", times.get("released_at", now))
    lease = Lease.objects.create(shard=shard, node=node, **times, **values)
    if "granted_at" in times:
        _take_gpus(lease, times["granted_at"])
    if lease.ended_at and lease.allocated_at:
        close(lease)
    return lease


def _take_gpus(lease: Lease, since: datetime) -> None:
    free = lease.node.gpus.exclude(leases__until=None, leases__isnull=False)
    for gpu in free[: lease.gpu_count]:
        LeaseGpu.objects.create(lease=lease, gpu=gpu, since=since, until=lease.released_at)


def close(lease: Lease) -> None:
    """The ledger row and the evidence of an ended attempt."""
    found = {held.gpu.uuid: "simulated" for held in lease.gpus.select_related("gpu")}
    if lease.state == "released":
        lease.evidence = EVIDENCE | {"gpus": found}
        lease.save(update_fields=["evidence"])
    assert lease.ended_at
    assert lease.allocated_at
    parts = slices(lease, lease.ended_at)
    charged, why = counted(lease, lease.ended_at)
    LedgerRow.objects.create(
        lease=lease,
        gpus=lease.gpu_count,
        allocated_at=lease.allocated_at,
        ended_at=lease.ended_at,
        launch_ms=parts.launch_ms,
        run_ms=parts.run_ms,
        output_ms=parts.output_ms,
        release_ms=parts.release_ms,
        held_ms=parts.held_ms,
        counted_ms=charged,
        uncounted_reason=why,
        created_at=lease.ended_at,
    )


def set_states(job: Job, state: str, outcome: str = "", reason: str = "", **fields) -> Job:
    """The job and all its shards as if they had got there."""
    now = db_now()
    ended = {"ended_at": fields.get("ended_at", now)} if state == "ended" else {}
    job.shards.update(
        state=state if state in ("active", "ended", "queued") else "queued",
        outcome=outcome,
        reason=reason,
        **ended,
    )
    Job.objects.filter(pk=job.pk).update(
        state=state, outcome=outcome, reason=reason, **{**ended, **fields}
    )
    job.refresh_from_db()
    return job


def with_data(job: Job, team: Team, name: str = "Sensor readings 2026") -> Dataset:
    dataset = make_dataset(team, name=name, file_count=1240, byte_count=48_200_000_000)
    job.inputs.create(
        dataset=dataset, mount="readings", split=True, file_count=1240, byte_count=48_200_000_000
    )
    job.variables.create(name="EPOCHS", stored="40")
    secret = job.variables.create(name="HUB_TOKEN", secret=True)
    secret.set_value("hunter2-is-secret")
    secret.save()
    return dataset


def with_output(job: Job, *, partial: bool = False) -> None:
    """Three files in the job's output, verified."""
    now = db_now()
    assert job.output_id
    Dataset.objects.filter(pk=job.output_id).update(
        state="staged", staged_at=now, sealed_at=now, manifest_digest="ab" * 32,
        file_count=3, byte_count=48_210_333, partial=partial,
    )  # fmt: skip
    for path, size in [
        ("0/part.csv", 40_000_000),
        ("finish/table.csv", 8_210_000),
        ("log.txt", 333),
    ]:
        File.objects.create(
            dataset_id=job.output_id, path=path, size=size, digest="ab" * 32, state="staged"
        )
    job.refresh_from_db()


def write_record(job: Job) -> JobRecord:
    assert job.ended_at
    return JobRecord.objects.create(
        job=job, body=record_body(job), signature="c2lnbmVk", created_at=job.ended_at
    )


def staging_job(team: Team) -> Job:
    job = make_job(team, shards=1, name="Retrain the depth model", submitted_at=ago(310))
    job.shards.all().delete()
    dataset = make_dataset(
        team, name="Footage, week 48", state="transferring", staged_at=None, manifest_digest=""
    )
    job.inputs.create(dataset=dataset, mount="footage")
    return set_states(job, "staging", queued_at=None)


def queued_job(team: Team) -> Job:
    job = make_job(
        team, shards=2, gpus=8, name="Embed the archive", submitted_at=ago(900), queued_at=ago(840)
    )
    with_data(job, team, "Archive text")
    first = job.shards.get(index=0)
    for minutes, sentence in [
        (14, "Needs 8 GPUs on one node; the largest has 2 free until 14:40."),
        (6, "Needs 8 GPUs on one node; the largest has 4 free until 14:10."),
    ]:
        SchedulerReason.objects.create(
            shard=first,
            at=ago(minutes * 60),
            cause="gpus",
            sentence=sentence,
            predicted_start=db_now() + timedelta(minutes=50 - minutes),
        )
    return job


def running_job(team: Team, node: Node) -> Job:
    """Four pieces: two done, one on its second attempt, one still fetching; a finish step."""
    job = make_job(
        team, shards=4, name="Token statistics of every module", submitted_at=ago(700),
        queued_at=ago(620), finish_command="python merge.py",
    )  # fmt: skip
    with_data(job, team)
    Shard.objects.create(job=job, index=0, kind="finish", queued_at=ago(620))
    pieces = list(job.shards.filter(kind="main"))
    set_states(job, "active", active_at=ago(500))
    for shard in pieces[:2]:
        make_lease(shard, node, 600, 540, 505, 500, 497, 220, 190, 185, exit_code=0)
        job.shards.filter(pk=shard.pk).update(
            state="ended", outcome="succeeded", ended_at=ago(185), exit_code=0, log_bytes=900
        )
    make_lease(
        pieces[2], node, 600, 540, 505, 500, 480, state="lost", reason="silent",
        last_report_at=ago(400), ended_at=ago(300),
    )  # fmt: skip
    make_lease(pieces[2], node, 290, 280, 260, 255, 250)
    make_lease(pieces[3], node, 120, fetched_bytes=12_000_000, moved_bytes=12_000_000)
    job.shards.filter(pk=pieces[3].pk).update(state="queued")
    job.shards.filter(kind="finish").update(state="queued")
    _wait(pieces[3], "Its data is on its way to the node: 12 of 40 MB.")
    job.refresh_from_db()
    return job


def _wait(shard: Shard, sentence: str) -> None:
    SchedulerReason.objects.create(shard=shard, at=ago(60), cause="fetch", sentence=sentence)


def state_job(team: Team, node: Node, reached: int) -> Job:
    """A job of one piece whose attempt has come `reached` steps far."""
    job = make_job(
        team, name=f"Attempt {STEPS[reached - 1]}", submitted_at=ago(400), queued_at=ago(390)
    )
    lease = make_lease(job.shards.get(), node, *(300 - 40 * n for n in range(reached)))
    if reached > 2:
        set_states(job, "active", active_at=lease.granted_at)
    return job


def succeeded_job(team: Team, node: Node, **fields) -> Job:
    values = {
        "name": "Score the table",
        "submitted_at": ago(5400),
        "queued_at": ago(5100),
        "gpus": 2,
    }
    job = make_job(team, **(values | fields))  # type: ignore[arg-type]
    with_data(job, team, "Table of rows")
    make_lease(
        job.shards.get(), node, 5000, 4300, 4210, 4200, 4192, 800, 760, 757, exit_code=0,
        reason="exited", output_verified_at=ago(765), output_state="delivered",
    )  # fmt: skip
    set_states(job, "ended", "succeeded", ended_at=ago(757))
    with_output(job)
    job.shards.update(output_files=3, output_bytes=48_210_333, exit_code=0, log_bytes=3000)
    write_record(job)
    return job


def failed_job(team: Team, node: Node, outcome: str = "failed", reason: str = "exit_code") -> Job:
    job = make_job(
        team, name=f"Evaluate candidate 7 ({outcome})", submitted_at=ago(3400), queued_at=ago(3390)
    )
    make_lease(job.shards.get(), node, 3300, 3290, 3280, 3275, 3270, 3000, 2980, 2975, exit_code=1)
    set_states(job, "ended", outcome, reason, ended_at=ago(2975))
    job.shards.update(exit_code=1, detail="Exit code 1.", log_bytes=1200)
    write_record(job)
    return job


def cancelled_in_queue(team: Team) -> Job:
    job = make_job(team, name="Never mind", submitted_at=ago(9000), queued_at=ago(8900))
    set_states(job, "ended", "cancelled", "cancelled", ended_at=ago(8000))
    write_record(job)
    return job


def huge_job(team: Team, pieces: int = 10_000) -> Job:
    """Ten thousand pieces: most succeeded, 37 failed, some running, the rest queued."""
    job = make_job(
        team, name="Ten thousand simulations", submitted_at=ago(4000), queued_at=ago(3990)
    )
    job.shards.all().delete()
    Job.objects.filter(pk=job.pk).update(shard_count=pieces, state="active", active_at=ago(3900))
    now = db_now()
    rows = []
    for index in range(pieces):
        share = index / pieces
        outcome = ("failed" if index % 170 == 5 else "succeeded") if share < 0.62 else ""
        state = "ended" if outcome else ("active" if share < 0.64 else "queued")
        rows.append(
            Shard(
                job=job,
                index=index,
                queued_at=now,
                state=state,
                outcome=outcome,
                reason="exit_code" if outcome == "failed" else "",
                ended_at=now if outcome else None,
            )
        )
    Shard.objects.bulk_create(rows, batch_size=1000)
    job.refresh_from_db()
    return job


def with_attempts(job: Job, nodes: list[Node]) -> Job:
    """An attempt for each piece of a huge job that has ended or runs, forty at a time."""
    begun = ago(36_000)
    Job.objects.filter(pk=job.pk).update(submitted_at=begun, queued_at=begun, active_at=begun)
    job.refresh_from_db()
    rows = []
    for number, shard in enumerate(job.shards.exclude(state="queued")):
        start = begun + timedelta(seconds=number // 40 * 100)
        steps = {
            f"{step}_at": start + timedelta(seconds=age)
            for step, age in zip(STEPS, (0, 3, 4, 5, 6, 90, 95, 97), strict=True)
        }
        ended = shard.state == "ended"
        if not ended:
            steps = dict(list(steps.items())[:5])
        more: dict[str, object] = {
            "ended_at": steps.get("released_at"),
            "state": "released" if ended else "running",
        }
        if ended:
            found = {f"GPU-{number % 64}": "clear"}
            more |= {
                "evidence": EVIDENCE | {"gpus": found},
                "output_verified_at": steps["releasing_at"],
            }
        rows.append(
            Lease(
                shard=shard,
                node=nodes[number % len(nodes)],
                epoch=1,
                number=1,
                gpu_count=1,
                cpus=1,
                memory_bytes=1,
                disk_bytes=1,
                time_limit=job.time_limit,
                output_window=timedelta(seconds=120),
                **steps,
                **more,
            )
        )
    Lease.objects.bulk_create(rows, batch_size=500)
    LedgerRow.objects.bulk_create(map(_ledger, (x for x in rows if x.ended_at)), batch_size=500)
    return job


def _ledger(lease: Lease) -> LedgerRow:
    assert lease.ended_at
    assert lease.allocated_at
    parts = slices(lease, lease.ended_at)
    charged, why = counted(lease, lease.ended_at)
    return LedgerRow(
        lease=lease,
        gpus=lease.gpu_count,
        allocated_at=lease.allocated_at,
        ended_at=lease.ended_at,
        held_ms=parts.held_ms,
        counted_ms=charged,
        uncounted_reason=why,
        created_at=lease.ended_at,
        **vars(parts),
    )


def every_job(team: Team, node: Node) -> list[Job]:
    """One job for each thing that a job page can show; the node needs at least 12 GPUs."""
    return [
        staging_job(team),
        queued_job(team),
        running_job(team, node),
        *(state_job(team, node, reached) for reached in range(1, 8)),
        succeeded_job(team, node),
        failed_job(team, node),
        failed_job(team, node, "timed_out", "time_limit"),
        failed_job(team, node, "lost", "node_fault"),
        failed_job(team, node, "cancelled", "cancelled"),
        failed_job(team, node, "failed", "output_missing"),
        cancelled_in_queue(team),
    ]

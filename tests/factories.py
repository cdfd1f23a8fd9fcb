"""Rows for tests, made the short way where the way they are made is not what is tested."""

from datetime import timedelta

from jobs.models import Job, Shard
from nodes.models import Gpu, Installation, Node
from portal.base.clock import db_now
from portal.teams.models import Team
from staging.models import Dataset
from staging.states import DatasetKind, DatasetState


def make_dataset(team: Team, **fields) -> Dataset:
    """A staged, empty dataset unless fields say otherwise."""
    now = db_now()
    values = {
        "name": "Readings",
        "kind": DatasetKind.INPUT,
        "state": DatasetState.STAGED,
        "created_by": "owner@climate.example",
        "created_at": now,
        "staged_at": now,
        "sealed_at": now,
        "manifest_digest": "0" * 64,
    } | fields
    return Dataset.objects.create(team=team, **values)


def make_job(team: Team, *, shards: int = 1, **fields) -> Job:
    """A queued job with queued shards and an output dataset."""
    now = db_now()
    values = {
        "name": "Count tokens",
        "created_by": "owner@climate.example",
        "created_at": now,
        "submitted_at": now,
        "queued_at": now,
        "state": "queued",
        "script": "print('hello')",
        "gpus": 1,
        "time_limit": timedelta(hours=1),
        "shard_count": shards,
        "output": make_dataset(
            team,
            name="Output",
            kind=DatasetKind.OUTPUT,
            state=DatasetState.TRANSFERRING,
            staged_at=None,
            sealed_at=None,
            manifest_digest="",
        ),
    } | fields
    job = Job.objects.create(team=team, **values)
    job.output_paths.create(pattern="**")
    for index in range(shards):
        Shard.objects.create(job=job, index=index, queued_at=now)
    return job


def make_node(name: str = "n1", *, gpus: int = 0, **fields) -> Node:
    """An online node with usable simulated GPUs."""
    Installation.objects.get_or_create(id=1)
    values = {
        "state": "online",
        "cpus": 8,
        "memory_bytes": 64 * 2**30,
        "disk_bytes": 100 * 2**30,
        "isolation": "bwrap",
        "last_seen_at": db_now(),
        "simulated": gpus > 0,
    } | fields
    node = Node.objects.create(name=name, **values)
    for index in range(gpus):
        Gpu.objects.create(
            node=node,
            uuid=f"GPU-{name}-{index}",
            index=index,
            model="Simulated GPU",
            memory_bytes=24 * 2**30,
            simulated=True,
        )
    return node

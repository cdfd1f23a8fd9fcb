"""Cutting a job into shards: which run of an input's chosen files each shard gets."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from jobs.models import Job, JobInput, Shard, ShardPart
from jobs.states import ShardKind
from staging.selection import chosen_files


def split_by_bytes(sizes: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Cut `sizes` (bytes, in order) into `count` runs [start, stop) of about equal bytes.

    Every element is in exactly one run; a file counts one byte more than its size, so that empty
    files spread too. With fewer elements than runs, some runs are empty.
    """
    weights = [size + 1 for size in sizes]
    total, done, position = sum(weights), 0, 0
    runs = []
    for number in range(count):
        start = position
        target = total * (number + 1) / count
        while position < len(weights) and done + weights[position] / 2 <= target:
            done += weights[position]
            position += 1
        if number == count - 1:
            position = len(weights)
        runs.append((start, position))
    return runs


def create_shards(*, job: Job, at: datetime) -> list[Shard]:
    """The shards of a job whose inputs are all staged, with their parts of the inputs."""
    shards = [Shard(job=job, index=i, queued_at=at) for i in range(job.shard_count)]
    parts: list[ShardPart] = []
    for job_input in job.inputs.select_related("dataset"):
        parts += _parts(job_input, shards)
    if job.finish_command:
        shards.append(Shard(job=job, index=0, kind=ShardKind.FINISH, queued_at=at))
    Shard.objects.bulk_create(shards)
    ShardPart.objects.bulk_create(parts)
    return shards


def _parts(job_input: JobInput, shards: list[Shard]) -> Iterator[ShardPart]:
    sizes = [
        file.size for file in chosen_files(dataset=job_input.dataset, patterns=job_input.patterns)
    ]
    runs = (
        split_by_bytes(sizes, len(shards)) if job_input.split else [(0, len(sizes))] * len(shards)
    )
    for shard, (start, stop) in zip(shards, runs, strict=True):
        shard.input_files += stop - start
        shard.input_bytes += sum(sizes[start:stop])
        yield ShardPart(shard=shard, input=job_input, start=start, stop=stop)

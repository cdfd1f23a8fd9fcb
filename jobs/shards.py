"""Cutting a job into shards: which run of an input's chosen files each shard gets."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate

from jobs.models import Job, JobInput, Shard, ShardPart
from jobs.states import ShardKind
from staging.selection import chosen_places


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
        chosen = chosen_places(dataset=job_input.dataset, patterns=job_input.patterns)
        job_input.file_count = len(chosen)
        job_input.byte_count = sum(size for _, size in chosen)
        job_input.save(update_fields=["file_count", "byte_count"])
        parts += _parts(job_input, shards, chosen)
    if job.finish_command:
        shards.append(Shard(job=job, index=0, kind=ShardKind.FINISH, queued_at=at))
    Shard.objects.bulk_create(shards)
    ShardPart.objects.bulk_create(parts)
    return shards


def _parts(
    job_input: JobInput, shards: list[Shard], chosen: list[tuple[int, int]]
) -> Iterator[ShardPart]:
    """`chosen`: (position, bytes) of the input's files in order; a part is a run of them."""
    sizes = [size for _, size in chosen]
    whole = (0, len(sizes))
    runs = split_by_bytes(sizes, len(shards)) if job_input.split else [whole] * len(shards)
    bytes_before = [0, *accumulate(sizes)]
    for shard, (start, stop) in zip(shards, runs, strict=True):
        shard.input_files += stop - start
        shard.input_bytes += bytes_before[stop] - bytes_before[start]
        if start < stop:
            first, last = chosen[start][0], chosen[stop - 1][0]
            yield ShardPart(shard=shard, input=job_input, start=first, stop=last + 1)

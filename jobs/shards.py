"""Cutting a job into shards: which run of an input's chosen files each shard gets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from jobs.models import Job, JobInput, Shard, ShardPart
from jobs.states import ShardKind
from staging.selection import chosen_places, matcher, narrowed


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


@dataclass(frozen=True)
class Cut:
    """A job's shards and their parts of the inputs, not saved yet."""

    inputs: list[JobInput]
    shards: list[Shard]
    parts: list[ShardPart]

    @property
    def largest(self) -> int:
        """Bytes of the inputs that the largest shard reads."""
        return max(shard.input_bytes for shard in self.shards)


def cut_job(*, job: Job, at: datetime) -> Cut:
    """Cut a job whose inputs are all staged; says of each input how much was chosen."""
    shards = [Shard(job=job, index=i, queued_at=at) for i in range(job.shard_count)]
    parts: list[ShardPart] = []
    inputs = _inputs(job)
    for job_input in inputs:
        chosen = chosen_places(dataset=job_input.dataset, patterns=job_input.patterns)
        job_input.file_count = len(chosen)
        job_input.byte_count = sum(size for _, size in chosen)
        parts += _parts(job_input, shards, chosen)
    if job.finish_command:
        shards.append(Shard(job=job, index=0, kind=ShardKind.FINISH, queued_at=at))
    return Cut(inputs, shards, parts)


def create_shards(cut: Cut) -> None:
    JobInput.objects.bulk_update(cut.inputs, ["file_count", "byte_count"])
    Shard.objects.bulk_create(cut.shards)
    ShardPart.objects.bulk_create(cut.parts)


def declared_bytes(job: Job) -> int:
    """The least that the largest shard reads, by what the inputs list up to now.

    An input may still grow: of its files one shard reads at least the largest, and at least an
    equal share of all.
    """
    return sum(_least_part(job_input, job.shard_count) for job_input in _inputs(job))


def _least_part(job_input: JobInput, shards: int) -> int:
    files = narrowed(job_input.dataset.files.all(), job_input.patterns)
    wanted = matcher(job_input.patterns)
    rows = files.values_list("path", "size").iterator(2000)
    sizes = [size for path, size in rows if wanted.fullmatch(path)]
    if not job_input.split:
        return sum(sizes)
    return max(max(sizes, default=0), -(-sum(sizes) // shards))


def _inputs(job: Job) -> list[JobInput]:
    return list(job.inputs.select_related("dataset"))


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

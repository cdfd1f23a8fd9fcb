"""What a lease may read: the files of its shard's part, and the code. Nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from jobs.models import Shard, ShardPart
from jobs.states import ShardKind
from nodes.models import Lease
from staging.digests import chunk_size_of
from staging.models import Dataset, File
from staging.selection import chosen_files, matcher


@dataclass(frozen=True)
class LeaseFile:
    """A file and its place on the node: `data/<folder>/...` or `code/...`."""

    id: int
    path: str
    size: int
    digest: str
    chunk_size: int
    executable: bool


def lease_files(lease: Lease) -> list[LeaseFile]:
    """Every file that the node fetches for this lease, ordered by id."""
    shard = lease.shard
    found = _outputs_of_others(shard) if shard.kind == ShardKind.FINISH else _part(shard)
    return sorted([*found, *_code(shard)], key=lambda f: f.id)


def _part(shard: Shard) -> Iterator[LeaseFile]:
    for part in shard.parts.select_related("input__dataset"):
        source = part.input
        files = chosen_files(dataset=source.dataset, patterns=source.patterns)
        for file in files[part.start : part.stop]:
            yield _at(file, f"data/{source.mount}/{file.path}")


def _outputs_of_others(shard: Shard) -> Iterator[LeaseFile]:
    output = shard.job.output
    if output is None:
        return
    for file in output.files.exclude(path__startswith=shard.folder).exclude(digest=""):
        yield _at(file, f"data/{file.path}")


def _code(shard: Shard) -> Iterator[LeaseFile]:
    if shard.job.code_dataset is not None:
        for file in shard.job.code_dataset.files.all():
            yield _at(file, f"code/{file.path}")


def _at(file: File, path: str) -> LeaseFile:
    return LeaseFile(
        file.id, path, file.size, file.digest, chunk_size_of(file.size), file.executable
    )


def lease_file(lease: Lease, number: int) -> File | None:
    """The file of this id if the lease may read it."""
    file = File.objects.filter(pk=number).select_related("blob", "dataset").first()
    if file is None or file.blob is None:
        return None
    shard = lease.shard
    job = shard.job
    if file.dataset_id == job.code_dataset_id:
        return file
    if shard.kind == ShardKind.FINISH:
        mine = file.dataset_id == job.output_id and not file.path.startswith(shard.folder)
        return file if mine else None
    parts = shard.parts.filter(input__dataset_id=file.dataset_id).select_related("input__dataset")
    return file if any(_holds(part, file) for part in parts) else None


def _holds(part: ShardPart, file: File) -> bool:
    """Whether a file of the part's dataset is in the part. Asked once for every file of a lease."""
    source = part.input
    patterns = tuple(source.patterns)
    span = _span(source.dataset.code, patterns, part.start, part.stop)
    within = span is not None and span[0] <= file.path.encode() <= span[1]
    return within and matcher(list(patterns)).fullmatch(file.path) is not None


@lru_cache(maxsize=10_000)
def _span(
    dataset: str, patterns: tuple[str, ...], start: int, stop: int
) -> tuple[bytes, bytes] | None:
    """The first and last path of a run of chosen files; None where it is empty.

    A staged dataset never changes and its code is never used again, so this may be kept.
    """
    files = chosen_files(dataset=Dataset.objects.get(code=dataset), patterns=list(patterns))
    run = files[start:stop]
    return (run[0].path.encode(), run[-1].path.encode()) if run else None

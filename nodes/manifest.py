"""What a lease may read: the files of its shard's part, and the code. Nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.models import Shard
from jobs.states import ShardKind
from nodes.models import Lease
from staging.digests import chunk_size_of
from staging.models import File
from staging.selection import chosen_files


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
    # A part is a run of chosen files, so only a look at the part itself can tell.
    mounted = any(i.dataset_id == file.dataset_id for i in job.inputs.all())
    return file if mounted and any(f.id == number for f in _part(shard)) else None

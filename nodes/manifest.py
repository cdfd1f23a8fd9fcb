"""What a lease may read: the files of its shard's part, and the code. Nothing else.

A listing is read a page at a time by keyset, so that its cost is that of the files on the page
however many there are.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Count, F, QuerySet, Sum

from jobs.models import Job, Shard
from jobs.states import ShardKind
from nodes.models import Lease
from portal.base.errors import DomainError
from staging.digests import chunk_size_of
from staging.models import Dataset, File
from staging.selection import matcher, narrowed

PAGE = 1000  # rows that one page of a listing looks at
_CURSOR = re.compile(r"(\d{1,9})\.(\d{1,18})", re.ASCII)
_COLUMNS = ("id", "path", "size", "digest", "executable")


class BadCursor(DomainError):
    """`after` is not the `next` of an earlier page."""

    code = "bad_request"


@dataclass(frozen=True)
class LeaseFile:
    """A file and its place on the node: `data/<folder>/...` or `code/...`."""

    id: int
    path: str
    size: int
    digest: str
    chunk_size: int
    executable: bool


@dataclass(frozen=True)
class _Source:
    """Files of one dataset in the order of `key`, a column that an index has after the dataset."""

    rows: QuerySet[File]
    key: str
    folder: str
    chosen: Callable[[str], object]

    def after(self, number: int, most: int) -> list[tuple]:
        """At most `most` rows behind the file with this id; 0 for the first ones."""
        rows = self.rows
        if number:
            last = self.rows.order_by().filter(pk=number).values(self.key)[:1]
            rows = rows.filter(**{f"{self.key}__gt": last})
        return list(rows.order_by(self.key).values_list(*_COLUMNS)[:most])


def file_page(lease: Lease, cursor: str) -> tuple[list[LeaseFile], str | None]:
    """The files behind `cursor` ("" for the first) and the next cursor, None after the last page.

    A page may hold fewer files than it has room for, or none, and not be the last.
    """
    sources = _sources(lease.shard)
    first, number = _place(cursor)
    found: list[LeaseFile] = []
    room = PAGE
    for index, source in enumerate(sources[first:], first):
        rows = source.after(number, room + 1)
        taken = rows[:room]
        found += [_at(row, source.folder) for row in taken if source.chosen(row[1])]
        if len(rows) > room:
            return found, f"{index}.{taken[-1][0] if taken else 0}"
        room, number = room - len(taken), 0
    return found, None


def _place(cursor: str) -> tuple[int, int]:
    match = _CURSOR.fullmatch(cursor or "0.0")
    if match is None:
        raise BadCursor("`after` must be the `next` of an earlier answer.")
    return int(match.group(1)), int(match.group(2))


def _sources(shard: Shard) -> list[_Source]:
    """Where the files of a shard come from, in an order that stays while its lease lives."""
    job = shard.job
    if shard.kind == ShardKind.FINISH:
        found = [_Source(outputs_of_others(shard), "path", "data/", _all)]
    else:
        parts = shard.parts.select_related("input__dataset").order_by("pk")
        found = [
            _Source(
                narrowed(_staged(part.input.dataset), part.input.patterns).filter(
                    position__gte=part.start, position__lt=part.stop
                ),
                "position",
                f"data/{part.input.mount}/",
                matcher(part.input.patterns).fullmatch,
            )
            for part in parts
        ]
    if job.code_dataset is not None:
        found.append(_Source(_staged(job.code_dataset), "position", "code/", _all))
    return found


def _all(path: str) -> bool:
    return True


def _staged(dataset: Dataset) -> QuerySet[File]:
    return File.objects.filter(dataset=dataset)


def outputs_of_others(shard: Shard) -> QuerySet[File]:
    """What the other shards returned: the data of a finish step."""
    rows = File.objects.filter(dataset=shard.job.output)
    return rows.exclude(path__startswith=shard.folder).exclude(digest="")


def lease_totals(lease: Lease) -> tuple[int, int]:
    """Files and bytes of the whole listing, without reading it."""
    shard, job = lease.shard, lease.shard.job
    files, size = shard.input_files, shard.input_bytes
    if shard.kind == ShardKind.FINISH:
        sums = outputs_of_others(shard).aggregate(files=Count("pk"), size=Sum("size", default=0))
        files, size = sums["files"], sums["size"]
    code = job.code_dataset
    return (files + code.file_count, size + code.byte_count) if code else (files, size)


def _at(row: tuple, folder: str) -> LeaseFile:
    number, path, size, digest, executable = row
    return LeaseFile(number, folder + path, size, digest, chunk_size_of(size), executable)


def lease_file(lease: Lease, number: int) -> File | None:
    """The file of this id if the lease may read it."""
    file = File.objects.filter(pk=number).select_related("blob").first()
    if file is None or file.blob is None:
        return None
    shard = lease.shard
    job: Job = shard.job
    if file.dataset_id == job.code_dataset_id:
        return file
    if shard.kind == ShardKind.FINISH:
        mine = file.dataset_id == job.output_id and not file.path.startswith(shard.folder)
        return file if mine else None
    if file.position is None:
        return None
    parts = shard.parts.filter(
        input__dataset_id=file.dataset_id, start__lte=file.position, stop__gt=file.position
    )
    patterns = parts.annotate(patterns=F("input__patterns")).values_list("patterns", flat=True)
    return file if any(matcher(chosen).fullmatch(file.path) for chosen in patterns) else None

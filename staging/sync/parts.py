"""Cutting: what is listed becomes parts of bounded size.

Small files go together, many to a part; a large one is cut into runs of whole chunks
(docs/agent-protocol.md, "Digests"), so that each run is hashed by whoever copies it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from staging.digests import SMALLEST_CHUNK, chunk_size_of
from staging.models import Part, Source, SourceFile
from staging.sync.states import PartKind

PACK_FILES = 64
PACK_BYTES = 32 * 2**20
SMALL = SMALLEST_CHUNK  # bytes; larger files are cut
RANGE_BYTES = 32 * 2**20
BATCH = 500


@dataclass
class _Pack:
    files: list[SourceFile] = field(default_factory=list)
    size: int = 0

    def takes(self, file: SourceFile) -> bool:
        return len(self.files) < PACK_FILES and self.size + file.size <= PACK_BYTES

    def add(self, file: SourceFile) -> None:
        self.files.append(file)
        self.size += file.size


def _packs(files: Iterable[SourceFile]) -> list[_Pack]:
    packs: list[_Pack] = []
    for file in files:
        if not packs or not packs[-1].takes(file):
            packs.append(_Pack())
        packs[-1].add(file)
    return packs


def range_size_of(size: int) -> int:
    """Bytes of one run of a file of `size` bytes: whole chunks."""
    chunk = chunk_size_of(size)
    return max(1, RANGE_BYTES // chunk) * chunk


def ranges_of(file: SourceFile) -> Iterator[Part]:
    """The runs of a saved file, not yet saved."""
    step = range_size_of(file.size)
    for start in range(0, file.size, step):
        stop = min(start + step, file.size)
        yield Part(source_id=file.source_id, kind=PartKind.RANGE, file=file, start=start, stop=stop)


def cut(source: Source, files: list[SourceFile]) -> None:
    """Save parts for files that are open, and the files themselves where they are new.

    Call it inside a transaction.
    """
    small = [file for file in files if file.size <= SMALL]
    packs = _packs(small)
    rows = Part.objects.bulk_create(
        [Part(source=source, kind=PartKind.PACK, stop=pack.size) for pack in packs]
    )
    for pack, row in zip(packs, rows, strict=True):
        for file in pack.files:
            file.part = row
    new = [file for file in files if file.pk is None]
    SourceFile.objects.bulk_create(new, batch_size=BATCH)
    known = [file for file in small if file not in new] if len(new) < len(files) else []
    SourceFile.objects.bulk_update(known, ["part"], batch_size=BATCH)
    large = [file for file in files if file.size > SMALL]
    Part.objects.bulk_create([part for file in large for part in ranges_of(file)], batch_size=BATCH)


def split_pack(files: list[SourceFile], tries: int = 0) -> None:
    """Files of a pack get a part each: one resumes, and has tries of its own.

    Call it inside a transaction.
    """
    SourceFile.objects.filter(pk__in=[file.pk for file in files]).update(part=None)
    pieces = [piece for file in files for piece in ranges_of(file)]
    for piece in pieces:
        piece.tries = tries
    Part.objects.bulk_create(pieces)

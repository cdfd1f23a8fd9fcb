"""The digests of what an upload holds: whoever goes on with it compares them with the file.

A name, a size and a time of change do not say that a file is the one begun; its bytes do.
"""

from dataclasses import dataclass

from staging import store
from staging.digests import RAW, Hasher
from staging.errors import Gone, WrongOffset
from staging.models import Upload
from staging.states import UploadState
from staging.takeover import check_open


@dataclass(frozen=True)
class Prefix:
    """SHA-256 in hex of the chunks that bytes `start` to `stop` lie in, the last one cut at `stop`.

    `start` is the first byte of a chunk.
    """

    start: int
    stop: int
    chunk_size: int
    digests: list[str]


def prefix_of(upload: Upload, start: int, stop: int) -> Prefix:
    """What it holds from the chunk of byte `start` up to byte `stop`; reads at most the open chunk.

    Whoever writes goes on meanwhile: bytes below the offset do not change. Raises WrongOffset
    where fewer bytes than `stop` are here, Gone for an upload that has ended.
    """
    check_open(upload)
    if upload.state != UploadState.OPEN:
        raise Gone("Every byte of this upload has arrived.")
    if not 0 <= start <= stop <= upload.offset:
        raise WrongOffset(upload.offset)
    size = upload.chunk_size
    hasher = Hasher(upload.length, bytes(upload.chunk_digests)[: stop // size * RAW])
    hasher.chunk_size = size
    for piece in store.read(upload.key, hasher.resume_at, stop):
        hasher.update(piece)
    if stop % size:
        hasher.finish()
    found = bytes(hasher.chunks)
    first = start // size
    return Prefix(
        start=first * size,
        stop=stop,
        chunk_size=size,
        digests=[found[at : at + RAW].hex() for at in range(first * RAW, len(found), RAW)],
    )

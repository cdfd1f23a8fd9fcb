"""The chunk that is not whole yet: what this process hashed of it, kept between two requests.

Without it, each request that begins inside a chunk would read and hash that chunk's first bytes
again. What is kept is good for those very bytes only. They are the same while the offset is, since
bytes before it change in one way: the upload goes back and comes again, and going back raises
`generation`, in whichever process.
"""

import threading
from collections import OrderedDict

from staging.digests import Hasher, OpenChunk
from staging.models import Upload

MOST = 256  # uploads; one takes less than 1 KiB

type Mark = tuple[int, int, int]

_kept: OrderedDict[str, tuple[Mark, OpenChunk]] = OrderedDict()
_lock = threading.Lock()


def _mark(upload: Upload) -> Mark:
    return upload.offset, upload.generation, upload.chunk_size


def keep(upload: Upload, hasher: Hasher) -> None:
    """Keep the open chunk of a hasher that knows all bytes before the offset, and no more."""
    with _lock:
        _kept[upload.key] = _mark(upload), hasher.open_chunk
        _kept.move_to_end(upload.key)
        while len(_kept) > MOST:
            _kept.popitem(last=False)


def take(upload: Upload) -> OpenChunk | None:
    """What was kept for the offset where the upload stands. It is the caller's alone then."""
    with _lock:
        found = _kept.pop(upload.key, None)
    return found[1] if found is not None and found[0] == _mark(upload) else None

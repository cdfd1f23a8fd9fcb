"""Appending the bytes of one request to an upload: offsets that never lie.

One writes at a time and the later request wins (staging.takeover); bytes are in the file before
the row counts them (staging.writer); the last one makes the file complete (staging.completion).
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext

from staging.body import BadFraming, Pieces
from staging.checksums import Checksum
from staging.errors import TooLong, WrongOffset
from staging.models import Upload
from staging.states import UploadState
from staging.takeover import writing
from staging.writer import Writer


def receive(
    *,
    upload: Upload,
    offset: int,
    pieces: Iterable[bytes | memoryview],
    announced: int | None = None,
    length: int | None = None,
    checksum: Checksum | None = None,
    may_go_on: Callable[[], bool] | None = None,
) -> Upload:
    """Append the pieces of one request at `offset`; keeps what came when they end early.

    `announced` is how many bytes are to come, where that is known; `length` is the whole length,
    for an upload that was begun without one; `may_go_on` is asked every few seconds, and NotFound
    raised once it says no. Raises WrongOffset, Gone, NoRoom, TooLong, TooLarge,
    DigestMismatch, ChecksumMismatch or Busy; what arrived before is kept. So it is when the framing
    of a chunked body breaks (BadFraming), unless a checksum covers it.
    """
    if upload.state == UploadState.COMPLETE:
        return _nothing_to_add(upload, offset, announced)
    with writing(upload) as fd, _closing(pieces), ExitStack() as stack:
        if upload.state == UploadState.COMPLETE:
            return _nothing_to_add(upload, offset, announced)
        if offset != upload.offset:
            raise WrongOffset(upload.offset)
        writer = stack.enter_context(closing(Writer(upload, fd, checksum, may_go_on)))
        if writer.position != offset:
            raise WrongOffset(writer.position)
        if length is not None:
            writer.settle_length(length)
        writer.announce(announced)
        try:
            for piece in pieces:
                writer.take(piece)
        except BadFraming:
            if checksum is None:
                writer.end()
            raise
        writer.end()
    return upload


def _closing(pieces: Iterable[bytes | memoryview]) -> AbstractContextManager[object]:
    """Pieces listen to the upload's bell: they end before its lock goes. And their room is
    another's then: the writer has ended before."""
    return closing(pieces) if isinstance(pieces, Generator | Pieces) else nullcontext()


def _nothing_to_add(upload: Upload, offset: int, announced: int | None) -> Upload:
    if offset != upload.offset:
        raise WrongOffset(upload.offset)
    if announced:
        raise TooLong(f"All {upload.length} bytes of this upload are here.", offset=upload.offset)
    return upload

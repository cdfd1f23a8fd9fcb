"""Refusals of staging that carry more than a sentence."""

from portal.base.errors import Conflict, DomainError, TooLarge


class RefusedName(DomainError):
    """A path is not accepted; `path` says which."""

    code = "name_refused"


class Gone(DomainError):
    """This upload has ended."""

    code = "gone"
    status = 410


class WrongOffset(Conflict):
    """Bytes were sent for another place than the one that is next."""

    code = "offset"

    def __init__(self, offset: int, sentence: str = "") -> None:
        super().__init__(sentence or f"The next byte is at {offset}.", offset=offset)
        self.offset = offset


class DigestMismatch(DomainError):
    """All bytes arrived and are not those that were declared; the upload begins again at 0."""

    code = "digest_mismatch"
    status = 460


class ChecksumMismatch(DomainError):
    """The bytes of one request are not those of its checksum; none of them is kept."""

    code = "checksum_mismatch"
    status = 460


class TooLong(TooLarge):
    """More bytes came than the upload has room for; `offset` counts those that were kept."""

    code = "too_long"


class Busy(DomainError):
    """Another writer did not let go in time; try again."""

    code = "busy"
    status = 503


class SignInNeeded(DomainError):
    """The session is over, or never was."""

    code = "sign_in"
    status = 401


class StoreAway(DomainError):
    """The store's folder cannot be written: read-only, unmounted, broken. What it has is kept."""

    code = "store_away"
    status = 503


class WrongType(DomainError):
    """The body is of another media type than is taken here."""

    code = "media_type"
    status = 415


class NothingChosen(DomainError):
    """A selection without a file."""

    code = "empty"


class BytesMissing(Exception):
    """The store has fewer bytes than a row says: no answer to a request, but an end of it."""

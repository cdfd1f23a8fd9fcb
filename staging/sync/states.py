"""The states of a source and of its files and parts, and the moves between them."""

from django.db import models

from portal.base.moves import MoveTable


class SourceKind(models.TextChoices):
    S3 = "s3", "S3 bucket"
    FOLDER = "folder", "server folder"
    URLS = "urls", "list of addresses"


class Access(models.TextChoices):
    """Whose right a connection uses."""

    KEYS = "keys", "a key and its secret"
    ROLE = "role", "the operator's own role"
    ANONYMOUS = "anonymous", "none: the bucket is public"


class SourceState(models.TextChoices):
    LISTING = "listing"  # its files are being written down with what pins them
    COPYING = "copying"  # parts are on their way to the store
    PAUSED = "paused"  # a person, a lack of room or a source that is away stopped it; `reason`
    DONE = "done"  # every file has arrived; the dataset is being checked, or was
    STALE = "stale"  # everything else has arrived; some files changed after they were listed
    FAILED = "failed"  # everything else has arrived; some files cannot be had
    CANCELLED = "cancelled"  # ended by a person, or with its dataset


class SourceReason(models.TextChoices):
    """Why a source is paused, stale or failed; the label is the sentence on the page."""

    NONE = "", ""
    BY_PERSON = "by_person", "Paused by a member of the team."
    NO_ROOM = "no_room", "It does not fit. Make room, then resume."
    DISK_FULL = "disk_full", "The store ran out of disk. Resume once there is room."
    SOURCE_AWAY = "source_away", "The source has not answered for a long time."
    SOURCE_REFUSES = "source_refuses", "The source refuses this connection."
    CHANGED = "changed", "Some files changed at the source after they were listed. List again."
    UNREADABLE = "unreadable", "Some files could not be read at the source."
    NOTHING = "nothing", "The source holds no file that was chosen and can be taken."


class SourceFileState(models.TextChoices):
    OPEN = "open"  # it has not arrived yet
    DONE = "done"  # its file has its blob
    STALE = "stale"  # it is no longer what was listed
    FAILED = "failed"  # it cannot be had; `reason` says why


class PartKind(models.TextChoices):
    PACK = "pack"  # several small files, each in one request
    RANGE = "range"  # one run of bytes of one file, from chunk to chunk
    CHECK = "check"  # a file that came in ranges is compared with the sum its source offers


S = SourceState
SOURCE_MOVES: MoveTable = {
    S.LISTING: frozenset({S.COPYING, S.PAUSED, S.FAILED, S.CANCELLED}),
    S.COPYING: frozenset({S.PAUSED, S.DONE, S.STALE, S.FAILED, S.LISTING, S.CANCELLED}),
    S.PAUSED: frozenset({S.LISTING, S.COPYING, S.CANCELLED}),
    S.STALE: frozenset({S.LISTING, S.CANCELLED}),
    S.FAILED: frozenset({S.LISTING, S.COPYING, S.CANCELLED}),
    S.DONE: frozenset({S.LISTING, S.CANCELLED}),
    S.CANCELLED: frozenset(),
}

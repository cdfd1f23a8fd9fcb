"""What a source leaves behind when it, its dataset or some of its files end."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Q

from portal.base.moves import move
from staging import usage
from staging.models import Dataset, DeadKey, File, Part, Source, SourceFile
from staging.sync.states import SourceFileState, SourceState

BATCH = 500
BEGUN = Q(arrived__gt=0) | Q(part__generation__gt=0) | Q(ranges__generation__gt=0)


def bury_files(files: Iterable[File], dataset: Dataset | None = None) -> None:
    """Mark the bytes dead that have come of files which are about to go. In a transaction."""
    rows = SourceFile.objects.filter(file__in=list(files))
    _bury(rows.exclude(state=SourceFileState.DONE), dataset)


def _bury(rows, dataset: Dataset | None) -> None:
    keys = rows.filter(BEGUN).distinct().values_list("store_key", "arrived")
    DeadKey.objects.bulk_create(
        [DeadKey(key=key, size=size, dataset=dataset) for key, size in keys],
        batch_size=BATCH,
        ignore_conflicts=True,
    )


def end_source(source: Source, *, at: datetime, actor: str, reason: str = "") -> bool:
    """-> cancelled: its room is given back, what had half arrived dies. False: it had ended.

    Call it inside a transaction; whoever still copies for it finds the parts gone.
    """
    if (
        not Source.objects.filter(pk=source.pk)
        .exclude(state=SourceState.CANCELLED)
        .update(claimed_until=None)
    ):
        return False
    source.refresh_from_db()
    _bury(source.files.exclude(state=SourceFileState.DONE), source.dataset)
    Part.objects.filter(source=source).delete()
    usage.settle(team_id=source.dataset.team_id, promised=-source.promised_bytes, stored=0)
    move(
        source,
        SourceState.CANCELLED,
        "cancel",
        at=at,
        actor=actor,
        reason=reason,
        changes={"promised_bytes": 0, "next_try_at": None},
    )
    return True

"""Counts of syncs for the estimates: how far each is, and the end of those that copy no more."""

from datetime import datetime
from urllib.parse import urlsplit

from django.db.models import Max

from staging.estimates import notes
from staging.estimates.models import LinkKind, Transfer
from staging.estimates.notes import Count, Way
from staging.estimates.subjects import DATASET, codes_of, of_dataset
from staging.models import Source
from staging.sync.progress import here_of
from staging.sync.states import SourceKind, SourceState

GOES_ON = (SourceState.COPYING, SourceState.PAUSED)


def look(now: datetime, going: list[Transfer]) -> None:
    """All sources that copy, and what was copied when it was looked at last."""
    codes = codes_of(DATASET, [transfer.subject for transfer in going])
    copying = Source.objects.filter(state=SourceState.COPYING)
    known = Source.objects.filter(dataset__code__in=codes)
    for pk in {*copying.values_list("pk", flat=True), *known.values_list("pk", flat=True)}:
        look_at_source(pk, now)


def look_at_source(source_id: int, now: datetime) -> None:
    source = _source(source_id)
    if source is None:
        return
    subject = of_dataset(source.dataset.code)
    if source.state in GOES_ON:
        notes.observe(count_of(source, now), now)
        return
    transfer = notes.going(subject)
    if transfer is not None:
        complete = source.state == SourceState.DONE
        last = source.dataset.files.aggregate(at=Max("changed_at"))["at"] if complete else None
        notes.end(transfer, at=max(last or now, transfer.began_at), complete=complete)


def _source(source_id: int) -> Source | None:
    rows = Source.objects.select_related("dataset__team", "connection", "folder")
    return rows.filter(pk=source_id).first()


def count_of(source: Source, now: datetime) -> Count:
    here = here_of(source, now)
    waits = source.next_try_at is not None and source.next_try_at > now
    return Count(
        subject=of_dataset(source.dataset.code),
        way=way_of(source),
        files=source.listed_files,
        bytes=source.listed_bytes,
        files_done=here.files,
        bytes_done=here.bytes,
        files_air=here.files_air,
        bytes_air=here.bytes_air,
        moving=source.state == SourceState.COPYING and not waits,
    )


def way_of(source: Source) -> Way:
    """The link of a source: its kind and endpoint, and the store."""
    match source.kind:
        case SourceKind.S3 if source.connection is not None:
            return Way(LinkKind.S3, source.connection.endpoint, notes.store_name())
        case SourceKind.FOLDER:
            return Way(
                LinkKind.FOLDER, source.folder.code if source.folder else "", notes.store_name()
            )
    return Way(LinkKind.URLS, _host_of(source.addresses), notes.store_name())


def _host_of(addresses: str) -> str:
    """The host of a list's first address: most lists name one host."""
    lines = (line.split() for line in addresses.splitlines())
    first = next((words[0] for words in lines if words and words[0].startswith("https://")), "")
    return urlsplit(first).netloc

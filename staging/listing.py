"""What the pages show of a dataset: totals, one folder at a time, retention in a sentence."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Count, F, Q, QuerySet, Sum

from portal.base.errors import NotFound
from portal.teams.models import Team
from staging.models import Dataset, File, Folder, SourceFile, Upload
from staging.states import TAKES_FILES, DatasetState, FileState, UploadState
from staging.sync.states import SourceFileState

PER_PAGE = 200
MOST_FOLDERS = 5000  # beyond, folders are listed without what is below them
ACTIVE = (DatasetState.TRANSFERRING, DatasetState.VERIFYING, DatasetState.EXPIRING)


@dataclass(frozen=True)
class Totals:
    """Files and bytes of a dataset: listed, arrived (with parts of files), read back."""

    files: int
    size: int
    uploaded: int
    arrived: int
    verified: int

    @property
    def missing(self) -> int:
        return self.files - self.uploaded

    @property
    def percent(self) -> int:
        """Of the bytes; of the files, where there are no bytes. 100 only when all have arrived."""
        if not self.missing:
            return 100 if self.files else 0
        part, whole = (self.arrived, self.size) if self.size else (self.uploaded, self.files)
        return min(99, part * 100 // whole)


def totals_of(dataset: Dataset) -> Totals:
    there = ~Q(state=FileState.EXPECTED)
    sums = dataset.files.aggregate(
        files=Count("pk"),
        uploaded=Count("pk", filter=there),
        whole=Sum("size", filter=there, default=0),
        verified=Count("pk", filter=Q(blob__verified_at__isnull=False) | Q(state=FileState.STAGED)),
        size=Sum("size", default=0),  # last: after it the name means this sum
    )
    parts = Upload.objects.filter(file__dataset=dataset, state=UploadState.OPEN)
    arrived = sums.pop("whole") + parts.aggregate(n=Sum("offset", default=0))["n"]
    if dataset.fed_by:
        begun = SourceFile.objects.filter(source__dataset=dataset, arrived__gt=0)
        begun = begun.exclude(state=SourceFileState.DONE)
        arrived += begun.aggregate(n=Sum("arrived", default=0))["n"]
    return Totals(arrived=arrived, **sums)


def is_open(dataset: Dataset) -> bool:
    """Whether files may be added: nothing was sealed, or it may be taken up again."""
    return dataset.state in TAKES_FILES and dataset.sealed_at is None and not dataset.fed_by


def find_folder(dataset: Dataset, path: str) -> Folder | None:
    """The folder at a path, None for the top. Raises NotFound."""
    if not path:
        return None
    folder = dataset.folders.filter(path=path).first()
    if folder is None:
        raise NotFound("There is no such folder in this dataset.")
    return folder


class _Rows(Sequence[Any]):
    """Folders, then files, as one sequence for the paginator; only a page of it is fetched."""

    def __init__(self, folders: QuerySet[Folder], files: QuerySet[File]) -> None:
        self.folders, self.files = folders, files
        self.folder_count, self.file_count = folders.count(), files.count()

    def __len__(self) -> int:
        return self.folder_count + self.file_count

    def __getitem__(self, part: Any) -> list[Any]:
        start, stop = part.start, part.stop
        folders = list(self.folders[start : min(stop, self.folder_count)])
        first = max(0, start - self.folder_count)
        last = max(0, stop - self.folder_count)
        return folders + list(self.files[first:last])


@dataclass
class Row:
    """One line of the listing; `sent` counts the bytes of a file that have arrived."""

    name: str
    path: str
    is_folder: bool
    size: int | None = None
    files: int | None = None
    state: str = ""
    sent: int = 0
    executable: bool = False
    readable: bool = False


def rows_of(dataset: Dataset, folder: Folder | None, page: str | None) -> Page:
    """One page of what lies directly in a folder."""
    files = (
        File.objects.filter(dataset=dataset, folder=folder)
        .annotate(sent=F("upload__offset"))
        .order_by("path")
    )
    folders = Folder.objects.filter(dataset=dataset, parent=folder).order_by("path")
    found = Paginator(_Rows(folders, files), PER_PAGE).get_page(page)
    below = _below(dataset) if any(isinstance(r, Folder) for r in found.object_list) else {}
    found.object_list = [
        _folder_row(row, below) if isinstance(row, Folder) else _file_row(row)
        for row in found.object_list
    ]
    return found


def _folder_row(folder: Folder, below: dict[int, tuple[int, int]]) -> Row:
    files, size = below.get(folder.pk, (None, None))
    name = folder.path.rpartition("/")[2]
    return Row(name, folder.path, is_folder=True, size=size, files=files)


def _file_row(file: Any) -> Row:
    there = file.state != FileState.EXPECTED
    return Row(
        file.path.rpartition("/")[2],
        file.path,
        is_folder=False,
        size=file.size,
        state=file.state,
        sent=file.size if there else (file.sent or 0),
        executable=file.executable,
        readable=file.blob_id is not None,
    )


def _below(dataset: Dataset) -> dict[int, tuple[int, int]]:
    """(files, bytes) at any depth below each folder; empty when there are too many folders."""
    parents = dict(dataset.folders.values_list("pk", "parent")[: MOST_FOLDERS + 1])
    if len(parents) > MOST_FOLDERS:
        return {}
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    direct = dataset.files.exclude(folder=None).values_list("folder")
    for pk, number, size in direct.annotate(n=Count("pk"), b=Sum("size")):
        above: int | None = pk
        while above is not None:
            counts[above][0] += number
            counts[above][1] += size
            above = parents.get(above)
    return {pk: (number, size) for pk, (number, size) in counts.items()}


def crumbs_of(folder: Folder | None) -> list[tuple[str, str]]:
    """(path, name) of each folder from the top to this one."""
    if folder is None:
        return []
    parts = folder.path.split("/")
    return [("/".join(parts[: n + 1]), part) for n, part in enumerate(parts)]


def policy_sentence(team: Team) -> str:
    """What happens to a dataset whose keeper names no days."""
    if team.policy_days:
        whose = "this portal's" if team.retention_days is None else "your team's"
        return f"{whose} policy, {team.policy_days} days."
    return "no date, as no retention period has been published here."


def retention_sentence(dataset: Dataset) -> str:
    """When it will be deleted and by whose word, before its end; the receipt is another line."""
    if dataset.expires_at is not None:
        return f"Set by {dataset.expiry_set_by}." if dataset.expiry_set_by else ""
    if dataset.expiry_set_by:
        return f"No date: {dataset.expiry_set_by} chose to keep it until your team deletes it."
    if dataset.state == DatasetState.STAGED:
        return (
            "No retention period has been published here. "
            "This data stays until your team deletes it."
        )
    return ""

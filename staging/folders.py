"""The folders of a dataset, and paths that would be a file and a folder at once."""

from staging import names
from staging.entries import Entry
from staging.models import Dataset, File, Folder

BATCH = 500


def collisions(dataset: Dataset, entries: list[Entry]) -> dict[str, str]:
    """Paths that are a folder here while something is a file there, in the batch or before it."""
    paths = {entry.path for entry in entries}
    above = {folder for path in paths for folder in names.folders_of(path)}
    as_files = paths & above | _existing(File, dataset, above)
    as_folders = {
        path for path in _existing(Folder, dataset, paths) if not _drop_if_empty(dataset, path)
    }
    found = {}
    for path in sorted(paths):
        blocked = next((f for f in names.folders_of(path) if f in as_files - paths), "")
        if blocked:
            found[path] = f"“{names.shown(blocked)}” is a file in this dataset, not a folder."
        elif path in as_files or path in as_folders:
            found[path] = "It is both a file and a folder in this dataset."
    return found


def _drop_if_empty(dataset: Dataset, folder: str) -> bool:
    """Forget a folder whose files were all taken away; whether it was one."""
    below = File.objects.filter(dataset=dataset, path__startswith=f"{folder}/")
    if any(path.startswith(f"{folder}/") for path in below.values_list("path", flat=True)):
        return False
    Folder.objects.filter(dataset=dataset, path=folder).delete()
    return True


def _existing(model: type[File] | type[Folder], dataset: Dataset, paths: set[str]) -> set[str]:
    found: set[str] = set()
    listed = sorted(paths)
    for start in range(0, len(listed), BATCH):
        rows = model.objects.filter(dataset=dataset, path__in=listed[start : start + BATCH])
        found.update(rows.values_list("path", flat=True))
    return found


def make_folders(dataset: Dataset, paths: list[str]) -> dict[str, int]:
    """Primary keys of all folders of these paths; missing rows are made, outermost first."""
    wanted = {folder for path in paths for folder in names.folders_of(path)}
    known: dict[str, int] = {}
    listed = sorted(wanted)
    for start in range(0, len(listed), BATCH):
        rows = Folder.objects.filter(dataset=dataset, path__in=listed[start : start + BATCH])
        known |= dict(rows.values_list("path", "pk"))
    for depth in sorted({path.count("/") for path in wanted - known.keys()}):
        level = sorted(p for p in wanted - known.keys() if p.count("/") == depth)
        made = Folder.objects.bulk_create(
            [
                Folder(dataset=dataset, path=p, parent_id=known.get(p.rpartition("/")[0]))
                for p in level
            ],
            batch_size=BATCH,
        )
        known |= {folder.path: folder.pk for folder in made}
    return known

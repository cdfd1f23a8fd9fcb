"""Data: which datasets, or parts of them, the job reads, and where it finds them."""

import re
from dataclasses import dataclass
from functools import cached_property

from django import forms
from django.core.exceptions import ValidationError

from jobs.forms.fields import BlockField, refuse_controls
from jobs.forms.rows import RowForm
from jobs.models import After
from jobs.tree import Branch, top_folders, tree
from portal.teams.models import Team
from staging.models import Dataset
from staging.selection import matcher
from staging.states import DatasetKind, DatasetState

MOST_INPUTS = 50
MOST_PATTERNS = 100
LONGEST_PATTERN = 500
MOST_TICKS = 200
MOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def offered(team: Team) -> list[Dataset]:
    """What a job of the team may read: inputs on their way or here, outputs that are complete."""
    usable = Dataset.objects.of_team(team).usable()
    outputs = usable.filter(kind=DatasetKind.OUTPUT, state=DatasetState.STAGED)
    return list(usable.filter(kind=DatasetKind.INPUT) | outputs)


def folder_name(name: str) -> str:
    """A dataset's name as a folder name: what a person would type for it."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
    return plain[:100]


class Offer:
    """The datasets a form may name, and their files, each listed once however many rows ask."""

    def __init__(self, team: Team) -> None:
        self.datasets = {dataset.code: dataset for dataset in offered(team)}
        self._listings: dict[str, list[tuple[str, int]]] = {}

    def chosen(self, dataset: Dataset, patterns: list[str]) -> list[tuple[str, int]]:
        """(path, bytes) of the files that `patterns` choose."""
        if dataset.code not in self._listings:
            rows = dataset.files.order_by("path").values_list("path", "size")
            self._listings[dataset.code] = list(rows.iterator())
        wanted = matcher(patterns)
        return [row for row in self._listings[dataset.code] if wanted.fullmatch(row[0])]


def clean_pattern(text: str, what: str) -> str:
    """A relative pattern with plain parts, or ValidationError."""
    refuse_controls(text, what)
    if len(text) > LONGEST_PATTERN:
        raise ValidationError(f"{what} can have at most {LONGEST_PATTERN} characters.")
    if text.startswith(("/", "~")) or "\\" in text:
        raise ValidationError(f"{what} must be relative, like results/*.csv.")
    if any(part in {".", ".."} for part in text.split("/")) or "//" in text:
        raise ValidationError(f"{what} must not contain “.”, “..” or empty parts.")
    return text


@dataclass
class Part:
    """What an input row chooses so far: the page shows it before anything is submitted."""

    dataset: Dataset
    mount: str
    files: int
    bytes: int
    branch: Branch

    @property
    def complete(self) -> bool:
        return self.dataset.state == DatasetState.STAGED


class InputForm(RowForm):
    SAYS = ("dataset", "mount", "tops", "patterns")
    dataset = forms.ChoiceField(
        label="Dataset", required=False, help_text="In the store, or on its way to it."
    )
    mount = forms.CharField(
        label="Folder name under /data",
        required=False,
        help_text="Left empty: made from the dataset's name, in small letters of a to z, digits, "
        "“.”, “_” and “-”; “Zahlen ü” becomes zahlen.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    tops = forms.MultipleChoiceField(
        label="Only these folders", required=False, widget=forms.CheckboxSelectMultiple
    )
    patterns = BlockField(
        what="The patterns",
        label="Only files that fit",
        most_bytes=64 * 2**10,
        rows=2,
        required=False,
        help_text="One pattern a line, like *.csv or 2026/**. Nothing ticked or typed: all files.",
    )
    split = forms.ChoiceField(
        label="Each piece gets",
        choices=[("", "the whole of it"), ("files", "its own part of the files")],
        required=False,
        error_messages={"invalid_choice": "Choose whether pieces share or split the files."},
    )
    after = forms.ChoiceField(
        label="When the job has ended",
        choices=After.choices,
        initial=After.KEEP,
        required=False,
        error_messages={"invalid_choice": "Choose whether the dataset is kept or deleted."},
    )

    def __init__(self, *args: object, offer: Offer, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.offer = offer
        labels = [(d.code, f"{d.name} ({d.state})") for d in offer.datasets.values()]
        self.fields["dataset"].choices = [("", "Choose a dataset"), *labels]  # type: ignore[attr-defined]
        self.ticks = self._ticks()
        self.fields["tops"].choices = [(top.name, top.name) for top in self.ticks]  # type: ignore[attr-defined]
        self.fields["dataset"].error_messages["invalid_choice"] = (
            "This dataset is not here any more. Choose another."
        )
        self.fields["tops"].error_messages["invalid_choice"] = (
            "A ticked folder is not in this dataset. Tick again."
        )

    @property
    def chosen(self) -> Dataset | None:
        """The dataset that the row names now, right or wrong in everything else."""
        return self.offer.datasets.get(str(self["dataset"].value() or ""))

    def _ticks(self) -> list[Branch]:
        if self.chosen is None:
            return []
        return top_folders(self.offer.chosen(self.chosen, []))[:MOST_TICKS]

    @property
    def tops_with_state(self) -> list[tuple[Branch, bool]]:
        ticked = set(self["tops"].value() or [])
        return [(top, top.name in ticked) for top in self.ticks]

    @property
    def part_is_open(self) -> bool:
        wrong = self.is_bound and ("tops" in self.errors or "patterns" in self.errors)
        return bool(wrong or self["tops"].value() or self["patterns"].value())

    def clean_dataset(self) -> Dataset:
        dataset = self.offer.datasets.get(self.cleaned_data["dataset"])
        if dataset is None:
            raise ValidationError("Choose a dataset, or remove the row.")
        return dataset

    def clean_patterns(self) -> list[str]:
        lines = [line.strip() for line in self.cleaned_data["patterns"].split("\n")]
        patterns = [clean_pattern(line, "A pattern") for line in lines if line]
        if len(patterns) > MOST_PATTERNS:
            raise ValidationError(f"At most {MOST_PATTERNS} patterns are accepted.")
        return patterns

    def clean(self) -> dict[str, object]:
        values = self.cleaned_data
        dataset = values.get("dataset")
        if dataset is None:
            return values
        self._clean_mount(dataset)
        if "tops" in values and "patterns" in values:
            values["patterns"] = [*values["tops"], *values["patterns"]]
            self._count(dataset, values["patterns"])
        return values

    def _clean_mount(self, dataset: Dataset) -> None:
        mount = self.cleaned_data.get("mount") or folder_name(dataset.name)
        if not mount:
            self.add_error("mount", "Give the folder under /data a name.")
        elif not MOUNT.fullmatch(mount):
            self.add_error(
                "mount",
                "A folder name has letters, digits, “.”, “_” and “-” only, begins with a letter, "
                "a digit or “_”, and has at most 100 characters.",
            )
        else:
            self.cleaned_data["mount"] = mount

    def _count(self, dataset: Dataset, patterns: list[str]) -> None:
        files = self.offer.chosen(dataset, patterns)
        self.cleaned_data["files"] = len(files)
        self.cleaned_data["bytes"] = sum(size for _, size in files)
        if not files and dataset.state == DatasetState.STAGED:
            self.add_error("patterns", f"No file of {dataset.name} is in these folders or fits.")

    @cached_property
    def part(self) -> Part | None:
        """What the row chooses now; unreadable patterns choose nothing yet."""
        if self.chosen is None:
            return None
        name = self.chosen.name
        mount = str(self["mount"].value() or "").strip() or folder_name(name) or "…"
        branch = tree(mount, self.offer.chosen(self.chosen, self._patterns_so_far()))
        return Part(self.chosen, mount, branch.files, branch.bytes, branch)

    def _patterns_so_far(self) -> list[str]:
        typed = str(self["patterns"].value() or "").replace("\0", "\ufffd").split("\n")
        ticked = [str(top) for top in self["tops"].value() or []]
        lines = [line.strip()[:LONGEST_PATTERN] for line in [*ticked, *typed]]
        return [line for line in lines if line][:MOST_PATTERNS]

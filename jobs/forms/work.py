"""Work: what runs, how it starts, and the variables it gets."""

import re
from collections.abc import Iterable

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile

from jobs.code import CodeFile, read_folder, read_zip
from jobs.forms.fields import BlockField, LineField
from jobs.forms.rows import RowForm
from jobs.models import Language, Runtime, WorkKind

LARGEST_SCRIPT = 256 * 2**10
LARGEST_COMMAND = 16 * 2**10
LARGEST_VALUE = 32 * 2**10
MOST_VARIABLES = 100
# What the node sets itself, or what would change how the work is started.
TAKEN_NAMES = {
    "HOME", "TMPDIR", "PATH", "PWD", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS",
    "PYTHONHOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
}  # fmt: skip
TAKEN_STARTS = ("E31_", "LD_", "BASH_FUNC_")


class FolderInput(forms.FileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Any number of files; the list is empty where none was sent. Empty files are files."""

    widget = FolderInput

    def clean(self, data: object, initial: object = None) -> list[UploadedFile]:
        return [file for file in data if file] if isinstance(data, list) else []


class WorkForm(forms.Form):
    use_required_attribute = False

    name = LineField(
        what="The name",
        label="Name of the job",
        max_length=120,
        help_text="What your team will see in lists.",
        error_messages={"required": "Give the job a name."},
    )
    work_kind = forms.ChoiceField(
        label="The work is",
        choices=WorkKind.choices,
        initial=WorkKind.SCRIPT,
        widget=forms.RadioSelect,
        error_messages={
            "required": "Say whether the work is a script, a command line or code.",
            "invalid_choice": "Say whether the work is a script, a command line or code.",
        },
    )
    language = forms.ChoiceField(
        label="Language",
        choices=Language.choices,
        initial=Language.PYTHON,
        required=False,
        error_messages={"invalid_choice": "The language must be Bash or Python."},
    )
    script = BlockField(
        what="The script",
        label="Script",
        most_bytes=LARGEST_SCRIPT,
        rows=12,
        required=False,
        help_text="Reads $E31_DATA (/data), writes to $E31_OUTPUT (/output). At most 256 KiB.",
    )
    command = BlockField(
        what="The command line",
        label="Command line",
        most_bytes=LARGEST_COMMAND,
        rows=2,
        required=False,
        help_text="Run by bash, for example: sha256sum /data/readings/* > /output/sums.txt",
    )
    code_zip = forms.FileField(
        label="Code as a zip file",
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput(attrs={"accept": ".zip,application/zip"}),
    )
    code_folder = FilesField(
        label="or as a folder",
        required=False,
        help_text="The browser sends every file in it.",
        widget=FolderInput(attrs={"webkitdirectory": True}),
    )
    start = BlockField(
        what="The start command",
        label="Start command",
        most_bytes=LARGEST_COMMAND,
        rows=2,
        required=False,
        help_text="Run by bash in the folder of the code, for example: python main.py --epochs 4",
    )
    finish_command = BlockField(
        what="The finish command",
        label="Finish command",
        most_bytes=LARGEST_COMMAND,
        rows=2,
        required=False,
        help_text=(
            "Runs once, as a last piece, when all others succeeded. Their outputs lie under /data, "
            "each in a folder of its piece's number: /data/0, /data/1 and so on."
        ),
    )
    runtime = forms.ChoiceField(
        label="Runtime",
        choices=Runtime.choices,
        initial=Runtime.NODE,
        required=False,
        error_messages={"invalid_choice": "Choose a runtime of the list."},
    )

    def __init__(self, *args: object, kept_code: bool = False, **kwargs: object) -> None:
        """`kept_code`: the draft already has code in the store."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.kept_code = kept_code
        limit = settings.LARGEST_CODE_BYTES / 2**20
        self.fields["code_zip"].help_text = f"At most {limit:g} MiB, packed and unpacked."
        self.code_files: list[CodeFile] = []

    def clean_language(self) -> str:
        return self.cleaned_data["language"] or Language.PYTHON

    def clean_runtime(self) -> str:
        return self.cleaned_data["runtime"] or Runtime.NODE

    def clean(self) -> dict[str, object]:
        kind = self.cleaned_data.get("work_kind")
        if kind == WorkKind.SCRIPT:
            self._require("script", "Write the script, or choose another kind of work.")
        if kind == WorkKind.COMMAND:
            self._require("command", "Write the command line, or choose another kind of work.")
        if kind == WorkKind.CODE:
            self._require("start", "Say which command starts the code.")
        self._clean_code(needed=kind == WorkKind.CODE)
        return self.cleaned_data

    def _require(self, field: str, sentence: str) -> None:
        if field not in self.errors and not self.cleaned_data.get(field):
            self.add_error(field, sentence)

    def _clean_code(self, *, needed: bool) -> None:
        archive, folder = self.cleaned_data.get("code_zip"), self.cleaned_data.get("code_folder")
        if archive and folder:
            self.add_error("code_zip", "Choose a zip file or a folder, not both.")
        elif archive:
            self._take_code("code_zip", lambda: read_zip(archive))
        elif folder:
            self._take_code("code_folder", lambda: read_folder(folder))
        elif needed and not self.kept_code and "code_zip" not in self.errors:
            self.add_error("code_zip", "Choose a zip file or a folder with the code.")

    def _take_code(self, field: str, read) -> None:
        try:
            self.code_files = read()
        except ValidationError as error:
            self.add_error(field, error)


class VariableForm(RowForm):
    """One variable. A secret's value is taken in and never shown again.

    `kept` names the draft's stored secret whose value stays when the box is empty.
    """

    SAYS = ("name", "value", "secret")
    name = LineField(what="The name", label="Name", max_length=128, required=False)
    value = BlockField(
        what="The value", label="Value", most_bytes=LARGEST_VALUE, rows=1, required=False
    )
    secret = forms.BooleanField(label="Secret", required=False)
    kept = forms.CharField(required=False, max_length=128, widget=forms.HiddenInput)

    def __init__(self, *args: object, stored: Iterable[str] = (), **kwargs: object) -> None:
        """`stored`: the names of secrets whose encrypted values the draft holds."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.stored = frozenset(stored)

    @property
    def kept_name(self) -> str:
        """The stored secret this row stands for, or empty."""
        name = str(self["kept"].value() or self["name"].value() or "")
        return name if name in self.stored and self["secret"].value() else ""

    @property
    def shown_value(self) -> str:
        """What the page may show: never a secret's value."""
        return "" if self["secret"].value() else str(self["value"].value() or "")

    def clean_name(self) -> str:
        name = self.cleaned_data["name"]
        if not name:
            raise ValidationError("Give the variable a name, or remove the row.")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValidationError(
                "A variable's name has letters, digits and _ only, and does not begin with a digit."
            )
        if name in TAKEN_NAMES or name.startswith(TAKEN_STARTS):
            raise ValidationError(f"{name} is set by the node and cannot be declared.")
        return name

    def clean(self) -> dict[str, object]:
        values = self.cleaned_data
        if values.get("secret"):
            if "value" in values and not values["value"] and not self.kept_name:
                self.add_error("value", "Type the secret's value; none is stored for it.")
        elif values.get("kept") in self.stored and values.get("kept") and not values.get("value"):
            self.add_error("value", "Type the value again: a stored secret is never shown.")
        return values

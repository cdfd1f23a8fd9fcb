"""Request: the compute each piece needs, for how long, in how many pieces, by when."""

from datetime import datetime

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from jobs.forms.fields import GibField, HoursField, WholeField

MOST_GPUS = 1024
MOST_SHARDS = 10_000
MOST_RETRIES = 10


class RequestForm(forms.Form):
    use_required_attribute = False
    MORE = ("gpu_memory", "cpus", "memory", "scratch", "parallel", "retries", "finish_gpus")

    gpus = WholeField(
        what="GPUs",
        label="GPUs for each piece",
        least=0,
        most=MOST_GPUS,
        initial="1",
        help_text="0 runs on CPUs only.",
    )
    hours = HoursField(
        label="Hours",
        initial="1",
        help_text="For one piece at most: 4, 0.5, 30 min, 1:30. "
        f"SIGTERM comes up to {settings.TERM_MARGIN.seconds} s before the end.",
    )
    shards = WholeField(
        what="Pieces",
        label="Pieces",
        least=1,
        most=MOST_SHARDS,
        initial="1",
        help_text="The work runs once for each.",
    )
    needed_by = forms.DateTimeField(
        label="Needed by (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"],
        error_messages={"invalid": "Write the date and time as 2026-11-30 18:00, in UTC."},
    )
    gpu_memory = GibField(
        what="GPU memory",
        label="GPU memory at least, GiB",
        least="0",
        most=4096,
        required=False,
        initial="0",
        help_text="0: any GPU fits.",
    )
    cpus = WholeField(what="CPUs", label="CPUs", least=1, most=1024, initial="1")
    memory = GibField(what="Memory", label="Memory, GiB", least="0.0625", most=65_536, initial="1")
    scratch = GibField(
        what="Scratch disk",
        label="Scratch disk, GiB",
        least="0.0625",
        most=1_048_576,
        initial="1",
        help_text="For code, output and temporary files.",
    )
    parallel = WholeField(
        what="The most pieces at once",
        label="Most pieces at once",
        least=1,
        most=MOST_SHARDS,
        required=False,
        help_text="Empty: as many as there is room for.",
    )
    retries = WholeField(
        what="Retries",
        label="Retries of the work",
        least=0,
        most=MOST_RETRIES,
        required=False,
        initial="0",
        help_text="When it fails by itself; each counts.",
    )
    finish_gpus = WholeField(
        what="GPUs of the finish step",
        label="GPUs for the finish step",
        least=0,
        most=MOST_GPUS,
        required=False,
        initial="0",
    )

    def clean_needed_by(self) -> datetime | None:
        at = self.cleaned_data["needed_by"]
        if at is not None and at <= timezone.now():
            raise ValidationError("This time has passed. Choose one in the future.")
        return at

    @property
    def more_is_open(self) -> bool:
        """Whether a field under More differs from what it says by default, or is wrong."""
        return any(
            (self.is_bound and name in self.errors)
            or str(self[name].value() or "") != str(self.fields[name].initial or "")
            for name in self.MORE
        )

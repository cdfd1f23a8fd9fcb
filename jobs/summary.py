"""The job restated as a sentence, and the arithmetic of what it can cost at most."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError

from jobs.cap import most_gpu_ms
from jobs.forms.fields import gib_text
from jobs.forms.whole import JobForm
from jobs.models import Language, WorkKind
from portal.base.words import in_bytes, in_hms, in_utc

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NOT_PUBLISHED = "No rate has been published here. Nothing on this page is a price."


@dataclass
class Ask:
    """What a job asks for, as far as it can be read; None where it cannot."""

    gpus: int | None = None
    hours: timedelta | None = None
    shards: int | None = None
    retries: int = 0
    finish: bool = False
    finish_gpus: int = 0
    gpu_memory: int = 0
    parallel: int | None = None
    needed_by: datetime | None = None
    work: str = "the work"
    data: list[tuple[str, int, int]] = field(default_factory=list)  # name, files, bytes
    paths: list[str] = field(default_factory=list)

    @property
    def known(self) -> bool:
        return None not in (self.gpus, self.hours, self.shards)


def ask_of_form(form: JobForm) -> Ask:
    request = form.request
    return Ask(
        gpus=_read(request, "gpus"),
        hours=_read(request, "hours"),
        shards=_read(request, "shards"),
        retries=_read(request, "retries") or 0,
        finish=bool(str(form.work["finish_command"].value() or "").strip()),
        finish_gpus=_read(request, "finish_gpus") or 0,
        gpu_memory=_read(request, "gpu_memory") or 0,
        parallel=_read(request, "parallel"),
        needed_by=_read(request, "needed_by"),
        work=work_words(form.kind, str(form.work["language"].value() or "")),
        data=[(p.dataset.name, p.files, p.bytes) for f in form.inputs if (p := f.part)],
        paths=[str(f["pattern"].value() or "").strip() for f in form.paths.said],
    )


def _read(form: forms.Form, name: str):
    """The field's value as typed so far, or None while it cannot be read."""
    try:
        return form.fields[name].clean(form[name].value())
    except ValidationError:
        return None


def work_words(kind: str, language: str) -> str:
    if kind == WorkKind.COMMAND:
        return "a command line"
    if kind == WorkKind.CODE:
        return "a folder of code"
    return "a Bash script" if language == Language.BASH else "a Python script"


def number_word(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def length_words(length: timedelta) -> str:
    """ "four hours", "half an hour", "90 seconds", else h:mm:ss."""
    seconds = int(length.total_seconds())
    if seconds == 1800:
        return "half an hour"
    for size, unit in ((3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % size == 0 and (size == 3600 or seconds < 5400):
            count = seconds // size
            return f"{number_word(count)} {unit}{'' if count == 1 else 's'}"
    return in_hms(length)


def sentence(ask: Ask) -> str:
    """ "Two GPUs for four hours on each of three pieces, to run …" """
    if ask.gpus is None or ask.hours is None or ask.shards is None:
        return "Fill in GPUs, hours and pieces, and the job is restated here."
    compute = (
        "CPUs only"
        if ask.gpus == 0
        else f"{number_word(ask.gpus).capitalize()} GPU{'' if ask.gpus == 1 else 's'}"
    )
    if ask.gpus and ask.gpu_memory:
        compute += f" of at least {gib_text(ask.gpu_memory)} GiB"
    words = f"{compute} for {length_words(ask.hours)}"
    if ask.shards > 1:
        words += f" for each of {number_word(ask.shards)} pieces"
        if ask.parallel and ask.parallel < ask.shards:
            words += f", at most {number_word(ask.parallel)} at once"
    words += f", to run {ask.work} on {_data_words(ask.data)}"
    if ask.finish:
        words += ", then a finish step on the outputs"
    if ask.needed_by:
        words += f", needed by {in_utc(ask.needed_by)}"
    return words + "."


def _data_words(data: list[tuple[str, int, int]]) -> str:
    if not data:
        return "no data"
    names = [name for name, _, _ in data]
    shown = names[0] if len(names) == 1 else f"{number_word(len(names))} datasets"
    files = sum(count for _, count, _ in data)
    size = in_bytes(sum(size for _, _, size in data))
    return f"{shown} ({files:,} file{'' if files == 1 else 's'}, {size})"


@dataclass(frozen=True)
class Arithmetic:
    """What a form shows before submit. `formula` and `most` are empty for a job on CPUs only."""

    formula: str
    most: str
    held: str
    retries: str
    rate: str


def arithmetic(ask: Ask) -> Arithmetic | None:
    """The most that can be counted: GPUs x (hours + output window) x pieces, per attempt."""
    if ask.gpus is None or ask.hours is None or ask.shards is None:
        return None
    each = (ask.hours + settings.OUTPUT_WINDOW).total_seconds() / 3600
    finish = ask.finish_gpus if ask.finish else 0
    tries = 1 + ask.retries
    most = most_gpu_ms(
        gpus=ask.gpus, shards=ask.shards, hours=ask.hours, finish_gpus=finish, retries=ask.retries
    )
    gpu_time = most / 3_600_000
    held = each * (ask.shards + int(ask.finish)) * tries
    length = f"({in_hms(ask.hours)} + {in_hms(settings.OUTPUT_WINDOW)})"
    formula = f"{ask.gpus} × {length} × {ask.shards}"
    if finish:
        formula += f" + {finish} × {length}"
    if ask.retries:
        formula = f"({formula}) × {tries}" if finish else f"{formula} × {tries}"
    return Arithmetic(
        formula=formula if gpu_time else "",
        most=f"{gpu_time:,.2f}" if gpu_time else "",
        held=f"{held:,.2f}",
        retries=f"The factor {tries} is the first attempt and {ask.retries} "
        f"retr{'y' if ask.retries == 1 else 'ies'} of each piece."
        if ask.retries
        else "",
        rate=settings.RATE_TEXT or NOT_PUBLISHED,
    )

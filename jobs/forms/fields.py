"""Fields that take what people type and return domain values, each with its own sentence."""

import re
from datetime import timedelta
from decimal import Decimal

from django import forms
from django.core.exceptions import ValidationError

from portal.base.unseen import unseen_in

GIB = 2**30
LONGEST = timedelta(days=366)
HOURS_SENTENCE = "Write hours as 4, 0.5, 4h, 30 min or 1:30."

_NUMBER = r"(\d{1,6}(?:[.,]\d{1,6})?)"
_PLAIN = re.compile(_NUMBER)
_CLOCK = re.compile(r"(\d{1,6}):([0-5]?\d)(?::([0-5]?\d))?")
_UNITS = {
    "d": 86400, "day": 86400, "days": 86400,
    "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
}  # fmt: skip
_PART = re.compile(_NUMBER + r"\s*([a-z]+)\s*")
# "1h30" is read as people mean it: the bare rest after hours is minutes.
_HOURS_REST = re.compile(r"(\d{1,6})\s*h\s*([0-5]?\d)")


def parse_hours(text: str) -> timedelta:
    """A length of time from what a person typed; a bare number is hours.

    Whole milliseconds, from one second to 366 days. Raises ValidationError with one sentence.
    """
    seconds = _seconds(text.strip().lower())
    if seconds is None:
        raise ValidationError(HOURS_SENTENCE)
    length = timedelta(milliseconds=int(seconds * 1000))
    if length < timedelta(seconds=1):
        raise ValidationError("The time must be at least one second.")
    if length > LONGEST:
        raise ValidationError("The time can be at most 366 days (8784 hours).")
    return length


def _seconds(text: str) -> Decimal | None:
    if not text.isascii():
        return None
    if match := _PLAIN.fullmatch(text):
        return _decimal(match[1]) * 3600
    if match := _CLOCK.fullmatch(text):
        return Decimal(int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0))
    if match := _HOURS_REST.fullmatch(text):
        return Decimal(int(match[1]) * 3600 + int(match[2]) * 60)
    return _sum_of_units(text)


def _sum_of_units(text: str) -> Decimal | None:
    """ "1 h 30 min" as seconds; each unit once, largest first."""
    total, position, last = Decimal(0), 0, 10**9
    while position < len(text):
        match = _PART.match(text, position)
        unit = _UNITS.get(match[2]) if match else None
        if match is None or unit is None or unit >= last:
            return None
        total, position, last = total + _decimal(match[1]) * unit, match.end(), unit
    return total if position else None


def _decimal(text: str) -> Decimal:
    return Decimal(text.replace(",", "."))


def hours_text(length: timedelta) -> str:
    """What a person would type for this length: "4", "0.5", "1:30:05"; `parse_hours` reads it."""
    seconds = int(length.total_seconds())
    if seconds % 1800 == 0:
        return f"{seconds / 3600:g}"
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}" + (f":{seconds:02}" if seconds else "")


def gib_text(size: int) -> str:
    """Bytes as the GiB a person would type, to three decimals."""
    return f"{size / GIB:.3f}".rstrip("0").rstrip(".") or "0"


def refuse_controls(text: str, what: str) -> None:
    """Control characters make a name show as something else than it is."""
    if found := unseen_in(text):
        raise ValidationError(f"{what} holds {found}, which cannot be seen. Type it again.")


class LineField(forms.CharField):
    """One line of text without control characters."""

    def __init__(self, *, what: str, **kwargs: object) -> None:
        self.what = what
        super().__init__(**kwargs)  # type: ignore[arg-type]

    def to_python(self, value: object) -> str:
        text = super().to_python(value) or ""
        refuse_controls(text, self.what)
        if self.max_length and len(text) > self.max_length:
            raise ValidationError(f"{self.what} can have at most {self.max_length} characters.")
        return text

    def run_validators(self, value: object) -> None:
        """Length and characters were checked above, in our own words."""


class BlockField(forms.CharField):
    """Lines of text as typed (line ends as \\n), up to `most_bytes` of UTF-8."""

    def __init__(self, *, what: str, most_bytes: int, rows: int = 3, **kwargs: object) -> None:
        self.what, self.most_bytes = what, most_bytes
        area = forms.Textarea(attrs={"rows": rows, "spellcheck": "false", "class": "code"})
        super().__init__(strip=False, widget=area, **kwargs)  # type: ignore[arg-type]

    def to_python(self, value: object) -> str:
        text = str(value or "").replace("\r\n", "\n").replace("\r", "\n")
        if "\0" in text:
            raise ValidationError(f"{self.what} holds a NUL character. Remove it.")
        size = len(text.encode(errors="replace"))
        if size > self.most_bytes:
            raise ValidationError(
                f"{self.what} is {size:,} bytes long; at most {self.most_bytes:,} are accepted."
            )
        return text if text.strip() else ""

    def run_validators(self, value: object) -> None:
        """Checked above, in our own words."""


class WholeField(forms.Field):
    """A whole number between two limits. Empty is None unless required."""

    def __init__(self, *, what: str, least: int, most: int, **kwargs: object) -> None:
        self.what, self.least, self.most = what, least, most
        attrs = {"inputmode": "numeric", "autocomplete": "off", "class": "number"}
        super().__init__(widget=forms.TextInput(attrs=attrs), **kwargs)  # type: ignore[arg-type]
        self.error_messages["required"] = self.sentence

    @property
    def sentence(self) -> str:
        return f"{self.what} must be a whole number from {self.least:,} to {self.most:,}."

    def to_python(self, value: object) -> int | None:
        text = str(value if value is not None else "").strip()
        if not text:
            return None
        if not re.fullmatch(r"[0-9]{1,12}", text) or not self.least <= int(text) <= self.most:
            raise ValidationError(self.sentence)
        return int(text)


class GibField(forms.Field):
    """An amount of GiB, returned in bytes. Empty is None unless required."""

    def __init__(self, *, what: str, least: str, most: int, **kwargs: object) -> None:
        self.what, self.least, self.most = what, least, most
        attrs = {"inputmode": "decimal", "autocomplete": "off", "class": "number"}
        super().__init__(widget=forms.TextInput(attrs=attrs), **kwargs)  # type: ignore[arg-type]
        self.error_messages["required"] = self.sentence

    @property
    def sentence(self) -> str:
        return f"{self.what} must be a number of GiB from {self.least} to {self.most:,}."

    def to_python(self, value: object) -> int | None:
        text = str(value if value is not None else "").strip()
        if not text:
            return None
        match = re.fullmatch(r"([0-9]{1,9}(?:[.,][0-9]{1,6})?)\s*(?:gib?)?", text.lower())
        if match is None or not Decimal(self.least) <= _decimal(match[1]) <= self.most:
            raise ValidationError(self.sentence)
        return int(_decimal(match[1]) * GIB)


class HoursField(forms.Field):
    """Hours as people write them, returned as a timedelta."""

    def __init__(self, **kwargs: object) -> None:
        attrs = {"autocomplete": "off", "class": "number"}
        super().__init__(widget=forms.TextInput(attrs=attrs), **kwargs)  # type: ignore[arg-type]
        self.error_messages["required"] = "Say for how many hours. " + HOURS_SENTENCE

    def to_python(self, value: object) -> timedelta | None:
        text = str(value if value is not None else "").strip()
        return parse_hours(text) if text else None

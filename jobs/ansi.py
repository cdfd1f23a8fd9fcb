"""Terminal output as HTML: colors become classes, everything else is text.

A page shows what untrusted work wrote. Every character is escaped; of the escape sequences only
colors and weights (SGR) have an effect, the others vanish; nothing else can reach the page.
"""

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

# CSI ... final byte; OSC and other strings up to BEL or ST; two-character escapes; a cut-off one.
_SEQUENCE = re.compile(
    r"\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?|\x9b"
)
_SGR = re.compile(r"[0-9;:]{0,64}")
MOST_SPANS = 500  # a line that changes color at every letter is cut to plain text after these


@dataclass(frozen=True)
class Look:
    """How the terminal would show what follows."""

    fore: int | None = None
    back: int | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False

    @property
    def classes(self) -> str:
        names = [f"ansi-{n}" for n in ("bold", "dim", "italic", "underline") if getattr(self, n)]
        if self.fore is not None:
            names.append(f"ansi-fg-{self.fore}")
        if self.back is not None:
            names.append(f"ansi-bg-{self.back}")
        return " ".join(names)


PLAIN = Look()
_SWITCHES: dict[int, dict[str, Any]] = {
    1: {"bold": True}, 2: {"dim": True}, 3: {"italic": True}, 4: {"underline": True},
    22: {"bold": False, "dim": False}, 23: {"italic": False}, 24: {"underline": False},
    39: {"fore": None}, 49: {"back": None},
}  # fmt: skip


def line_html(raw: bytes, look: Look) -> tuple[SafeString, Look]:
    """One line as HTML, and the look that the next line begins with."""
    spans: list[tuple[str, str]] = []
    text = last_state(raw.decode("utf-8", errors="replace"))
    position = 0
    for match in _SEQUENCE.finditer(text):
        if match.start() > position:
            spans.append((look.classes, text[position : match.start()]))
        position = match.end()
        if match[2] == "m" and _SGR.fullmatch(match[1]):
            look = changed(look, match[1])
        if len(spans) >= MOST_SPANS:
            break
    rest = _SEQUENCE.sub("", text[position:])
    if rest:
        spans.append((look.classes, rest))
    return _joined(spans), look


def _joined(spans: list[tuple[str, str]]) -> SafeString:
    return format_html_join(
        "",
        "{}",
        (
            (
                format_html('<span class="{}">{}</span>', classes, shown(part))
                if classes
                else shown(part),
            )
            for classes, part in spans
        ),
    ) or mark_safe("")


def last_state(line: str) -> str:
    """What a carriage return leaves of a line: progress bars redraw themselves with it."""
    states = [part for part in line.removesuffix("\r").split("\r") if part]
    return states[-1] if states else ""


def shown(text: str) -> str:
    """Control and direction characters as U+FFFD, so that no line looks like what it is not."""
    return "".join(
        c if c == "\t" or unicodedata.category(c) not in {"Cc", "Cf", "Cs"} else "\ufffd"
        for c in text
    )


def changed(look: Look, parameters: str) -> Look:
    """`look` after one SGR sequence; what is not known changes nothing."""
    codes = [int(code or 0) % 1000 for code in re.split("[;:]", parameters or "0")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            look = PLAIN
        elif code in (38, 48):
            color, codes = _extended(codes)
            if color is not None:
                look = replace(look, fore=color) if code == 38 else replace(look, back=color)
        elif (named := _named(code)) is not None:
            look = replace(look, **named)
    return look


def _named(code: int) -> dict[str, Any] | None:
    for start, side, first in ((30, "fore", 0), (40, "back", 0), (90, "fore", 8), (100, "back", 8)):
        if start <= code < start + 8:
            return {side: first + code - start}
    return _SWITCHES.get(code)


def _extended(codes: list[int]) -> tuple[int | None, list[int]]:
    """The color after 38 or 48, as the nearest of the sixteen, and the codes that follow it."""
    if codes[:1] == [5] and len(codes) >= 2:
        return _of_256(codes[1]), codes[2:]
    if codes[:1] == [2] and len(codes) >= 4:
        return _nearest(codes[1], codes[2], codes[3]), codes[4:]
    return None, []


def _of_256(number: int) -> int | None:
    if number > 255:
        return None
    if number < 16:
        return number
    if number >= 232:
        gray = 8 + (number - 232) * 10
        return _nearest(gray, gray, gray)
    red, rest = divmod(number - 16, 36)
    green, blue = divmod(rest, 6)
    return _nearest(red * 51, green * 51, blue * 51)


def _nearest(red: int, green: int, blue: int) -> int:
    """One of sixteen: a bit for each channel near the strongest, bright if that is strong."""
    top = max(red, green, blue)
    if top < 64:
        return 0
    bits = sum(bit for bit, value in ((1, red), (2, green), (4, blue)) if value * 2 > top)
    if bits == 7 and top < 170:
        return 8
    return bits + (8 if top > 200 else 0)

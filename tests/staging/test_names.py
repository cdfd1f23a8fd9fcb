"""Names of files: what is accepted arrives as it is, what is refused is refused with a sentence."""

import pytest

from staging import names

ACCEPTED = [
    "a",
    "-rf",
    "--help/x",
    "with space/and 'quote'",
    'double "quote"',
    "100%/50%25",
    "emoji 🌡️/…",
    "caf\u00e9",
    "cafe\u0301",
    "a" * 255,
    "é" * 127,
    "a.b.c",
    "...",
    " leading and trailing ",
    "#?&=;:@",
    "$(rm -rf)",
    "<script>alert(1)</script>",
    ".hidden",
    "console",
    "communicate.py",
    "lpt10",
    "\U0001f469\u200d\U0001f52c.png",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "/".join(["d" * 100] * 20),
]
REFUSED = {
    "": "needs a path",
    "/etc/passwd": "absolute",
    "..": "leads out",
    "a/../b": "leads out",
    "a/..": "leads out",
    ".": "as a part",
    "./a": "as a part",
    "a//b": "empty part",
    "a/": "empty part",
    "a\\b": "backslash",
    "..\\..\\b": "backslash",
    "a\0b": "NUL",
    "a\nb": "control",
    "a\x1b[31m": "control",
    "a\x7f": "control",
    "a\x85b": "control",
    "a\u2028b": "U+2028 (line separator)",
    "invoice\u202egpj.exe": "U+202E (right-to-left override)",
    "a/\u2066b\u2069.csv": "U+2066",
    "\u200fa": "U+200F",
    "a" * 256: "255 bytes",
    "é" * 128: "255 bytes",
    "/".join(["d" * 100] * 21): "at most",
    "\ud800": "Unicode",
    "CON": "reserved",
    "a/aux.c": "reserved",
    "Nul.txt": "reserved",
    "com1": "reserved",
    "LPT9.log": "reserved",
}


@pytest.mark.parametrize("path", ACCEPTED)
def test_accepted(path):
    assert names.problem(path) == ""


@pytest.mark.parametrize(("path", "why"), REFUSED.items())
def test_refused(path, why):
    assert why in names.problem(path)


@pytest.mark.parametrize("path", [None, 1, 1.5, True, [], {}, b"a"])
def test_not_a_text(path):
    assert names.problem(path)


@pytest.mark.parametrize("path", [*REFUSED, None, 7])
def test_what_is_shown_is_printable(path):
    shown = names.shown(path)
    assert shown.isprintable()
    assert len(shown) <= 200
    shown.encode()


def test_folders_of_a_path():
    assert names.folders_of("a/b/c") == ["a", "a/b"]
    assert names.folders_of("a") == []

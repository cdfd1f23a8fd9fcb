"""Which characters no name may hold, and how a sentence calls them."""

import pytest

from nodes.agent import collect
from portal.base.unseen import CONTROLS, control_in, is_blank, unseen_in

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
FINE = [
    "photo \N{SMILING FACE WITH SUNGLASSES}",
    "\U0001f469\u200d\U0001f52c",  # a joined emoji
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # a Persian word
    "\u05e9\u05dc\u05d5\u05dd",  # written from right to left by its letters, which is no trick
    "caf\u00e9",
    "cafe\u0301",
    "Screenshot 10.14.03\u202fPM.png",  # as macOS calls it
]


@pytest.mark.parametrize("character", [*BIDI, "\0", "\x1b", "\x7f", "\x85", "\x9f", "\u2028"])
def test_controls_are_named(character):
    for found in (control_in(f"a{character}b"), unseen_in(f"a{character}b")):
        assert found.startswith(f"U+{ord(character):04X}")


def test_a_name_of_unicode_is_said():
    assert control_in("invoice\u202egpj.exe") == "U+202E (right-to-left override)"
    assert control_in("\x1b[31m") == "U+001B"


@pytest.mark.parametrize("text", FINE)
def test_words_and_emoji_of_all_languages(text):
    assert control_in(text) == unseen_in(text) == ""


@pytest.mark.parametrize("character", ["\u200b", "\ufeff", "\u00ad", "\ud800"])
def test_what_has_no_shape_is_not_typed(character):
    assert unseen_in(f"a{character}b")


@pytest.mark.parametrize("text", ["", " ", "\u200d", "\u3000\u200c "])
def test_blank(text):
    assert is_blank(text)


def test_the_agent_has_the_same():
    assert collect.CONTROLS.pattern == CONTROLS.pattern

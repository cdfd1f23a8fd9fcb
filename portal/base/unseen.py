"""Characters that are not seen and make a name look like another one.

Joiners are not among them: Persian words and joined emoji need them.
"""

import re
import unicodedata

# C0 and C1 controls, line and paragraph separators, and what turns the direction of writing
# (Unicode Standard Annex 9). The agent has the same: nodes/agent/collect.py.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
JOINERS = "\u200c\u200d"
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # general categories


def control_in(text: str) -> str:
    """The first control character as a sentence names it, or ""."""
    found = CONTROLS.search(text)
    return named(found[0]) if found else ""


def unseen_in(text: str) -> str:
    """As `control_in`, for names that people type: no other character without a shape either."""
    found = (c for c in text if c not in JOINERS and unicodedata.category(c) in UNSEEN)
    return next(map(named, found), "")


def is_blank(text: str) -> bool:
    """Whether nothing of it is seen."""
    return all(c.isspace() or c in JOINERS for c in text)


def named(character: str) -> str:
    """ "U+202E (right-to-left override)"; controls of ASCII have no name in Unicode."""
    name = unicodedata.name(character, "").lower()
    return f"U+{ord(character):04X}" + (f" ({name})" if name else "")

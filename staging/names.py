"""Names of files inside a dataset. What is refused is refused by name, with one sentence.

A path is relative, its parts joined by "/". Names that differ only in case or in Unicode
normalization are different names here: each arrives under its own. Control characters, those of
writing direction among them, are refused, for a list would show another name.
"""

import re

from portal.base.unseen import control_in

LONGEST_PART = 255  # bytes: what file systems take
# Bytes. A node puts its own folders in front and Linux stops at 4,096; PostgreSQL's index at 2,704.
LONGEST_PATH = 2048
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)


def problem(path: object) -> str:
    """Why this path is refused, or "" when it is accepted."""
    if not isinstance(path, str) or not path:
        return "A file needs a path."
    return _whole(path) or next((found for p in path.split("/") if (found := _part(p))), "")


def _whole(path: str) -> str:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "Its name is not valid Unicode."
    if size > LONGEST_PATH:
        return f"Its path has {size} bytes; at most {LONGEST_PATH} are accepted."
    if path.startswith("/"):
        return "It is an absolute path; paths are relative to the dataset."
    if "\\" in path:
        return "Its path holds a backslash; folders are separated by a slash."
    if "\0" in path:
        return "Its path holds a NUL character."
    if found := control_in(path):
        return f"Its path holds the control character {found}, so it can look like another name."
    return ""


def _part(part: str) -> str:
    if not part:
        return "Its path has an empty part."
    if part == "..":
        return "Its path holds “..”, which leads out of the dataset."
    if part == ".":
        return "Its path holds “.” as a part."
    if len(part.encode()) > LONGEST_PART:
        return f"A part of its path is longer than {LONGEST_PART} bytes."
    if RESERVED.fullmatch(part):
        return f"“{part}” is a reserved name that some systems cannot store."
    return ""


def folders_of(path: str) -> list[str]:
    """The folders a path lies in, outermost first: a/b/c -> a, a/b."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def shown(path: object) -> str:
    """A path as it may stand in a sentence or a log line, whatever it holds."""
    text = path if isinstance(path, str) else repr(path)
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return safe if len(safe) <= 200 else safe[:199] + "…"

"""Choosing a part of a dataset by patterns."""

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

from django.db.models import Q, QuerySet

from staging.models import Dataset, File

MOST_NARROWED = 100  # patterns that a query is narrowed by; more than that and it takes all


def matcher(patterns: Iterable[str]) -> "re.Pattern[str]":
    """One expression for all patterns: "a/b/" or "a/b/**" is a folder, else fnmatch of the path.

    No pattern at all means everything.
    """
    return _expression(tuple(filter(None, patterns)))


@lru_cache(maxsize=1000)
def _expression(patterns: tuple[str, ...]) -> "re.Pattern[str]":
    parts = []
    for pattern in patterns:
        folder = _folder(pattern)
        parts.append(re.escape(folder) + "(?s:.*)" if folder else translate(pattern))
    return re.compile("|".join(f"(?:{part})" for part in parts) if parts else "(?s:.*)")


def _folder(pattern: str) -> str:
    """ "a/b/" of a pattern that means this folder, else ""."""
    folder = pattern.removesuffix("**") if pattern.endswith("/**") else pattern
    return folder if folder.endswith("/") else ""


def narrowed(files: QuerySet[File], patterns: Iterable[str]) -> QuerySet[File]:
    """`files` without most of those that no pattern names; `matcher` judges the rest.

    The database compares what stands before the first and after the last wildcard, and may do so
    without regard to case (SQLite).
    """
    patterns = list(filter(None, patterns))
    if not patterns or len(patterns) > MOST_NARROWED:
        return files
    wanted = Q()
    for pattern in patterns:
        start, end = _literal_ends(pattern)
        wanted |= Q(path__startswith=start, path__endswith=end)
    return files.filter(wanted)


def _literal_ends(pattern: str) -> tuple[str, str]:
    """What every path that matches begins and ends with, as far as it is plain text."""
    if folder := _folder(pattern):
        return folder, ""
    return re.split(r"[*?[]", pattern, maxsplit=1)[0], re.split(r"[*?\]]", pattern)[-1]


def chosen_files(*, dataset: Dataset, patterns: list[str]) -> list[File]:
    """The files of a dataset that any of `patterns` names, ordered by the bytes of their paths."""
    wanted = matcher(patterns)
    files = narrowed(dataset.files.all(), patterns)
    files = files.select_related("blob").defer("blob__chunk_digests")
    chosen = [file for file in files.iterator(2000) if wanted.fullmatch(file.path)]
    return sorted(chosen, key=lambda file: file.path.encode())


def chosen_places(*, dataset: Dataset, patterns: list[str]) -> list[tuple[int, int]]:
    """(position, bytes) of the chosen files of a staged dataset, in order of position."""
    wanted = matcher(patterns)
    rows = narrowed(dataset.files.all(), patterns).order_by("position")
    return [
        (position, size)
        for path, position, size in rows.values_list("path", "position", "size").iterator(2000)
        if position is not None and wanted.fullmatch(path)
    ]

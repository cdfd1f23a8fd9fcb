"""Choosing a part of a dataset by patterns."""

import re
from fnmatch import translate

from staging.models import Dataset, File


def matcher(patterns: list[str]) -> "re.Pattern[str]":
    """One expression for all patterns: "a/b/" or "a/b/**" is a folder, else fnmatch of the path.

    No pattern at all means everything.
    """
    parts = []
    for pattern in patterns:
        folder = pattern.removesuffix("**") if pattern.endswith("/**") else pattern
        parts.append(re.escape(folder) + "(?s:.*)" if folder.endswith("/") else translate(pattern))
    return re.compile("|".join(f"(?:{part})" for part in parts) if parts else "(?s:.*)")


def chosen_files(*, dataset: Dataset, patterns: list[str]) -> list[File]:
    """The files of a dataset that any of `patterns` names, ordered by the bytes of their paths."""
    wanted = matcher([pattern for pattern in patterns if pattern])
    files = dataset.files.select_related("blob").defer("blob__chunk_digests")
    chosen = [file for file in files.iterator(2000) if wanted.fullmatch(file.path)]
    return sorted(chosen, key=lambda file: file.path.encode())

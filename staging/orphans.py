"""Bytes in the store that no row knows: what a process left that was killed in mid-pack.

Bytes are written before the rows that name them, so young ones are nobody's business. A store
most of whose bytes are unknown is another database's: it is left alone, and said so.
"""

import os
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import batched

import structlog

from staging import store
from staging.models import Blob, DeadKey, SourceFile, Upload

ORPHAN_AGE = timedelta(days=1)  # since its last byte; no request takes as long
BATCH = 500
# Blobs first, as most keys are theirs; again after those that become blobs.
HOMES = ((Blob, "key"), (Upload, "key"), (SourceFile, "store_key"), (Blob, "key"), (DeadKey, "key"))
FOLDER = re.compile(r"[0-9a-f]{2}")
NAME = re.compile(r"[0-9a-f]{38}")
log = structlog.get_logger(__name__)


def sweep_orphans() -> int:
    """Delete old bytes without a row: how many keys."""
    known, orphans = 0, []
    for batch in batched(_old_keys(time.time() - ORPHAN_AGE.total_seconds()), BATCH):
        unknown = _unknown(batch)
        known += len(batch) - len(unknown)
        orphans += sorted(unknown)
    if len(orphans) > known:
        log.error("store_of_another_database", known=known, unknown=len(orphans))
        return 0
    for key in orphans:
        store.delete(key)
    return len(orphans)


def _old_keys(before: float) -> Iterator[str]:
    """Keys whose bytes were last written before this time.time()."""
    root = store.ensure_root()
    for folder in sorted(name for name in os.listdir(root) if FOLDER.fullmatch(name)):
        with os.scandir(root / folder) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name) and _is_old(entry, before):
                    yield f"{folder}/{entry.name}"


def _is_old(entry: os.DirEntry[str], before: float) -> bool:
    try:
        return entry.is_file(follow_symlinks=False) and entry.stat().st_mtime < before
    except FileNotFoundError:
        return False  # deleted just now


def _unknown(keys: tuple[str, ...]) -> set[str]:
    """Keys that no row names. A key wanders from an upload or a synced file to a blob, and from
    each of them to the dead ones: asked in this order, none is missed on its way."""
    left = set(keys)
    for model, name in HOMES:
        if left:
            rows = model.objects.filter(**{f"{name}__in": left})
            left -= set(rows.values_list(name, flat=True))
    return left

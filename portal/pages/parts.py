"""The parts that an installation stands on, each asked directly: /readyz and `doctor` use them."""

import os
import secrets
import shutil
from dataclasses import dataclass, field
from datetime import timedelta

import redis
from django.conf import settings
from django.db import DatabaseError

from nodes.models import Installation
from portal.base.clock import db_now
from portal.base.words import in_bytes, in_words

# The schedule wakes a pass every 5 s, and a pass takes at most 20 s.
LATEST_PASS = timedelta(seconds=60)
BROKER_PATIENCE_S = 2


@dataclass
class Part:
    """One part: whether it can do its work, why not, and what was measured.

    `detail` may name hosts and folders: `doctor` prints it, /readyz is public and does not.
    """

    ok: bool
    why: str = ""
    detail: str = ""
    facts: dict[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {"ok": self.ok, "why": self.why, **self.facts}


def database() -> Part:
    try:
        db_now()
    except DatabaseError as error:
        return Part(False, "The database cannot be reached.", _first_line(error))
    return Part(True)


def broker() -> Part:
    patience = {"socket_connect_timeout": BROKER_PATIENCE_S, "socket_timeout": BROKER_PATIENCE_S}
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **patience) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        return Part(False, "The broker does not answer.", _first_line(error))
    return Part(True)


def store() -> Part:
    """Writes and removes a small file in the store's folder; free bytes are of its disk."""
    root = settings.STORE_ROOT
    probe = root / f".probe-{secrets.token_hex(8)}"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(handle)
        probe.unlink()
        free = shutil.disk_usage(root).free
    except OSError as error:
        return Part(False, "The store cannot be written.", f"{root}: {error.strerror}.")
    facts: dict[str, object] = {"free_bytes": free, "floor_bytes": settings.DISK_FLOOR_BYTES}
    if free < settings.DISK_FLOOR_BYTES:
        facts["warning"] = (
            f"{in_bytes(free)} are free and {in_bytes(settings.DISK_FLOOR_BYTES)} are kept for "
            "the database, so uploads are refused."
        )
    return Part(True, facts=facts)


def scheduler() -> Part:
    """How long ago the last scheduling pass was. Without passes no waiting job ever starts."""
    try:
        row = Installation.objects.filter(id=1).first()
        now = db_now()
    except DatabaseError as error:
        return Part(False, "The last scheduling pass cannot be read.", _first_line(error))
    if row is None or row.last_pass_at is None:
        return Part(False, "No scheduling pass has been made. A worker with beat makes them.")
    age = max(timedelta(0), now - row.last_pass_at)
    facts: dict[str, object] = {"age_s": round(age.total_seconds(), 1)}
    if age > LATEST_PASS:
        why = f"The last scheduling pass was {in_words(age)} ago. Is a worker with beat running?"
        return Part(False, why, facts=facts)
    return Part(True, facts=facts)


def all_parts() -> dict[str, Part]:
    return {
        "database": database(),
        "broker": broker(),
        "store": store(),
        "scheduler": scheduler(),
    }


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{lines[0] if lines else type(error).__name__}"[:200]

"""Typed readers of the environment. A value that cannot be read stops the start, by name.

An empty variable counts as unset, so that a unit file may list all of them.
"""

import fcntl
import ipaddress
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}

MOST_DIGITS = 30
# These may go without a host: they name a path, or a server's own socket.
LOCAL_SCHEMES = {"file", "sqlite", "unix", "postgres", "postgresql"}
LEFT_BY_RUN = "running.json"  # in the data folder, while `make run` is up
MAY_BE_LEFT = {"PUBLIC_URL", "ALLOW_PROCESS_ISOLATION"}


def left_by_run(data: Path) -> dict[str, str]:
    """What `make run` on this data folder has decided, for the commands of other shells.

    It counts only while that run holds its lock on the file: one that a killed run left is nothing.
    """
    try:
        with (data / LEFT_BY_RUN).open() as file:
            if not _is_locked(file):
                return {}
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: str(value) for name, value in found.items() if name in MAY_BE_LEFT}


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def is_address(text: str, schemes: set[str]) -> bool:
    """Whether `text` is a URL of one of these schemes with a readable host and port."""
    try:
        parts = urlsplit(text)
        named = parts.scheme in LOCAL_SCHEMES or bool(parts.hostname)
        return parts.scheme in schemes and named and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


class Env:
    """Reads variables from a mapping (the process's environment by default).

    What it does not set is looked up in `beneath`.
    """

    def __init__(self, source: Mapping[str, str] | None = None) -> None:
        self.source = os.environ if source is None else source
        self.beneath: Mapping[str, str] = {}

    def text(self, name: str, default: str = "") -> str:
        return self.source.get(name, "").strip() or self.beneath.get(name, "") or default

    def flag(self, name: str, default: bool = False) -> bool:
        raw = self.text(name).lower()
        if not raw:
            return default
        if raw not in TRUE | FALSE:
            raise ImproperlyConfigured(f"{name} must be true or false, not {raw!r}.")
        return raw in TRUE

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**62) -> int:
        raw = self.text(name)
        if not raw:
            return default
        fits = raw.isascii() and raw.isdigit() and len(raw) <= MOST_DIGITS
        if not fits or not least <= int(raw) <= most:
            raise ImproperlyConfigured(
                f"{name} must be a whole number from {least} to {most}, not {raw!r}."
            )
        return int(raw)

    def seconds(self, name: str, default: int, *, least: int = 1) -> timedelta:
        return timedelta(seconds=self.number(name, default, least=least, most=10**9))

    def words(self, name: str, default: tuple[str, ...] = ()) -> list[str]:
        raw = self.text(name)
        return [w.strip() for w in raw.split(",") if w.strip()] if raw else list(default)

    def networks(self, name: str) -> list[str]:
        """Addresses and networks ("10.0.0.0/8"), each in its usual form."""
        found = []
        for word in self.words(name):
            try:
                found.append(str(ipaddress.ip_network(word)))
            except ValueError:
                raise ImproperlyConfigured(
                    f"{name} must list addresses or networks like 10.0.0.0/8, not {word!r}."
                ) from None
        return found

    def choice(self, name: str, default: str, allowed: set[str]) -> str:
        raw = self.text(name, default)
        if raw not in allowed:
            raise ImproperlyConfigured(
                f"{name} must be one of {', '.join(sorted(allowed))}, not {raw!r}."
            )
        return raw

    def folder(self, name: str, default: Path) -> Path:
        path = Path(self.text(name, str(default))).expanduser()
        if not path.is_absolute():
            raise ImproperlyConfigured(f"{name} must be an absolute path, not {str(path)!r}.")
        return path

    def url(self, name: str, default: str, schemes: set[str]) -> str:
        raw = self.text(name, default)
        if not is_address(raw, schemes):
            raise ImproperlyConfigured(
                f"{name} must be a URL that starts with one of "
                f"{', '.join(sorted(s + '://' for s in schemes))}."
            )
        return raw

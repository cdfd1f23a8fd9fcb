"""Keys of this installation, made on first use and kept in files that only its user can read."""

import base64
import os
import secrets
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def _fresh(kind: str) -> str:
    if kind in ("fernet", "ed25519"):
        return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return secrets.token_urlsafe(64)


def read_or_make_key(path: Path, kind: str = "text") -> str:
    """The key in `path`; a new one of `kind` (text, fernet, ed25519) is written if there is none.

    Several processes may start at once: the one whose link lands first decides.
    Raises ImproperlyConfigured where the folder cannot be written.
    """
    if path.exists():
        return path.read_text().strip()
    draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(_fresh(kind))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return path.read_text().strip()
        finally:
            draft.unlink()
    except OSError as error:
        sentence = f"Cannot write the key file {path}: {error.strerror}."
        raise ImproperlyConfigured(sentence) from error
    return path.read_text().strip()

"""Secrets at rest: encrypted where the value is needed again, hashed where only a match is."""

import base64
import hashlib
import hmac
import secrets

from cryptography.fernet import Fernet, MultiFernet
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings


def _fernet() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.FIELD_KEYS])


def encrypt(text: str) -> str:
    return _fernet().encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Raises cryptography.fernet.InvalidToken when no key of FIELD_KEYS fits."""
    return _fernet().decrypt(token.encode()).decode()


def new_token() -> str:
    """A random bearer token of 256 bits."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """SHA-256 in hex: enough for a random token of 256 bits, and can be looked up."""
    return hashlib.sha256(_octets(token)).hexdigest()


def same(one: str, other: str) -> bool:
    return hmac.compare_digest(_octets(one), _octets(other))


def _octets(text: str) -> bytes:
    """JSON may bring lone surrogates, which UTF-8 proper has no bytes for: they match nothing."""
    return text.encode("utf-8", "surrogatepass")


def _record_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(base64.urlsafe_b64decode(settings.RECORD_KEY))


def sign_record(body: bytes) -> str:
    """Ed25519 signature of a record's canonical JSON, base64."""
    return base64.b64encode(_record_key().sign(body)).decode()


def record_public_key() -> str:
    """The raw 32-byte public key that checks `sign_record`, base64."""
    raw = _record_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return base64.b64encode(raw).decode()

"""Upload-Checksum: the digest of the bytes of one request (tus 1.0.0, "Checksum")."""

import base64
import binascii
import hashlib
import hmac

from portal.base.errors import DomainError

ALGORITHMS = ("sha1", "sha256")


class Checksum:
    """What one request's bytes must hash to, and what they hash to so far."""

    def __init__(self, algorithm: str, expected: bytes) -> None:
        self.algorithm = algorithm
        self.expected = expected
        self._hash = hashlib.new(algorithm, usedforsecurity=False)

    def update(self, piece: bytes | memoryview) -> None:
        self._hash.update(piece)

    def matches(self) -> bool:
        return hmac.compare_digest(self._hash.digest(), self.expected)


def read_checksum(raw: str | None) -> Checksum | None:
    """The header "<algorithm> <base64>". Raises DomainError (400) for anything else."""
    if raw is None:
        return None
    algorithm, _, value = raw.partition(" ")
    if algorithm not in ALGORITHMS:
        raise DomainError(f"Upload-Checksum takes {' and '.join(ALGORITHMS)} here.")
    try:
        expected = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise DomainError("The value of Upload-Checksum is not base64.") from None
    if len(expected) != hashlib.new(algorithm, usedforsecurity=False).digest_size:
        raise DomainError(f"The value of Upload-Checksum is no {algorithm}: it has another length.")
    return Checksum(algorithm, expected)

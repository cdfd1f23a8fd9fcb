"""Connections: make, change, test, delete. A secret goes in and never comes out.

Credentials are those of the row, or those in SYNC_ROLE_FILE for a connection on the operator's own
role; nothing here or below ever looks for credentials of the machine.
"""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import IntegrityError, transaction

from portal.base.clock import db_now
from portal.base.crypto import decrypt, encrypt
from portal.base.errors import Conflict, DomainError, Forbidden
from portal.base.unseen import is_blank, unseen_in
from portal.teams.models import Team
from staging.models import Connection, Source
from staging.sync.errors import Interrupted, SourceRefuses, Trouble
from staging.sync.readers import Pinned
from staging.sync.s3 import Bucket, S3Reader, Secret
from staging.sync.states import Access, SourceState

TEST_S = 20.0
ENDED = (SourceState.DONE, SourceState.CANCELLED, SourceState.STALE, SourceState.FAILED)


def create_connection(
    *,
    team: Team,
    name: str,
    endpoint: str,
    bucket: str,
    actor: str,
    region: str = "us-east-1",
    prefix: str = "",
    path_style: bool = True,
    access: str = Access.KEYS,
    key_id: str = "",
    secret: str = "",
    md5_etags: bool = True,
    staff: bool = False,
) -> Connection:
    """A connection of a team. `staff`: an operator makes it, who alone may lend the role.

    Raises Forbidden, Conflict for a name in use, and DomainError for what cannot be right.
    """
    access = Access(access)
    if access == Access.ROLE:
        if not staff:
            raise Forbidden("Only an operator makes connections on the operator's own role.")
        if not prefix:
            raise DomainError("A connection on the operator's role needs a bucket and a prefix.")
    if access == Access.KEYS and not (key_id.strip() and secret.strip()):
        raise DomainError("A connection needs a key and its secret; none is taken from elsewhere.")
    if access != Access.KEYS and (key_id or secret):
        raise DomainError("A key is for connections that use one.")
    values = {
        "name": plain(name, "name", 120),
        "endpoint": endpoint_of(endpoint),
        "bucket": bucket_name(bucket),
        "region": plain(region or "us-east-1", "region", 60),
        "prefix": folder_prefix(prefix),
    }
    try:
        with transaction.atomic():
            now = db_now()
            connection = Connection.objects.create(
                team=team,
                path_style=path_style,
                access=access,
                md5_etags=md5_etags,
                sealed=_seal(key_id, secret) if access == Access.KEYS else "",
                created_by=actor[:254],
                **values,
            )
            team.note("connection_create", at=now, actor=actor, connection=connection.name)
    except IntegrityError as error:
        raise Conflict(f"The team has a connection called {values['name']} already.") from error
    return connection


def plain(text: str, what: str, most: int) -> str:
    """One line of printable text. Raises DomainError, naming what it is."""
    text = " ".join(str(text).split())
    if found := unseen_in(text):
        raise DomainError(f"The {what} holds {found}, which cannot be seen.")
    if is_blank(text) or len(text) > most:
        raise DomainError(f"The {what} must have 1 to {most} printable characters.")
    return text


def endpoint_of(text: str) -> str:
    """ "https://host:port" of what a person wrote. Raises DomainError."""
    text = text.strip()
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port
    except ValueError:
        raise DomainError("The endpoint is not an address like https://s3.example.org.") from None
    host = parts.hostname or ""
    extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not host or extra or len(text) > 250:
        raise DomainError("The endpoint is not an address like https://s3.example.org.")
    if not host.isascii() or any(c.isspace() or not c.isprintable() for c in host):
        raise DomainError("The endpoint's host must be in ASCII.")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port else "")


def bucket_name(text: str) -> str:
    """The name of a bucket. Raises DomainError for what is none."""
    text = text.strip()
    good = text.isascii() and all(c.isalnum() or c in "-._" for c in text)
    if not 1 <= len(text) <= 255 or not good or text in (".", ".."):
        raise DomainError("A bucket's name has letters, digits, dots, dashes and underscores.")
    return text


def folder_prefix(text: str) -> str:
    """A prefix that ends at a slash, "" for all. Raises DomainError."""
    text = text.lstrip("/")
    if len(text.encode("utf-8", "surrogatepass")) > 1000 or not text.isprintable():
        raise DomainError("A prefix has at most 1,000 bytes of printable characters.")
    return f"{text.rstrip('/')}/" if text else ""


def _seal(key_id: str, secret: str) -> str:
    key_id, secret = key_id.strip(), secret.strip()
    if not (key_id + secret).isprintable() or len(key_id + secret) > 4000:
        raise DomainError("The key or its secret holds what no key has.")
    return encrypt(json.dumps([key_id, secret]))


def change_secret(*, connection: Connection, key_id: str, secret: str, actor: str) -> None:
    """Put other credentials in the place of those that are there. Raises Conflict."""
    if not (key_id.strip() and secret.strip()):
        raise DomainError("A connection needs a key and its secret; none is taken from elsewhere.")
    with transaction.atomic():
        rows = Connection.objects.filter(pk=connection.pk, deleted_at=None, access=Access.KEYS)
        if not rows.update(
            sealed=_seal(key_id, secret), tested_at=None, test_code="", test_sentence=""
        ):
            raise Conflict("This connection has no secret of its own, or was deleted.")
        connection.team.note(
            "connection_secret", at=db_now(), actor=actor, connection=connection.name
        )
    connection.refresh_from_db()


def change_connection(
    *,
    connection: Connection,
    actor: str,
    name: str,
    region: str,
    path_style: bool,
    md5_etags: bool,
    key_id: str = "",
    secret: str = "",
) -> None:
    """Change what is said of a place, and its key where one is given. Endpoint and bucket stay.

    Raises Forbidden for one on the operator's role, Conflict for a name in use or a deleted one.
    """
    if connection.access == Access.ROLE:
        raise Forbidden("Only an operator changes connections on the operator's own role.")
    values = {"name": plain(name, "name", 120), "region": plain(region, "region", 60)}
    try:
        with transaction.atomic():
            rows = Connection.objects.filter(pk=connection.pk, deleted_at=None)
            changes = {"path_style": path_style, "md5_etags": md5_etags, "tested_at": None}
            if not rows.update(**values, **changes, test_code="", test_sentence=""):
                raise Conflict("This connection was deleted.")
            connection.refresh_from_db()
            connection.team.note(
                "connection_change", at=db_now(), actor=actor, connection=connection.name
            )
            if key_id or secret:
                change_secret(connection=connection, key_id=key_id, secret=secret, actor=actor)
    except IntegrityError as error:
        raise Conflict(f"The team has a connection called {values['name']} already.") from error


def delete_connection(*, connection: Connection, actor: str, staff: bool = False) -> None:
    """Forget its secret; it can no longer be used. Raises Conflict while a source needs it."""
    if connection.access == Access.ROLE and not staff:
        raise Forbidden("Only an operator removes connections on the operator's own role.")
    with transaction.atomic():
        now = db_now()
        rows = Connection.objects.filter(pk=connection.pk, deleted_at=None)
        if not rows.update(deleted_at=now, sealed=""):
            return
        if Source.objects.filter(connection=connection).exclude(state__in=ENDED).exists():
            raise Conflict("A sync uses this connection. Cancel it or let it finish first.")
        connection.team.note("connection_delete", at=now, actor=actor, connection=connection.name)
    connection.refresh_from_db()


def bucket_of(connection: Connection) -> Bucket:
    """The bucket with its credentials. Raises SourceRefuses where there are none."""
    if connection.deleted_at is not None:
        raise SourceRefuses("This connection was deleted.", kind="deleted")
    return Bucket(
        endpoint=connection.endpoint,
        region=connection.region,
        bucket=connection.bucket,
        path_style=connection.path_style,
        secret=_secret_of(connection),
        md5_etags=connection.md5_etags,
    )


def _secret_of(connection: Connection) -> Secret | None:
    match connection.access:
        case Access.ANONYMOUS:
            return None
        case Access.ROLE:
            return _role()
        case _:
            try:
                key_id, secret = json.loads(decrypt(connection.sealed))
            except (InvalidToken, ValueError) as error:
                raise SourceRefuses(
                    "Its secret cannot be read: no key in FIELD_KEYS fits. Enter it again.",
                    kind="sealed",
                ) from error
            return Secret(key_id, secret)


def _role() -> Secret:
    """What SYNC_ROLE_FILE holds now; another program keeps it fresh."""
    if not settings.SYNC_ROLE_FILE:
        raise SourceRefuses("This portal lends no role: SYNC_ROLE_FILE is not set.", kind="role")
    try:
        found = json.loads(Path(settings.SYNC_ROLE_FILE).read_text())
        secret = Secret(
            str(found["AccessKeyId"]),
            str(found["SecretAccessKey"]),
            str(found.get("SessionToken") or ""),
        )
        ends = found.get("Expiration")
        if ends and datetime.fromisoformat(ends) <= datetime.now(UTC):
            raise SourceRefuses("The operator's role has expired credentials.", kind="expired")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceRefuses("The operator's role cannot be read just now.", kind="role") from error
    if not secret.key_id or not secret.secret:
        raise SourceRefuses("The operator's role has no credentials just now.", kind="role")
    return secret


@dataclass(frozen=True)
class Test:
    """What a test found: `code` "" where it worked, and a sentence for people."""

    code: str
    sentence: str
    skew_s: int | None = None

    @property
    def works(self) -> bool:
        return not self.code


def try_connection(connection: Connection) -> Test:
    """List one object and read one byte of it: what works, or exactly what does not."""
    try:
        bucket = bucket_of(connection)
        reader = S3Reader(bucket, connection.prefix)
        found = next(reader.pages({"mode": "objects"}, most=10)).found
        entry = next((f for f in found if f.size), None)
        if entry is None:
            return Test("", "It works: the bucket can be listed. It holds nothing to read here.")
        pinned = Pinned(0, entry.key, entry.size, entry.etag, entry.version, "", "")
        until = time.monotonic() + TEST_S
        with reader.fetch(pinned, 0, 1, until) as body:
            body.read_into(memoryview(bytearray(1)), until)
    except (Trouble, Interrupted) as trouble:
        data = getattr(trouble, "data", {})
        code = str(data.get("kind") or getattr(trouble, "code", "slow"))
        sentence = str(trouble) or "The source answers too slowly."
        return Test(code, sentence, data.get("skew_s"))
    return Test("", "It works: the bucket can be listed, and what it holds can be read.")


def test_connection(*, connection: Connection, actor: str) -> Test:
    """Try a connection and note what came of it."""
    found = try_connection(connection)
    with transaction.atomic():
        now = db_now()
        Connection.objects.filter(pk=connection.pk).update(
            tested_at=now, test_code=found.code[:40], test_sentence=found.sentence[:300]
        )
        connection.team.note(
            "connection_test",
            at=now,
            actor=actor,
            connection=connection.name,
            result=found.code or "works",
        )
    connection.refresh_from_db()
    return found


def seal_again() -> int:
    """Encrypt every secret with the newest of FIELD_KEYS; how many. Repeating it does no harm."""
    count = 0
    for connection in Connection.objects.exclude(sealed="").iterator():
        rows = Connection.objects.filter(pk=connection.pk, sealed=connection.sealed)
        count += rows.update(sealed=encrypt(decrypt(connection.sealed)))
    return count

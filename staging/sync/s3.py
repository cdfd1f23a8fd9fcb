"""S3 over plain kept connections: list, head, ranged GET. Requests are signed by botocore's SigV4.

botocore signs and does nothing else here: it opens no connection and looks for no credentials.
"""

import base64
import binascii
import contextlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import quote, unquote_plus

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from staging.sync import web
from staging.sync.errors import Changed, SourceAway, SourceRefuses, Trouble, Unreadable
from staging.sync.readers import (
    PAGE,
    Found,
    HttpBody,
    NoRanges,
    Page,
    Pinned,
    plain_etag,
    same_etag,
)

MOST_SKEW_S = 300
LONGEST = 200  # characters of an ETag or a version
MD5 = re.compile(r"[0-9a-f]{32}", re.ASCII)
OFFERED = {"sha256": 32, "sha1": 20, "crc32": 4}  # bytes; those that the standard library computes
SIGNATURE = {"SignatureDoesNotMatch", "InvalidAccessKeyId", "AuthorizationHeaderMalformed"}
REFUSALS = {
    "NoSuchBucket": ("no_bucket", "There is no bucket “{bucket}” at {host}."),
    "InvalidAccessKeyId": ("signature", "{host} does not know this key."),
    "SignatureDoesNotMatch": ("signature", "{host} does not accept the signature: wrong secret?"),
    "AuthorizationHeaderMalformed": ("region", "{host} expects another region: {message}"),
    "ExpiredToken": ("expired", "The credentials have expired."),
    "InvalidToken": ("expired", "The session token is not accepted."),
    "TokenRefreshRequired": ("expired", "The credentials have expired."),
}


@dataclass(frozen=True)
class Secret:
    """A key, its secret, and the session token of temporary ones."""

    key_id: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "Secret(…)"


@dataclass(frozen=True)
class Bucket:
    """A bucket at an endpoint; `secret` None asks without a signature."""

    endpoint: str
    region: str
    bucket: str
    path_style: bool = True
    secret: Secret | None = None
    md5_etags: bool = True

    @property
    def host(self) -> str:
        return self.endpoint.partition("://")[2]

    def url(self, key: str = "", query: Mapping[str, str] | None = None) -> str:
        scheme, _, host = self.endpoint.partition("://")
        path = f"/{quote(key, safe='/-_.~')}"
        if self.path_style:
            path = f"/{quote(self.bucket, safe='')}{path}"
        else:
            host = f"{self.bucket}.{host}"
        text = "&".join(
            f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
            for name, value in sorted((query or {}).items())
        )
        return f"{scheme}://{host}{path}" + (f"?{text}" if text else "")

    @cached_property
    def _auth(self) -> S3SigV4Auth | None:
        if self.secret is None:
            return None
        credentials = Credentials(self.secret.key_id, self.secret.secret, self.secret.token or None)
        return S3SigV4Auth(credentials, "s3", self.region)

    def send(
        self,
        method: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        until: float | None = None,
    ) -> web.Answer:
        """One request; signed again, once, when it is refused (403). Raises Trouble."""
        url = self.url(key, query)
        for again in (False, True):
            answer = web.send(method, url, self._signed(method, url, headers or {}), until)
            if answer.status != 403 or again or self._auth is None:
                break
            with answer:
                if method != "HEAD":
                    answer.text()
        return answer

    def _signed(self, method: str, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        if self._auth is None:
            return dict(headers)
        request = AWSRequest(method=method, url=url, headers=dict(headers))
        self._auth.add_auth(request)
        return dict(request.headers.items())

    def problem(self, answer: web.Answer, *, of_key: bool = False) -> Trouble:
        """What an answer other than 2xx means. It reads the answer's body."""
        code, message = "", ""
        with answer:
            if answer.response.length != 0 and answer.response.fp is not None:
                code, message = _error_of(answer.text())
            skew = self._skew(answer) if answer.status in (400, 403) else 0
        if code == "RequestTimeTooSkewed" or (abs(skew) > MOST_SKEW_S and code in SIGNATURE):
            which = "ahead of" if skew > 0 else "behind"
            return SourceRefuses(
                f"The clock of {self.host} is {abs(skew)} s {which} this server's; requests are "
                "refused until they agree.",
                kind="clock_skew",
                skew_s=skew,
            )
        if code in REFUSALS:
            kind, sentence = REFUSALS[code]
            text = sentence.format(bucket=self.bucket, host=self.host, message=message[:120])
            return SourceRefuses(text, kind=kind)
        if of_key and (found := _of_key(answer.status, code)):
            return found
        return self._general(answer, code, message)

    def _general(self, answer: web.Answer, code: str, message: str) -> Trouble:
        if answer.status in (301, 307, 308):
            region = answer.header("x-amz-bucket-region")
            where = f"in the region {region}" if region else "at another endpoint"
            return SourceRefuses(f"The bucket “{self.bucket}” is {where}.", kind="region")
        if answer.status in (429, 503):
            return SourceAway(f"{self.host} asks for fewer requests ({answer.status}).")
        if answer.status == 404:
            return SourceRefuses(
                f"There is no bucket “{self.bucket}” at {self.host}.", kind="no_bucket"
            )
        if answer.status in (401, 403):
            return SourceRefuses(
                f"{self.host} does not let this connection do that ({code or answer.status}).",
                kind="denied",
            )
        if answer.status >= 500:
            return Trouble(f"{self.host} answers {answer.status} {code}.".replace(" .", "."))
        return SourceRefuses(
            f"{self.host} answers {answer.status} {code}: {message[:120]}.", kind="unexpected"
        )

    def _skew(self, answer: web.Answer) -> int:
        """Seconds that the server's clock is ahead of ours; 0 when it says nothing."""
        date = answer.date
        return round((date - datetime.now(UTC)).total_seconds()) if date else 0


def _of_key(status: int, code: str) -> Trouble | None:
    """Answers that are about one object only."""
    if status == 412:
        return Changed("It was overwritten at the source after it was listed.")
    if status == 404 and code != "NoSuchBucket":
        return Changed("It is no longer at the source.")
    if status == 416:
        return Changed("It is shorter now than it was when it was listed.")
    if code == "InvalidObjectState":
        return Unreadable("It is archived at the source and must be restored there first.")
    if status in (401, 403):
        return Unreadable("This connection may list it but not read it.", kind="may_not_read")
    return None


def _error_of(body: bytes) -> tuple[str, str]:
    """(code, message) of an error answer; empty where it is none of S3's."""
    try:
        root = ET.fromstring(body)  # noqa: S314
    except ET.ParseError:
        return "", ""
    found = {_local(child): child.text or "" for child in root.iter()}
    return found.get("Code", ""), found.get("Message", "")


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: ET.Element, name: str) -> str:
    for child in element:
        if _local(child) == name:
            return child.text or ""
    return ""


class S3Reader:
    """The objects below a prefix. Their paths begin after the prefix's last slash."""

    def __init__(self, bucket: Bucket, prefix: str = "") -> None:
        self.bucket, self.prefix = bucket, prefix
        self.cut = prefix.rfind("/") + 1
        self.most = PAGE

    def pages(self, cursor: dict, most: int = PAGE) -> Iterator[Page]:
        self.most = most
        if "mode" not in cursor:
            cursor = {"mode": "versions" if self._keeps_versions() else "objects"}
        one = self._versions_page if cursor["mode"] == "versions" else self._objects_page
        while True:
            page = one(cursor)
            if page.cursor == cursor:
                raise Trouble("The source's listing does not get on.")
            yield page
            if page.cursor is None:
                return
            cursor = page.cursor

    def _keeps_versions(self) -> bool:
        """Whether the bucket keeps versions and lets them be listed; unknown counts as no."""
        with self.bucket.send("GET", query={"versioning": ""}) as answer:
            text = answer.text()
            if answer.status != 200 or _setting_of(text) != "Enabled":
                return False
        with self.bucket.send("GET", query={"versions": "", "max-keys": "1"}) as answer:
            answer.text()
            return answer.status == 200

    def _ask(self, query: dict[str, str]) -> ET.Element:
        query |= {"prefix": self.prefix, "max-keys": str(self.most), "encoding-type": "url"}
        answer = self.bucket.send("GET", query=query)
        if answer.status != 200:
            raise self.bucket.problem(answer)
        with answer:
            body = answer.text()
        try:
            return ET.fromstring(body)  # noqa: S314
        except ET.ParseError as error:
            raise Trouble("The source's listing cannot be read.") from error

    def _objects_page(self, cursor: dict) -> Page:
        query = {"list-type": "2"}
        if cursor.get("token"):
            query["continuation-token"] = cursor["token"]
        elif cursor.get("after"):
            query["start-after"] = cursor["after"]
        try:
            root = self._ask(query)
        except SourceRefuses:
            if "token" not in cursor or not cursor.get("after"):
                raise
            return self._objects_page({"mode": "objects", "after": cursor["after"]})  # it expired
        read = _key_reader(root)
        page = Page()
        for element in root:
            if _local(element) == "Contents":
                self._add(page, read(_text(element, "Key")), element)
        if _text(root, "IsTruncated") == "true":
            last = page.found[-1].key if page.found else cursor.get("after", "")
            token = _text(root, "NextContinuationToken")
            page.cursor = {"mode": "objects", "token": token, "after": last}
        return page

    def _versions_page(self, cursor: dict) -> Page:
        query = {"versions": ""}
        if cursor.get("key"):
            query |= {"key-marker": cursor["key"]}
            if cursor.get("version"):
                query |= {"version-id-marker": cursor["version"]}
        root = self._ask(query)
        read = _key_reader(root)
        page = Page()
        for element in root:
            if _local(element) == "Version" and _text(element, "IsLatest") == "true":
                version = _text(element, "VersionId")
                self._add(page, read(_text(element, "Key")), element, version)
        if _text(root, "IsTruncated") == "true":
            page.cursor = {
                "mode": "versions",
                "key": read(_text(root, "NextKeyMarker")),
                "version": _text(root, "NextVersionIdMarker"),
            }
        return page

    def _add(self, page: Page, key: str, element: ET.Element, version: str = "") -> None:
        path = key[self.cut :]
        size = _text(element, "Size")
        etag = plain_etag(_text(element, "ETag"))
        good = size.isascii() and size.isdigit() and len(size) < 19
        if not good or not key.startswith(self.prefix) or max(map(len, (etag, version))) > LONGEST:
            page.skipped.append((key, "The source listed it in a way that cannot be read."))
        elif key.endswith("/"):
            page.skipped.append((key, "Its key ends in a slash: it stands for a folder."))
        else:
            page.found.append(
                Found(
                    key=key,
                    path=path,
                    size=int(size),
                    etag=etag,
                    version="" if version == "null" else version,
                )
            )

    def fetch(self, pinned: Pinned, start: int, stop: int, until: float) -> HttpBody:
        whole = (start, stop) == (0, pinned.size)
        if not whole:
            # Where nothing says which part came, the whole is asked for and the part taken of it.
            with contextlib.suppress(NoRanges):
                return self._get(pinned, start, stop, until, {"Range": f"bytes={start}-{stop - 1}"})
        return self._get(pinned, start, stop, until, {})

    def _get(
        self, pinned: Pinned, start: int, stop: int, until: float, ranged: dict[str, str]
    ) -> HttpBody:
        headers = _conditions(pinned) | ranged
        answer = self.bucket.send("GET", pinned.key, _version(pinned), headers, until)
        if answer.status not in (200, 206):
            raise self.bucket.problem(answer, of_key=True)
        try:
            _same_object(pinned, answer)
            sums = {} if ranged else self._sums(pinned, answer)
            return HttpBody(answer, pinned, start, stop, sums)
        except BaseException:
            answer.connection.close()
            raise

    def sums(self, pinned: Pinned) -> dict[str, str]:
        answer = self.bucket.send("HEAD", pinned.key, _version(pinned), _conditions(pinned))
        if answer.status != 200:
            raise self.bucket.problem(answer, of_key=True)
        with answer:
            _same_object(pinned, answer)
            return self._sums(pinned, answer)

    def _sums(self, pinned: Pinned, answer: web.Answer) -> dict[str, str]:
        """What the object's bytes can be compared with, in hex."""
        sums = {}
        for name, length in OFFERED.items():
            text = answer.header(f"x-amz-checksum-{name}")
            if text and "-" not in text and (raw := _raw(text, length)):
                sums[name] = raw.hex()
        encryption = answer.header("x-amz-server-side-encryption")
        hidden = encryption not in ("", "AES256") or answer.header(
            "x-amz-server-side-encryption-customer-algorithm"
        )
        if self.bucket.md5_etags and not hidden and MD5.fullmatch(pinned.etag):
            sums["md5"] = pinned.etag
        return sums


def _raw(text: str, length: int) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return raw if len(raw) == length else b""


def _setting_of(body: bytes) -> str:
    try:
        return _text(ET.fromstring(body), "Status")  # noqa: S314
    except ET.ParseError:
        return ""


def _key_reader(root: ET.Element):
    """How this answer spells keys: the server says whether it did as it was asked to.

    A space is "+" where the server follows Amazon; one that writes "%20" writes "%2B" for plus.
    """
    return unquote_plus if _text(root, "EncodingType") == "url" else str


def _conditions(pinned: Pinned) -> dict[str, str]:
    headers = {"x-amz-checksum-mode": "ENABLED"}
    if pinned.etag:
        headers["If-Match"] = f'"{pinned.etag}"'
    return headers


def _version(pinned: Pinned) -> dict[str, str] | None:
    return {"versionId": pinned.version} if pinned.version else None


def _same_object(pinned: Pinned, answer: web.Answer) -> None:
    """Not every server keeps If-Match: what it says of its answer is compared as well."""
    if pinned.etag and not same_etag(answer.header("ETag"), pinned.etag):
        raise Changed("It was overwritten at the source after it was listed.")

"""Lists of HTTPS addresses."""

import hashlib
import os

import pytest

from portal.base.errors import DomainError
from staging import services
from staging.models import Source
from staging.states import DatasetState
from staging.sync import guard, record, sources
from staging.sync.states import SourceKind, SourceState
from staging.sync.urls import read_list
from tests.staging.sync.conftest import contents, finish, run_until
from tests.staging.sync.test_guard import resolving, tls_stub  # noqa: F401  a fixture

pytestmark = pytest.mark.django_db
ACTOR = "owner@climate.example"
SUM = "ab" * 32


def test_a_line_has_an_address_and_facts_in_any_order():
    lines = read_list(
        f"# data\n\nhttps://h.example/x/a%20b.bin {SUM.upper()} 12 # why\nhttps://h.example/c?v=2\n"
    )
    assert [(line.path, line.size, line.sha256) for line in lines] == [
        ("a b.bin", 12, SUM),
        ("c", None, ""),
    ]


def test_where_ends_repeat_host_and_path_are_the_name():
    lines = read_list("https://h.example/a/x.bin\nhttps://h.example/b/x.bin")
    assert [line.path for line in lines] == ["h.example/a/x.bin", "h.example/b/x.bin"]


@pytest.mark.parametrize(
    "line",
    [
        "http://h.example/x",
        "h.example/x",
        "https:///x",
        "https://u:p@h.example/x",
        "https://h.example/",
        "https://h.example/x 12 13",
        "https://h.example/x twelve",
        "https://h.example/ü",
        "https://h.example/" + "x" * 2001,
        "https://[::1/x",
        "",
        "https://h.example/x -5",
        f"https://h.example/x {SUM}0",
    ],
)
def test_lines_that_are_none_are_refused(line):
    with pytest.raises(DomainError):
        read_list(line)


class Site:
    """What a server has at its paths, and how it answers."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etags = True
        self.ranges = True
        self.redirects: dict[str, str] = {}
        self.status: dict[str, int] = {}

    def reply(self, path, headers):
        if path in self.redirects:
            return 302, {"Location": self.redirects[path]}, b""
        if path in self.status or path not in self.files:
            return self.status.get(path, 404), {}, b""
        body = self.files[path]
        etag = f'"{hashlib.sha1(body, usedforsecurity=False).hexdigest()}"'
        answer = {"ETag": etag} if self.etags else {}
        asked = headers.get("Range", "")
        if asked and self.ranges and headers.get("If-Range", etag) == etag:
            first, last = asked.removeprefix("bytes=").split("-")
            part = body[int(first) : int(last) + 1]
            end = int(first) + len(part) - 1
            return 206, answer | {"Content-Range": f"bytes {first}-{end}/{len(body)}"}, part
        return 200, answer, body


@pytest.fixture
def site(tls_stub, monkeypatch):  # noqa: F811
    site = Site()
    stub = tls_stub("files.example", site.reply)
    resolving(monkeypatch, ["127.0.0.1"])
    site.base = f"https://files.example:{stub.port}"
    site.stub = stub
    return site


def begin(team, text: str) -> Source:
    dataset = services.create_dataset(team=team, name="From the web", actor=ACTOR)
    choice = sources.Choice(SourceKind.URLS, addresses=text)
    return sources.create_source(dataset=dataset, choice=choice, actor=ACTOR)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_list_becomes_a_staged_dataset(team, site, ranges):
    site.ranges = ranges
    site.files = {"/a.bin": b"first", "/big.bin": os.urandom(34 * 2**20), "/empty": b""}
    site.redirects = {"/moved": f"{site.base}/a.bin"}
    source = finish(
        begin(team, "\n".join(f"{site.base}{path}" for path in (*site.files, "/moved")))
    )
    assert source.dataset.state == DatasetState.STAGED, source.sentence
    found = contents(source.dataset)
    assert found == {path[1:]: body for path, body in site.files.items()} | {"moved": b"first"}


def test_a_declared_digest_is_checked(team, site, monkeypatch):
    monkeypatch.setattr(record, "wait_of", lambda tries: record.timedelta(0))
    site.files = {"/a": b"right", "/big": b"x" * (17 * 2**20)}
    good = {path: hashlib.sha256(body).hexdigest() for path, body in site.files.items()}
    text = "\n".join(f"{site.base}{path} {len(site.files[path])} {good[path]}" for path in good)
    assert finish(begin(team, text)).dataset.state == DatasetState.STAGED
    for path in good:
        source = finish(begin(team, f"{site.base}{path} {SUM}"))
        assert (source.state, source.dataset.state) == (SourceState.FAILED, DatasetState.FAILED)
        assert "SHA256" in source.files.get().sentence


def sentence_of(team, text: str) -> str:
    source = begin(team, text)

    def told() -> bool:
        source.refresh_from_db()
        return bool(source.sentence)

    run_until(told, "the list is refused", turn_s=3)
    return source.sentence


def test_what_cannot_be_had_is_named_by_its_line(team, site):
    site.files = {"/a": b"x", "/b": b"12345"}
    site.redirects = {"/plain": "http://127.0.0.1/x", "/loop": f"{site.base}/loop"}
    site.status = {"/secret": 403}
    a = f"{site.base}/a\n"
    assert "Line 2" in sentence_of(team, f"{a}{site.base}/gone")
    assert "Line 2: it has 5 bytes, not 4" in sentence_of(team, f"{a}{site.base}/b 4")
    assert "not HTTPS" in sentence_of(team, f"{a}{site.base}/plain")
    assert "without end" in sentence_of(team, f"{site.base}/loop")
    assert "403" in sentence_of(team, f"{site.base}/secret")
    site.etags = False
    assert "SHA-256" in sentence_of(team, f"{site.base}/b")


def test_a_redirect_to_an_address_inside_is_refused(team, site, settings, monkeypatch):
    settings.SYNC_ALLOWED_NETWORKS = ["127.0.0.1"]
    real = guard._resolve
    monkeypatch.setattr(
        guard,
        "_resolve",
        lambda host, port: (
            [(2, ("169.254.169.254", port))] if "inside" in host else real(host, port)
        ),
    )
    site.redirects = {"/x": "https://inside.example/latest/meta-data"}
    assert "169.254.169.254" in sentence_of(team, f"{site.base}/x")


def test_a_changed_file_is_stale(team, site):
    site.files = {"/a": b"first", "/b": b"other"}
    source = begin(team, f"{site.base}/a\n{site.base}/b")
    from tests.staging.sync.test_folders import listed

    listed(source)
    site.files["/a"] = b"FIRST"
    source = finish(source)
    assert source.dataset.state == DatasetState.STALE
    sources.list_again(source=source, actor=ACTOR)
    source = finish(source)
    assert source.dataset.state == DatasetState.STAGED
    assert (source.there_files, source.moved_files) == (1, 1)
    assert contents(source.dataset)["a"] == b"FIRST"

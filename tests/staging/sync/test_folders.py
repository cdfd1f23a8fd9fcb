"""Server folders: read beneath their root, pinned, and noticed when they change."""

import os
import socket
import time
from pathlib import Path

import pytest

from portal.base.errors import DomainError
from staging import services
from staging.models import ServerFolder, Source
from staging.states import DatasetState
from staging.sync import claims, copying, listing, opening, record, sources
from staging.sync.folders import FolderReader
from staging.sync.states import SourceKind, SourceState
from tests.staging.sync.conftest import contents, finish

pytestmark = pytest.mark.django_db
ACTOR = "owner@climate.example"


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "lab"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(team, root) -> ServerFolder:
    row = ServerFolder.objects.create(name="Lab", path=str(root))
    row.teams.add(team)
    return row


def write(root: Path, files: dict[str, bytes], age_s: float = 60) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time.time() - age_s,) * 2)
    time.sleep(0.06)  # longer than a tick of the clock that file systems note changes by


def begin(
    team, folder: ServerFolder, prefix: str = "", name: str = "Lab data", **options
) -> Source:
    dataset = services.create_dataset(team=team, name=name, actor=ACTOR)
    choice = sources.Choice(SourceKind.FOLDER, folder=folder, prefix=prefix, **options)
    return sources.create_source(dataset=dataset, choice=choice, actor=ACTOR)


def why(source: Source) -> dict[str, str]:
    return {problem["name"]: problem["why"] for problem in source.problems}


def test_a_folder_becomes_a_staged_dataset(team, folder, root):
    files = {
        "a.bin": b"first",
        "deep/er/b.bin": os.urandom(33 * 2**20 + 1),
        "deep/empty": b"",
        " odd ‘name’ %41.txt": b"odd",
        "e\u0301": b"NFD",
        "\u00e9": b"NFC",
    }
    write(root, files)
    source = finish(begin(team, folder))
    assert source.dataset.state == DatasetState.STAGED, source.sentence
    assert contents(source.dataset) == files


def test_only_teams_that_the_operator_named_may_read(other_team, folder):
    with pytest.raises(DomainError, match="no such server folder"):
        begin(other_team, folder)


@pytest.mark.parametrize("prefix", ["../..", "a/../../etc", "/etc/../..", "..", "a//b", "a\0b"])
def test_a_prefix_does_not_leave_the_root(team, folder, prefix):
    with pytest.raises(DomainError):
        begin(team, folder, prefix)


def test_links_that_leave_and_odd_files_are_refused_by_name(team, folder, root, tmp_path):
    (tmp_path / "secret").write_bytes(b"not yours")
    write(root, {"real/file": b"inside"})
    (root / "absolute").symlink_to(tmp_path / "secret")
    (root / "relative").symlink_to("../secret")
    (root / "up").symlink_to("..")
    (root / "broken").symlink_to("nowhere")
    (root / "proc").symlink_to("/proc/self/environ")
    (root / "to-folder").symlink_to("real")
    (root / "inner").symlink_to("real/file")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "sock"))
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_bytes(b"no Unicode")
    (root / "invoice\u202egpj.exe").write_bytes(b"shows as another")
    time.sleep(0.06)
    source = finish(begin(team, folder))
    assert source.dataset.state == DatasetState.STAGED, source.sentence
    assert contents(source.dataset) == {"real/file": b"inside", "inner": b"inside"}
    told = why(source)
    for name in ("absolute", "relative", "up", "proc"):
        assert "leaves the server folder" in told[name]
    assert "not followed" in told["to-folder"]
    assert "nothing" in told["broken"]
    assert {"pipe", "sock"} <= told.keys()
    assert "U+202E" in told["invoice\ufffdgpj.exe"]
    assert any("Unicode" in sentence for sentence in told.values())


def listed(source: Source) -> None:
    assert listing.claim_listing(source, source.created_at)
    for page in opening.reader_of(source).pages({}):
        assert listing.store_page(source, page)
    assert listing.end_listing(source)


def test_a_file_swapped_for_a_link_after_the_listing_is_not_followed(team, folder, root, tmp_path):
    (tmp_path / "secret").write_bytes(b"12345")
    write(root, {"a": b"abcde", "sub/b": b"fghij"})
    source = begin(team, folder)
    listed(source)
    (root / "a").unlink()
    (root / "a").symlink_to(tmp_path / "secret")
    (root / "sub").rename(tmp_path / "moved")
    (root / "sub").symlink_to(tmp_path / "moved")
    source = finish(source)
    assert (source.state, source.dataset.state) == (SourceState.STALE, DatasetState.STALE)
    assert source.files.filter(state="stale").count() == 2


def test_changed_with_the_same_name_size_and_time_is_stale(team, folder, root):
    write(root, {"a": b"first", "b": b"other"})
    source = begin(team, folder)
    listed(source)
    facts = (root / "a").stat()
    (root / "a").write_bytes(b"FIRST")
    os.utime(root / "a", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    source = finish(source)
    assert source.dataset.state == DatasetState.STALE
    sources.list_again(source=source, actor=ACTOR)
    time.sleep(0.06)
    source = finish(source)
    assert source.dataset.state == DatasetState.STAGED, source.sentence
    assert contents(source.dataset) == {"a": b"FIRST", "b": b"other"}
    assert (source.there_files, source.moved_files) == (1, 1)


def test_changed_between_two_ranges_never_becomes_a_mixed_file(team, folder, root):
    write(root, {"large": b"a" * (40 * 2**20)})
    source = begin(team, folder)
    listed(source)
    (order,) = claims.claim_parts(source.pk, 1, source.created_at)
    outcome = copying.copy(opening.reader_of(source), order, time.monotonic() + 60)
    assert not outcome.left
    record.record(source.pk, [outcome])
    write(root, {"large": b"b" * (40 * 2**20)})
    assert finish(source).dataset.state == DatasetState.STALE


def test_a_second_sync_reads_only_what_is_new_or_changed(team, folder, root):
    write(root, {"a": b"same", "b": b"old"})
    source = begin(team, folder)
    source.files.update(pin="")
    finish(source)
    reader = FolderReader(str(root))
    (page,) = reader.pages({})
    assert not any(found.settled for found in page.found)  # ctime cannot be set back: too fresh
    time.sleep(2.1)
    finish(begin(team, folder, name="Settled"))
    write(root, {"c": b"new"})
    source = finish(begin(team, folder, name="Again"))
    assert (source.there_files, source.moved_files) == (2, 1)


def test_a_listing_goes_on_where_it_stopped(root, monkeypatch):
    monkeypatch.setattr("staging.sync.folders.PAGE", 3)
    names = ["a", "a-b", "a.d/x", "a.d/y/z", "b/c/d", "b/e", "c"]
    write(root, dict.fromkeys(names, b"x"))
    reader = FolderReader(str(root))
    found: list[str] = []
    cursor: dict | None = {}
    while cursor is not None:
        page = next(reader.pages(cursor))
        found += [entry.path for entry in page.found]
        cursor = page.cursor
    assert found == names


def test_a_root_that_is_away_is_tried_later(team, folder, root):
    write(root, {"a": b"x"})
    source = begin(team, folder)
    root.rename(root.with_name("elsewhere"))
    from staging.sync import pump

    pump.run(time.monotonic() + 5)
    source.refresh_from_db()
    assert (source.state, source.tries) == (SourceState.LISTING, 1)
    assert "cannot be opened" in source.sentence
    root.with_name("elsewhere").rename(root)
    Source.objects.update(next_try_at=None)
    assert finish(source).dataset.state == DatasetState.STAGED

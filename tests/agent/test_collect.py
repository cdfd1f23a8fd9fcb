"""The collector against a hostile output."""

import os
import socket

import pytest

from nodes.agent import collect
from nodes.agent.collect import Changed, harvest, matches
from tests.agent.portal_stub import digest_of, script

ALL = [{"pattern": "**", "optional": False}]
MUCH = 10**9


def names(found) -> list[str]:
    return [file.path for file in found.files]


def why(found) -> dict[str, str]:
    return dict(found.skipped)


@pytest.fixture
def output(tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    return folder


def test_regular_files_at_any_depth_in_order_of_bytes(output):
    for path in ("b", "a/z", "a/b/c", "é", "a-b", "-dash", "n" * 255):
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        (output / path).write_text(path)
    found = harvest(output, ALL, MUCH)
    assert names(found) == sorted(names(found), key=str.encode)
    assert len(found.files) == 7
    assert found.skipped == []
    assert found.problem is None


def test_links_and_special_files_are_skipped_by_name(output, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_text("secret")
    (output / "link").symlink_to(tmp_path / "secret")
    (output / "dangling").symlink_to("/nowhere")
    (output / "loop").symlink_to(".")
    (output / "folder-link").symlink_to(tmp_path / "folder")
    os.link(tmp_path / "secret", output / "hard")
    os.mkfifo(output / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(output)
        server.bind("socket")
        os.chdir(here)
    if os.geteuid() == 0:
        os.mknod(output / "null", 0o20666, os.makedev(1, 3))
    (output / "good").write_text("good")
    found = harvest(output, ALL, MUCH)
    assert names(found) == ["good"]
    assert why(found)["link"] == "is a link"
    assert why(found)["folder-link"] == "is a link"
    assert why(found)["fifo"] == "is a FIFO"
    assert why(found)["socket"] == "is a socket"
    assert why(found)["hard"] == "has a name outside of the output"
    if os.geteuid() == 0:
        assert why(found)["null"] == "is a device"


def test_hard_links_among_the_output_are_fine(output):
    (output / "one").write_text("x")
    (output / "sub").mkdir()
    os.link(output / "one", output / "sub" / "two")
    found = harvest(output, ALL, MUCH)
    assert names(found) == ["one", "sub/two"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"bad-\xff", "is no UTF-8"),
        (b"new\nline", "holds the control character U+000A"),
        (b"esc\x1b[31m", "holds the control character U+001B"),
        (b"del\x7f", "holds the control character U+007F"),
        ("c1\x9b31m".encode(), "holds the control character U+009B"),
        ("invoice\u202egpj.exe".encode(), "holds the control character U+202E"),
        (b"back\\slash", "holds a backslash"),
    ],
)
def test_names_that_cannot_be_returned_are_refused(output, name, reason):
    with open(os.path.join(os.fsencode(output), name), "wb") as out:
        out.write(b"x")
    (output / "good").write_text("x")
    found = harvest(output, ALL, MUCH)
    assert names(found) == ["good"]
    assert why(found)[os.fsdecode(name)] == reason


def test_a_deep_tree_ends_at_its_limit(output):
    fd = os.open(output, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    found = harvest(output, [{"pattern": "**", "optional": True}], MUCH)
    assert names(found) == []
    (reason,) = why(found).values()
    assert "deeper than 64" in reason


def test_a_sparse_file_counts_with_its_whole_size(output):
    with (output / "sparse").open("wb") as out:
        out.truncate(10**12)
    (output / "small").write_text("x")
    found = harvest(output, ALL, MUCH)
    assert names(found) == ["small"]
    assert found.problem is not None
    assert found.problem["code"] == "output_limit"
    assert "1,000,000,000,000" in why(found)["sparse"]


def test_what_is_closed_to_its_owner_is_opened(output):
    (output / "shut").mkdir()
    (output / "shut" / "file").write_text("x")
    (output / "shut" / "file").chmod(0)
    (output / "shut").chmod(0)
    found = harvest(output, ALL, MUCH)
    assert names(found) == ["shut/file"]
    assert collect.hash_found(output, found.files[0], lambda: None) == digest_of(b"x")


def test_a_file_that_changes_is_noticed(output):
    (output / "a").write_text("before")
    found = harvest(output, ALL, MUCH).files[0]
    (output / "a").write_text("behind")
    os.utime(output / "a")
    with pytest.raises(Changed):
        collect.open_found(output, found)
    (output / "a").unlink()
    (output / "a").symlink_to("/etc/passwd")
    with pytest.raises(Changed):
        collect.open_found(output, found)


def test_a_folder_that_becomes_a_link_is_not_followed(output, tmp_path):
    (output / "sub").mkdir()
    (output / "sub" / "passwd").write_text("mine")
    found = harvest(output, ALL, MUCH).files[0]
    (output / "sub").rename(tmp_path / "moved")
    (output / "sub").symlink_to(tmp_path / "moved")
    with pytest.raises(Changed):
        collect.open_found(output, found)


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("**", ["a.csv", "stats/b.csv", "stats/deep/c.txt"]),
        ("*", ["a.csv", "stats/b.csv", "stats/deep/c.txt"]),
        ("", ["a.csv", "stats/b.csv", "stats/deep/c.txt"]),
        ("stats/", ["stats/b.csv", "stats/deep/c.txt"]),
        ("stats/**", ["stats/b.csv", "stats/deep/c.txt"]),
        ("stats", ["stats/b.csv", "stats/deep/c.txt"]),
        ("/output/stats/", ["stats/b.csv", "stats/deep/c.txt"]),
        ("*.csv", ["a.csv", "stats/b.csv"]),
        ("**/*.csv", ["a.csv", "stats/b.csv"]),
        ("a.csv", ["a.csv"]),
        ("stat", []),
        ("[", []),
    ],
)
def test_patterns(pattern, taken):
    paths = ["a.csv", "stats/b.csv", "stats/deep/c.txt"]
    assert [path for path in paths if matches(path, pattern)] == taken


def test_a_missing_pattern_is_named_unless_it_is_optional(output):
    (output / "here").write_text("x")
    outputs = [
        {"pattern": "here", "optional": False},
        {"pattern": "gone", "optional": False},
        {"pattern": "maybe", "optional": True},
    ]
    found = harvest(output, outputs, MUCH)
    assert found.problem == {
        "code": "output_missing",
        "detail": "Nothing in the output matches gone.",
    }
    assert names(found) == ["here"]


@pytest.mark.sandbox
def test_a_hostile_output_costs_only_what_is_hostile(portal, agents):
    text = (
        "import os, socket\n"
        "os.chdir('/output')\n"
        "open('good', 'w').write('good')\n"
        "os.symlink('/etc/passwd', 'link'); os.symlink('/run/e31/passwd', 'link2')\n"
        "os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('sock')\n"
        "open(b'\\xff', 'w'); open('n\\nl', 'w'); open('<b>\\'\"&.html', 'w').write('x')\n"
        "open('x\\u202egpj.sh', 'w')\n"
        "open('x' * 255, 'w').write('long')\n"
        "with open('sparse', 'w') as f: f.truncate(2**40)\n"
        "os.makedirs('d/' * 60); os.chmod('d', 0)\n"
        "for n in range(1200): open(f'f{n}', 'w')\n"
    )
    lease = portal.place("host", work=script(text, "python"))
    agents()
    report = portal.wait_phase(lease, "released")
    assert report["exit"]["code"] == 0, lease.log
    assert set(lease.outputs) == {"good", "<b>'\"&.html", "x" * 255} | {
        f"f{n}" for n in range(1200)
    }
    assert report["output_problem"]["code"] == "output_limit"
    assert report["evidence"]["scratch"] == "wiped"
    portal.wait(lambda: b"Not returned: 'link' is a link." in lease.log, "the names in the log")
    for line in (
        b"'fifo' is a FIFO",
        b"'n\\nl' holds the control character U+000A",
        b"'\\udcff' is no UTF-8",
    ):
        assert line in lease.log


def test_what_takes_no_room_on_the_disk_has_its_limit_too(output, monkeypatch):
    """Links are no files and cost no bytes: their number alone could fill the agent's memory."""
    monkeypatch.setattr(collect, "MOST_FILES", 50)
    monkeypatch.setattr(collect, "MOST_SKIPPED", 5)
    for number in range(40):
        (output / f"link{number}").symlink_to("nowhere")
    found = harvest(output, [{"pattern": "**", "optional": True}], MUCH)
    assert (len(found.skipped), found.left_out, found.problem) == (5, 40, None)
    for number in range(40):
        (output / f"more{number}").symlink_to("nowhere")
    found = harvest(output, [{"pattern": "**", "optional": True}], MUCH)
    assert (len(found.skipped), found.left_out) == (5, 50)
    assert found.problem["code"] == "output_limit"

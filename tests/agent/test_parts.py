"""The agent's small parts, each by itself."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodes.agent import (
    cache,
    cgroup,
    clock,
    digests,
    disk,
    facts,
    journal,
    loop,
    proctree,
    release,
    sandbox,
    steps,
)
from nodes.agent.client import Away, Backoff, Errand, Portal, Refused, Stopped, patiently
from nodes.agent.fetch import NodeFault, target_of
from nodes.agent.gpus import Gpus, simulated
from nodes.agent.worklog import WorkLog
from staging import digests as staging_digests

# -- digests


@pytest.mark.parametrize(
    ("size", "chunk"),
    [
        (0, 8 * 2**20),
        (8 * 2**20 * 9500, 8 * 2**20),
        (8 * 2**20 * 9500 + 1, 16 * 2**20),
        (2**40, 128 * 2**20),
    ],
)
def test_chunks_double_until_there_are_few_enough(size, chunk):
    assert digests.chunk_size(size) == chunk


@pytest.mark.parametrize("size", [0, 1, 8 * 2**20 - 1, 8 * 2**20, 8 * 2**20 + 1, 17 * 2**20])
def test_the_agent_and_the_portal_digest_alike(size):
    content = os.urandom(size)
    mine, theirs = digests.FileHash(size), staging_digests.Hasher(size)
    for start in range(0, size, 1_000_003):
        mine.update(content[start : start + 1_000_003])
    theirs.update(content)
    assert mine.digest() == theirs.finish()[0]


def test_manifest_digest_sorts_by_the_bytes_of_the_path():
    rows = [("a" * 64, 1, False, "é"), ("b" * 64, 2, True, "z"), ("c" * 64, 0, False, "Z/a")]
    assert digests.manifest_digest(rows) == staging_digests.manifest_digest(rows)
    assert digests.manifest_digest(reversed(rows)) == digests.manifest_digest(rows)


# -- the state folder


def test_remove_tree_removes_anything_and_follows_nothing(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    os.mkfifo(tree / "fifo")
    (tree / "shut").mkdir()
    (tree / "shut" / "x").write_text("x")
    (tree / "shut").chmod(0)
    with open(os.path.join(os.fsencode(tree), b"\xff\n"), "wb"):
        pass
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("deep" * 50, dir_fd=fd)
        below = os.open("deep" * 50, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    assert disk.remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").read_text() == "kept"
    assert disk.remove_tree(tree), "what is not there is removed"


def test_remove_tree_of_a_link_removes_the_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert disk.remove_tree(tmp_path / "link")
    assert (tmp_path / "folder" / "kept").exists()


def test_write_atomic_leaves_the_old_bytes_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "file"
    disk.write_json(path, {"a": 1})
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        disk.write_json(path, {"a": 2})
    assert disk.read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_lock_ends_with_its_descriptor(tmp_path):
    fd = disk.lock(tmp_path / "lock")
    assert disk.is_locked(tmp_path / "lock")
    with pytest.raises(disk.Busy):
        disk.lock(tmp_path / "lock")
    os.close(fd)
    assert not disk.is_locked(tmp_path / "lock")


def test_a_record_survives_a_restart(tmp_path):
    for name in ("journal", "leases"):
        (tmp_path / name).mkdir()
    lease = journal.Lease.begin(tmp_path, "abcd", "1.7")
    begun = clock.boottime_ms()
    lease.move(journal.READY, gpus=["GPU-1"])
    again = journal.Lease.load(tmp_path, lease.path)
    assert again.record == lease.record
    now = clock.boottime_ms()
    assert 0 <= again.report(now)["ages"]["ready"] <= now - begun
    again.note(boot="another")
    assert again.report(clock.boottime_ms())["ages"]["ready"] is None


def test_a_log_ends_with_the_release(tmp_path):
    for name in ("journal", "leases"):
        (tmp_path / name).mkdir()
    lease = journal.Lease.begin(tmp_path, "abcd", "1.7")
    assert lease.log_size() == 0
    lease.say("[portal] Not returned: one.\n")
    size = lease.log_size()
    lease.released({"processes": "none"})
    assert lease.report(clock.boottime_ms())["log_bytes"] == size > 0
    lease.say("late\n")
    assert lease.log.stat().st_size == size
    with lease.log.open("ab") as log:
        log.write(b"by what could not be ended")
    assert journal.Lease.load(tmp_path, lease.path).log_size() == size


@pytest.mark.parametrize("code", ["", "../x", "a/b", "a" * 65, "a\n", "."])
def test_a_hostile_lease_code_is_refused(tmp_path, code):
    with pytest.raises(ValueError, match="no lease code"):
        journal.Lease.begin(tmp_path, code, "1.1")


# -- cache and disk


def store(one: cache.Cache, team: str, content: bytes) -> tuple[str, Path]:
    total = digests.FileHash(len(content))
    total.update(content)
    place = one.place(team, total.digest(), False)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return total.digest(), place


def test_the_least_recently_used_goes_first_and_pinned_files_stay(tmp_path):
    one = cache.Cache(tmp_path / "cache")
    _, old = store(one, "t", b"1" * 100)
    _, pinned = store(one, "t", b"2" * 100)
    _, new = store(one, "t", b"3" * 100)
    for age, place in enumerate((new, old, pinned)):
        os.utime(place, (time.time() - age * 100, time.time() - age * 100))
    cache.give(pinned, tmp_path / "data", link=True)
    assert one.free(50) == 100
    assert (old.exists(), pinned.exists(), new.exists()) == (False, True, True)
    assert one.free(10**6) == 100
    assert pinned.exists()


def test_a_cached_file_from_before_a_power_cut_is_read_again(tmp_path):
    one = cache.Cache(tmp_path / "cache")
    digest, place = store(one, "t", b"good")
    assert one.has(place, 4, digest)
    os.utime(place, (1, 1))
    assert one.has(place, 4, digest)
    assert place.stat().st_mtime > 1
    place.write_bytes(b"\0\0\0\0")
    os.utime(place, (1, 1))
    assert not one.has(place, 4, digest)
    assert not place.exists()


def test_a_copy_leaves_the_cache_alone(tmp_path):
    one = cache.Cache(tmp_path / "cache")
    _, place = store(one, "t", b"shared")
    cache.give(place, tmp_path / "copy", link=False)
    (tmp_path / "copy").write_bytes(b"changed")
    assert place.read_bytes() == b"shared"


@pytest.mark.parametrize(("team", "digest"), [("../t", "a" * 64), ("t", "../x"), ("t", "A" * 64)])
def test_a_hostile_digest_or_team_has_no_place(tmp_path, team, digest):
    with pytest.raises(ValueError, match="No cache place"):
        cache.Cache(tmp_path).place(team, digest, False)


@pytest.mark.parametrize(
    "path",
    ["data", "data/", "other/x", "data/../x", "/etc/passwd", "data//x", "data/a\0b", "code/."],
)
def test_hostile_paths_of_the_listing_are_refused(tmp_path, path):
    with pytest.raises(NodeFault):
        target_of(tmp_path, path)


def test_room_counts_what_other_leases_were_promised(tmp_path):
    for name in ("journal", "leases", "cache"):
        (tmp_path / name).mkdir()
    room = facts.Room(tmp_path, cache.Cache(tmp_path / "cache"), most=1000)
    leases = [journal.Lease.begin(tmp_path, f"lease{n}", "1.1") for n in range(2)]
    for lease in leases:
        lease.change(spec={"disk_bytes": 600})
    room.reserve(leases[0], leases[:1])
    with pytest.raises(NodeFault, match="600 bytes of disk; this node has 400 left"):
        room.reserve(leases[1], leases)
    leases[0].move(journal.RELEASED)
    room.reserve(leases[1], leases)


# -- the log


def test_a_log_within_its_limit_is_whole(tmp_path):
    log = WorkLog(tmp_path / "log", 100_000)
    log.write(b"a\nb")
    log.note("said by the portal")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"a\nb\n[portal] said by the portal\n"


def test_a_long_log_says_how_much_is_missing(tmp_path):
    log = WorkLog(tmp_path / "log", 20_000)
    for n in range(10_000):
        log.write(b"%09d\n" % n)
    log.close()
    text = (tmp_path / "log").read_bytes()
    assert len(text) <= 20_000
    assert text.startswith(b"000000000\n")
    assert text.endswith(b"000009999\n")
    head, _, rest = text.partition(b"[portal] ")
    lost = int(rest.split(b" ")[0].replace(b",", b""))
    tail = rest.partition(b"limit.\n")[2]
    assert len(head.rstrip(b"\n")) + lost + len(tail) in (100_000, 99_999)


# -- processes


def test_a_process_is_known_by_its_start_too():
    me = proctree.identity(os.getpid())
    assert me is not None
    assert me.alive()
    assert not proctree.Identity(me.pid, me.since + 1).alive()
    assert proctree.identity(2**22 + 1) is None


def test_descendants_are_found():
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert child.pid in proctree.descendants(os.getpid())
            assert os.getpid() in proctree.ancestors(child.pid)
            assert proctree.resident_bytes([child.pid]) > 0
        finally:
            child.kill()
    assert child.pid not in proctree.descendants(os.getpid())


@pytest.mark.parametrize(
    ("mounted", "own", "expected"),
    [
        (
            "{} - cgroup2 cgroup2 rw",
            "0::/system.slice/agent.service/main",
            "system.slice/agent.service",
        ),
        ("{} - cgroup2 cgroup2 rw", "0::/", "."),
        ("{} - cgroup2 cgroup2 rw", "0::/user.slice/session", "."),
        ("{} - cgroup cgroup rw,pids", "3:cpu:/x\n2:pids:/user.slice\n0::/", "user.slice"),
        ("{} - cgroup cgroup rw,memory", "3:cpu:/x\n2:memory:/user.slice", None),
        ("", "0::/", None),
    ],
    ids=["delegated", "top", "root", "version 1", "no pids", "none"],
)
def test_a_group_is_made_where_the_kernel_divides(tmp_path, monkeypatch, mounted, own, expected):
    top = tmp_path / "cgroup"
    for folder in ("system.slice/agent.service/main", "user.slice/session"):
        (top / folder).mkdir(parents=True)
    for divided in (top, top / "system.slice" / "agent.service"):
        (divided / "cgroup.subtree_control").write_text("cpu pids\n")
    line = mounted.format(f"31 23 0:28 / {top} rw")
    (tmp_path / "mounts").write_text(line and line + "\n")
    (tmp_path / "own").write_text(own + "\n")
    monkeypatch.setattr(cgroup, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    made = cgroup.Group.make(tmp_path / "abcd", 77).path
    assert (made and made.parent) == (expected and (top / expected))
    if made:
        assert (made / "pids.max").read_text() == "77"
        assert made.name.startswith("e31-abcd-")


def test_work_whose_group_is_gone_runs_without_it(tmp_path):
    """The supervisor never moves itself: it could fail to come back, with the work running."""
    group = cgroup.Group(tmp_path / "gone")
    assert subprocess.run(["true"], preexec_fn=group.join).returncode == 0
    assert group.remove()


def test_a_supervisor_that_has_not_spoken_yet_is_a_process(tmp_path):
    for name in ("journal", "leases"):
        (tmp_path / name).mkdir()
    lease = journal.Lease.begin(tmp_path, "abcd", "1.1")
    assert release.processes(lease) == "none"
    held = disk.lock(lease.folder / "supervisor.lock")
    assert release.processes(lease) == "left"
    os.close(held)
    assert lease.forget()
    assert release.processes(lease) == "none"


def test_the_log_of_an_unknown_lease_is_not_sent_again_at_once(monkeypatch):
    """A restored portal has enough to do without a block of each log in every turn."""

    def unknown(portal, lease):
        raise Refused(404, "unknown_lease", "This node has no such lease.", {})

    monkeypatch.setattr(loop.deliver, "send_log", unknown)
    lease, agent = SimpleNamespace(log_after=0.0), SimpleNamespace(portal=None)
    agent._unsent = lambda: [lease]
    assert loop.Agent._sendable(agent) == [lease]
    loop.Agent._send_logs(agent, [lease])
    assert loop.Agent._sendable(agent) == []
    lease.log_after -= loop.UNKNOWN_SECONDS
    assert loop.Agent._sendable(agent) == [lease]


# -- what cannot start


@pytest.mark.parametrize(
    ("environment", "argv", "sentence"),
    [
        ({"A": "x\0y"}, ["true"], "NUL"),
        ({"A B": "x"}, ["true"], "no name"),
        ({"": "x"}, ["true"], "no name"),
        ({"A": "x" * 2**17}, ["true"], "128 KiB"),
        ({f"A{n}": "x" * 10**5 for n in range(11)}, ["true"], "1 MiB"),
        ({}, ["bash", "-c", "a\0b"], "NUL"),
    ],
)
def test_what_the_kernel_would_refuse_is_the_works_own_fault(environment, argv, sentence):
    with pytest.raises(sandbox.CannotStart, match=sentence):
        sandbox.check({"environment": environment, "argv": argv})


# -- the network


class _Once(BaseHTTPRequestHandler):
    answers: list[tuple[int, bytes]] = []
    cut = 0  # bytes that are announced and never come

    def do_GET(self) -> None:
        status, content = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) + self.cut))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server():
    _Once.answers = []
    with HTTPServer(("127.0.0.1", 0), _Once) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield Portal(f"http://127.0.0.1:{http.server_address[1]}/below/")
        http.shutdown()


@pytest.mark.parametrize(
    ("status", "content"),
    [(503, b"{}"), (500, b"<html>"), (429, b""), (200, b"no json"), (200, b"[]"), (302, b"")],
)
def test_answers_that_are_none_mean_that_the_portal_is_away(server, status, content):
    if status == 302:
        _Once.answers = [(status, content)]
        with pytest.raises(Refused):
            server.call("GET", "x")
        return
    _Once.answers = [(status, content)]
    with pytest.raises(Away):
        server.call("GET", "x")


def test_an_answer_that_breaks_off_means_that_the_portal_is_away(server, monkeypatch):
    monkeypatch.setattr(_Once, "cut", 40)
    _Once.answers = [(200, b'{"epo')]
    with pytest.raises(Away, match="broke off"):
        server.call("GET", "x")


@pytest.mark.parametrize("content", [b"", b"<html>", b"[1]", b'{"error": 7, "message": null}'])
def test_a_refusal_without_a_proper_body_is_still_one(server, content):
    _Once.answers = [(403, content)]
    with pytest.raises(Refused) as caught:
        server.call("GET", "x")
    assert caught.value.status == 403


def test_nobody_listens():
    with pytest.raises(Away):
        Portal("http://127.0.0.1:9").call("GET", "x")


@pytest.mark.parametrize("address", ["", "ftp://x", "portal.example", "http://"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ValueError, match="no http"):
        Portal(address)


def test_patience_ends_with_the_errand():
    errand = Errand()
    tries = []

    def action() -> None:
        tries.append(1)
        errand.stopped.set()
        raise Away

    with pytest.raises(Stopped):
        patiently(action, errand)
    assert len(tries) == 1
    assert errand.away_since is not None


def test_pauses_grow_to_half_a_minute():
    backoff = Backoff()
    pauses = [backoff.next() for _ in range(30)]
    assert 0.25 <= pauses[0] <= 0.5
    assert all(15 <= pause <= 30 for pause in pauses[10:])


# -- GPUs that do not exist


def test_simulated_gpus_keep_their_names():
    assert simulated("lab node/7", 2) == simulated("lab node/7", 2)
    assert [gpu["uuid"] for gpu in simulated("lab node/7", 2)] == [
        "GPU-SIM-lab-node-7-0",
        "GPU-SIM-lab-node-7-1",
    ]
    found, reason = Gpus(simulated("n", 1)).facts(set())
    assert reason == ""
    assert found[0]["simulated"]
    assert found[0]["model"] == "Simulated GPU"
    json.dumps(found)


def test_a_supervisor_that_cannot_start_is_a_fault_at_once(monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2; exit 127\n")
    broken.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(broken))
    moves = []
    lease = SimpleNamespace(
        code="stillborn",
        folder=tmp_path,
        record=SimpleNamespace(gpus=[]),
        move=lambda phase, **what: moves.append((phase, what.get("fault"))),
    )
    gpus = SimpleNamespace(chosen=lambda uuids: [])
    steps.Steps(None, None, gpus, "", wake=lambda: None).start(lease, [])
    fault = {"code": "launch_failed", "detail": "no such library"}
    assert moves == [(journal.ALLOCATED, None), (journal.RELEASING, fault)]


def test_a_start_that_the_machine_refuses_is_tried_for_a_while(monkeypatch, tmp_path):
    """As fork(2) without room for one more process, or a full disk."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "not here"))
    moves = []
    lease = SimpleNamespace(
        code="refused",
        folder=tmp_path,
        record=SimpleNamespace(gpus=[], phase=journal.ALLOCATED),
        move=lambda phase, **what: moves.append((phase, what.get("fault"))),
        supervised=lambda: False,
        status=lambda: None,
    )
    gpus = SimpleNamespace(chosen=lambda uuids: [])
    node = steps.Steps(None, None, gpus, "", wake=lambda: None)
    node.start(lease, [])
    node._allocated(lease)
    assert moves == [(journal.ALLOCATED, None)]
    monkeypatch.setattr(steps, "LAUNCH_SECONDS", -1)
    node._allocated(lease)
    phase, fault = moves[-1]
    assert (phase, fault["code"]) == (journal.RELEASING, "launch_failed")
    assert "FileNotFoundError" in fault["detail"]

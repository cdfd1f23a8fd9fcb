"""Getting files onto the node: resumed, verified, shared per team, refused with numbers."""

import pytest

from tests.agent.portal_stub import script

pytestmark = pytest.mark.sandbox
BIG = bytes(range(256)) * 16_384  # 4 MiB


def ready(portal, code, inputs, **spec):
    lease = portal.place(code, inputs, work=script("true"), **spec)
    lease.order = "fetch"
    return lease


def test_many_files_arrive_under_their_names(portal, agents):
    names = ["-dash", "with space", "quote\"'", "100%", "🎲", "é", "é", "n" * 255, "a/b/c/d"]
    inputs = {f"data/in/{name}": name.encode() for name in names}
    inputs |= {f"data/many/{n}": b"%d" % n for n in range(1500)}
    lease = portal.place(
        "name",
        inputs,
        work=script("cd /data; find . -type f | wc -l; cat in/é in/100%; cat many/1499"),
    )
    agents()
    report = portal.wait_phase(lease, "released")
    assert report["fetched_files"] == len(inputs)
    assert lease.log.split(b"\n") == [str(len(inputs)).encode(), "é".encode() + b"100%" + b"1499"]


def test_a_cut_download_goes_on_where_it_was(portal, agents):
    portal.cut_files = 2
    lease = ready(portal, "cutd", {"data/big": BIG})
    agents()
    portal.wait_phase(lease, "ready")
    assert lease.served == lease.report["moved_bytes"] == len(BIG)


def test_the_second_lease_of_a_team_moves_nothing(portal, agents):
    first = ready(portal, "aaaa", {"data/x": BIG, "data/y": b"y"})
    agent = agents()
    portal.wait_phase(first, "ready")
    second = ready(portal, "bbbb", {"data/other/name": BIG})
    stranger = ready(portal, "cccc", {"data/x": BIG}, team="team2")
    portal.wait_phase(second, "ready")
    portal.wait_phase(stranger, "ready")
    assert (second.served, stranger.served) == (0, len(BIG))
    told = [(one.report["fetched_bytes"], one.report["moved_bytes"]) for one in (first, second)]
    assert told == [(len(BIG) + 1, len(BIG) + 1), (len(BIG), 0)]
    one = agent.state / "leases" / "aaaa" / "data" / "x"
    other = agent.state / "leases" / "bbbb" / "data" / "other" / "name"
    assert one.samefile(other)
    assert one.stat().st_mode & 0o777 == 0o444


def test_wrong_bytes_and_hostile_paths_are_faults(portal, agents):
    wrong = ready(portal, "wron", {"data/x": b"right"})
    hostile = ready(portal, "host", {"data/../../escape": b"x"})
    agents()
    portal.wait(lambda: hostile.report.get("fault"), "a fault")
    assert hostile.report["fault"]["code"] == "fetch_failed"
    assert "not allowed" in hostile.report["fault"]["detail"]
    portal.wait_phase(wrong, "ready")


def test_what_does_not_fit_is_refused_with_numbers(portal, agents):
    fits = ready(portal, "fits", {"data/x": b"x"}, disk_bytes=60_000_000)
    agents("--disk-bytes", "100000000")
    portal.wait_phase(fits, "ready")
    over = ready(portal, "over", {"data/x": b"x"}, disk_bytes=60_000_000)
    portal.wait(lambda: over.report.get("fault"), "a fault")
    assert over.report["fault"]["code"] == "node_disk_full"
    assert "60,000,000" in over.report["fault"]["detail"]
    assert "40,000,000" in over.report["fault"]["detail"]
    over.order = "drop"
    portal.wait_phase(over, "gone")

"""The uploader while things go wrong: cuts, reloads, ended sign-ins, killed servers, two tabs."""

import os
import time

import pytest
from playwright.sync_api import Route

from tests.staging.live import until
from tests.staging.uploader.conftest import sha256sums, write_tree

HOSTILE = [
    " leading", "trailing ", "two  spaces", "-rf", "--help", "'single'", '"double"', "`tick`",
    "$HOME", "%2e%2e", "100%", "a?b=c&d", "a#b", "semi;colon", "<script>", "&amp;", "{{ x }}",
    "*", "[a-b]", "~", ".hidden", "..two", "x" * 255, "é" * 127, "\N{SNOWMAN}" * 85, "💾 disk",
    "cafe\u0301", "caf\u00e9", "Case", "case", "\u05e9\u05dc.exe", "zero\u200bwidth", "日本語",
    "عربى", "!", "a:b", "con text", "null", "undefined", "NaN", "1e3", "__proto__", "constructor",
]  # fmt: skip


def hostile_sizes(count: int) -> dict[str, int]:
    """Relative paths of `count` files under every hostile name, as a file's and as a folder's."""
    sizes: dict[str, int] = {}
    for number in range(count):
        name = HOSTILE[number % len(HOSTILE)]
        turn = number // len(HOSTILE)
        above = ["", "d/", f"{HOSTILE[(7 * number) % 20]} {turn}/"][min(turn, 2)]
        path = above + name
        if path in sizes:
            path = f"{turn}/{number}/{name}"
        sizes[path] = (number * 7919) % 90_000
    return sizes


def test_hostile_names_survive_cuts_and_a_reload(server, wire, person, dataset, tmp_path):
    """300 files, the network cut twice, the page loaded again in between."""
    source = write_tree(tmp_path / "src", hostile_sizes(299) | {"large": 12_000_000})
    sums = sha256sums(source)
    assert len(sums) == 300
    wire.rate = 8_000_000
    tab = person.open(dataset)
    tab.choose(source)
    tab.reaches(0.2)
    wire.cut()
    tab.page.locator("#out-of-reach").wait_for()
    wire.mend()
    tab.reaches(0.5)
    wire.cut()
    tab.close()
    wire.mend()
    tab = person.open(dataset)
    assert "unfinished" in tab.page.inner_text("#unfinished")
    tab.page.locator("#rows-list").get_by_text("unfinished").first.wait_for()
    tab.choose(source)
    wire.rate = 0
    tab.sealed()
    held = server.digests(dataset)
    held["src/large"] = sums["src/large"]  # of two chunks: no plain digest; compared below
    assert held == sums
    answer = server.request("GET", f"/staging/{dataset}/files/src/large", **server.signed_in)
    assert answer.body == (source / "large").read_bytes()
    assert person.complaints == []


def test_a_killed_server_loses_nothing_and_nothing_is_sent_twice(
    server, wire, person, dataset, tmp_path
):
    size = 60_000_000
    source = write_tree(tmp_path / "src", {"big": size, "small": 10})
    wire.rate = 30_000_000
    tab = person.open(dataset)
    tab.choose(source)
    tab.reaches(0.25)
    shares = [tab.share]
    server.kill()
    shares.append(tab.share)
    server.start()
    until(lambda: shares.append(tab.share) or "all uploaded" in tab.total, "all is uploaded", 90)
    assert shares == sorted(shares)
    assert max(shares) <= 1
    tab.sealed()
    assert tab.share == 1
    answer = server.request("GET", f"/staging/{dataset}/files/src/big", **server.signed_in)
    assert answer.body == (source / "big").read_bytes()
    assert wire.up < size + 48 * 2**20  # at most the pieces that were on their way went twice


def test_an_ended_sign_in_does_not_end_the_upload(server, wire, person, tmp_path):
    dataset = server.new_dataset()
    source = write_tree(tmp_path / "src", {"large": 24_000_000, "more": 11_000_000})
    later = write_tree(tmp_path / "later", {"late": 1000})
    person.context.clear_cookies()
    sign_in(person)  # a session of its own, for it ends
    tab = person.open(dataset)
    wire.stall()
    tab.choose(source)
    tab.reaches(0.1)
    sign_out(person)
    before = tab.share
    tab.choose(later)  # cannot be declared now
    tab.page.locator("#signed-out").wait_for()
    wire.mend()
    tab.reaches(before + 0.2)  # its addresses work without a sign-in
    assert tab.page.locator("#signed-out").is_visible()
    wire.rate = 0
    sign_in(person)
    tab.page.bring_to_front()
    tab.page.locator("#signed-out").wait_for(state="hidden")
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/large", "src/more", "later/late"}


def sign_out(person) -> None:
    page = person.open("", "/accounts/logout/").page
    page.get_by_role("button", name="Sign out").first.click()
    page.close()


def sign_in(person) -> None:
    page = person.open("", "/accounts/login/").page
    page.fill("[name=login]", "owner@climate.example")
    page.fill("[name=password]", "correct horse battery")
    page.locator("main form button").first.click()
    page.wait_for_url(lambda url: "login" not in url)
    page.close()


def test_two_tabs_send_one_upload(server, wire, person, dataset, tmp_path):
    size = 24_000_000
    source = write_tree(tmp_path / "src", {"big": size} | {f"s{n}": 9000 for n in range(40)})
    wire.rate = 4_000_000
    one = person.open(dataset)
    one.choose(source)
    one.reaches(0.2)
    two = person.open(dataset)
    two.choose(source)
    two.page.locator("#elsewhere").wait_for()
    two.sealed()
    one.page.bring_to_front()
    one.page.locator("#drop").wait_for(state="hidden")  # it hears that the other has finished
    one.uploaded()
    assert wire.up < size * 1.1 + 2_000_000
    addresses = {path for method, path in person.sent if method == "PATCH"}
    assert len(addresses) == 1


def test_a_file_that_changed_is_named_and_never_mixed(server, wire, person, dataset, tmp_path):
    source = write_tree(tmp_path / "src", {"big": 20_000_007, "gone": 9_000_007, "same": 9_000_008})
    tab = person.open(dataset)
    wire.stall()
    tab.choose(source)
    tab.begun(3)
    wire.cut()
    tab.close()
    (source / "gone").unlink()
    other = write_tree(tmp_path / "other", {"big": 20_000_007}) / "big"
    other.replace(source / "big")
    os.utime(source / "big", (time.time() - 9000,) * 2)
    wire.mend()
    wire.rate = 0
    tab = person.open(dataset)
    tab.row("gone").get_by_text("unfinished").wait_for()
    tab.choose(source)
    tab.row("same").get_by_text("uploaded").wait_for()
    for said in ("src/gone", "src/big (changed"):
        until(lambda said=said: said in tab.page.inner_text("#report"), f"{said} is named")
    tab.row("big").get_by_role("button", name="Try again").click()
    tab.row("big").get_by_text("uploaded").wait_for()
    tab.row("gone").get_by_role("button", name="Remove").click()
    tab.sealed()
    answer = server.request("GET", f"/staging/{dataset}/files/src/big", **server.signed_in)
    assert answer.body == (source / "big").read_bytes()
    assert set(server.digests(dataset)) == {"src/big", "src/same"}


@pytest.mark.parametrize("rate", [1_500_000])
def test_pause_and_remove(server, wire, person, dataset, tmp_path, rate):
    source = write_tree(tmp_path / "src", {"a": 12_000_000, "b": 12_000_000, "c": 12_000_000})
    wire.rate = rate
    tab = person.open(dataset)
    tab.choose(source)
    tab.reaches(0.02)
    tab.row("b").get_by_role("button", name="Pause").click()
    tab.row("b").get_by_text("paused").wait_for()
    tab.row("c").get_by_role("button", name="Remove").click()
    tab.row("c").wait_for(state="detached")
    tab.page.click("#pause")
    until(lambda: "paused" in tab.total, "it is paused")
    wire.stands_still()
    wire.rate = 0
    tab.page.click("#resume")
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/a", "src/b"}


def test_handles_are_kept_and_go_on_by_themselves(server, wire, person, dataset):
    """The origin's private file system has handles as the disk has, and needs no dialog."""
    fill = """async () => {
      const root = await navigator.storage.getDirectory();
      const folder = await root.getDirectoryHandle("src", { create: true });
      const deep = await folder.getDirectoryHandle("deep", { create: true });
      for (const [where, name, size] of [[folder, "a", 9e6], [deep, "b", 9e6], [deep, "c", 5]]) {
        const out = await (await where.getFileHandle(name, { create: true })).createWritable();
        await out.write(new Uint8Array(size).map((_, at) => at * size));
        await out.close();
      }
      globalThis.showDirectoryPicker = async () => folder;
    }"""
    tab = person.open(dataset)
    tab.page.evaluate(fill)
    wire.stall()
    tab.page.click("#choose-folder")
    tab.reaches(0.2)
    wire.cut()
    tab.close()
    wire.mend()
    tab = person.open(dataset)
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/a", "src/deep/b", "src/deep/c"}
    assert person.complaints == []


@pytest.mark.parametrize("secure", [True, False], ids=["secure", "insecure"])
def test_another_file_with_the_same_name_size_and_time_is_never_mixed(
    server, chrome, wire, person, dataset, tmp_path, secure
):
    """S7 where nothing but the bytes tells, and no digest was ever known."""
    size = 30_000_000 + secure  # the team has no file of it: no digest is asked for
    source = write_tree(tmp_path / "src", {"big": size, "same": size - 4_000_000})
    at = 1_750_000_000
    for path in source.iterdir():
        os.utime(path, (at, at))
    if not secure:
        person.elsewhere(chrome, server, f"http://portal.test:{wire.port}")
    tab = person.open(dataset)
    assert tab.page.evaluate("isSecureContext") is secure
    wire.stall()
    tab.choose(source)
    tab.begun(2)
    wire.cut()
    tab.close()
    kept = server.offsets(dataset)
    assert set(kept) == {"src/big", "src/same"}
    (source / "big").write_bytes(b"another" + (source / "big").read_bytes()[7:])
    os.utime(source / "big", (at, at))
    wire.mend()
    wire.rate = 0
    sent = wire.up
    tab = person.open(dataset)
    tab.choose(source)
    tab.sealed()
    again = tab.page.inner_text("#again-list")
    assert "src/big: its bytes changed on your disk" in again
    assert "src/same" not in again
    most = size - 4_000_000 - kept["src/same"] + 2 * size
    assert wire.up - sent < most + 2_000_000  # what is the same was not sent twice
    for name in ("big", "same"):
        answer = server.request("GET", f"/staging/{dataset}/files/src/{name}", **server.signed_in)
        assert answer.body == (source / name).read_bytes()
    server.verify(dataset)


def test_another_network_is_used_at_once(server, wire, person, dataset, tmp_path):
    """The browser hears that it is offline, and online again: no wait is sat out."""
    source = write_tree(tmp_path / "src", {"large": 30_000_002} | {f"s{n}": 900 for n in range(50)})
    wire.rate = 6_000_000
    tab = person.open(dataset)
    tab.choose(source)
    tab.reaches(0.1)
    person.context.set_offline(True)
    tab.page.locator("#out-of-reach").wait_for()
    tab.page.wait_for_timeout(9000)  # by now the waits between tries are long
    share = tab.share
    assert share < 1
    wire.rate = 0
    person.context.set_offline(False)
    tab.page.locator("#out-of-reach").wait_for(state="hidden")
    tab.sealed()
    answer = server.request("GET", f"/staging/{dataset}/files/src/large", **server.signed_in)
    assert answer.body == (source / "large").read_bytes()
    assert len(server.digests(dataset)) == 51


def test_a_sleep_of_the_machine_loses_nothing(server, wire, person, dataset, tmp_path):
    """The page stands still, its connections die meanwhile, and it wakes."""
    source = write_tree(tmp_path / "src", {"large": 30_000_003})
    wire.rate = 4_000_000
    tab = person.open(dataset)
    tab.choose(source)
    tab.reaches(0.1)
    session = person.context.new_cdp_session(tab.page)
    session.send("Page.setWebLifecycleState", {"state": "frozen"})
    wire.cut()
    quiet = wire.up
    time.sleep(3)
    assert wire.up == quiet
    wire.mend()
    wire.rate = 0
    session.send("Page.setWebLifecycleState", {"state": "active"})
    tab.sealed()
    answer = server.request("GET", f"/staging/{dataset}/files/src/large", **server.signed_in)
    assert answer.body == (source / "large").read_bytes()


def as_if_faster(route: Route) -> None:
    """A portal that saw another rate than the page may have."""
    answer = route.fetch()
    found = answer.json()
    if found["rate_bps"]:
        found |= {"rate_bps": 42_000_000, "p50_s": 1.0, "p90_s": 2.0}
    route.fulfill(response=answer, json=found)


def test_time_left_is_the_portals_and_the_share_only_rises(wire, person, dataset, tmp_path):
    tab = person.open(dataset)
    wire.rate = 1_500_000
    tab.choose(write_tree(tmp_path / "src", {"big": 40_000_000}))
    tab.page.get_by_text("Not known yet: too little").wait_for()
    shares = []

    def known() -> bool:
        shares.append(tab.share)
        return "9 times in 10" in tab.page.inner_text("#transfer-rate")

    until(known, "a rate is told", 60)
    tab.page.route("**/progress?*", as_if_faster)
    rate = tab.page.locator("#transfer-rate")
    until(lambda: "42 MB a second" in rate.inner_text(), "the page shows what the portal says")
    assert shares == sorted(shares)
    wire.rate = 0
    tab.sealed()
    assert tab.share == 1

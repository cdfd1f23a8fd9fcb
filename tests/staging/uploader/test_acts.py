"""What a person does to many files at once, and what the browser asks them."""

import itertools
import os

import pytest

from tests.staging.live import until
from tests.staging.uploader.conftest import write_tree

AT = 1_750_000_000
USAGE = """
from staging.models import Upload
print(Upload.objects.filter(file__dataset__code={code!r}, state="open").count())
"""


SIZES = itertools.count(9_100_000, 10)  # the team has no file of them: all is sent


@pytest.fixture
def source(tmp_path):
    size = next(SIZES)
    source = write_tree(tmp_path / "src", {"a": size + 1, "b": size + 2, "small": size % 1000})
    for path in source.iterdir():
        os.utime(path, (AT, AT))
    return source


def test_removing_the_rest_keeps_what_arrived_and_gives_the_room_back(
    server, wire, person, dataset, source
):
    tab = person.open(dataset)
    wire.stall()
    tab.choose(source)
    tab.row("small").get_by_text("uploaded").wait_for()
    tab.page.click("#remove-all")
    question = tab.page.locator("#remove-question")
    until(lambda: "2 files" in question.inner_text(), "it says how many")
    tab.page.get_by_role("button", name="Keep them").click()
    assert tab.row("a").is_visible()
    tab.page.click("#remove-all")
    tab.page.get_by_role("button", name="Remove them").click()
    wire.mend()
    tab.row("a").wait_for(state="detached")
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/small"}
    assert server.shell(USAGE.format(code=dataset)).endswith("0")
    assert person.complaints == []


def remove(tab, name: str) -> None:
    tab.row(name).get_by_role("button", name="Remove").click()


@pytest.mark.parametrize("name", ["a", "small"])
def test_what_is_removed_while_it_is_declared_is_not_waited_for(
    server, wire, person, dataset, source, name
):
    """The portal knows it by then, and the page's answer that says so is still on its way."""
    tab = person.open(dataset)
    held: list = []

    def hold(route) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    tab.page.route("**/manifest", hold)
    tab.choose(source)
    until(lambda: tab.page.evaluate("1") and held, "the files are declared")
    remove(tab, name)
    tab.row(name).wait_for(state="detached")
    for route, answer in held:
        route.fulfill(response=answer)
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/a", "src/b", "src/small"} - {f"src/{name}"}
    assert server.shell(USAGE.format(code=dataset)).endswith("0")
    assert person.complaints == []


def test_what_has_arrived_is_removed_as_soon_as_the_portal_can_be_reached(
    server, wire, person, dataset, source
):
    tab = person.open(dataset)
    wire.stall()
    tab.choose(source)
    tab.row("small").get_by_text("uploaded").wait_for()
    wire.cut()
    remove(tab, "small")
    tab.row("small").wait_for(state="detached")
    wire.mend()
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/a", "src/b"}


def test_an_answer_that_breaks_off_is_asked_for_again(server, wire, person, dataset, source):
    tab = person.open(dataset)
    broken: list[str] = []

    def once(route) -> None:
        if broken:
            route.continue_()
            return
        answer = route.fetch()
        broken.append(answer.text())
        route.fulfill(status=answer.status, content_type="application/json", body=broken[0][:40])

    tab.page.route("**/manifest", once)
    tab.choose(source)
    tab.sealed()
    assert broken
    assert set(server.digests(dataset)) == {"src/a", "src/b", "src/small"}


def test_all_that_failed_are_tried_again(server, wire, person, dataset, source):
    """A folder on a share that goes away for a while."""
    tab = person.open(dataset)
    wire.stall()
    tab.choose(source)
    tab.row("small").get_by_text("uploaded").wait_for()
    portals = tab.page.locator("#files")
    assert not portals.is_visible()  # it is behind while files are on their way
    tab.page.click("#pause")
    until(lambda: "paused" in tab.total, "it is paused")
    tab.row("a").get_by_text("paused").wait_for()
    assert tab.row("a").get_by_role("button", name="Pause").count() == 0
    portals.wait_for()
    away = source.rename(source.parent / "away")
    wire.mend()
    tab.page.click("#resume")
    for name in ("a", "b"):
        tab.row(name).get_by_text("failed").wait_for()
    until(lambda: "could not be sent" in tab.page.inner_text("#upload-error"), "it is said")
    assert "src/a: it" in tab.page.inner_text("#failed")
    away.rename(source)
    tab.page.click("#retry")
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/a", "src/b", "src/small"}
    for name in ("a", "b"):
        answer = server.request("GET", f"/staging/{dataset}/files/src/{name}", **server.signed_in)
        assert answer.body == (source / name).read_bytes()


def test_a_changed_one_is_tried_again_with_all(server, wire, person, dataset, source):
    tab = person.open(dataset)
    wire.stall()
    tab.choose(source)
    tab.begun(2)
    wire.cut()
    tab.close()
    (source / "a").write_bytes(bytes(7_000_000))
    wire.mend()
    wire.rate = 0
    tab = person.open(dataset)
    tab.choose(source)
    tab.row("a").get_by_text("another file").wait_for()
    tab.page.click("#retry")
    tab.sealed()
    answer = server.request("GET", f"/staging/{dataset}/files/src/a", **server.signed_in)
    assert answer.body == bytes(7_000_000)


# Handles of the origin's private file system stand for those of the disk, which only a person can
# choose; what differs is that the browser asks for them again after a reload.
FILL = """async (size) => {
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle("src", { create: true });
  const out = await (await folder.getFileHandle("a", { create: true })).createWritable();
  await out.write(new Uint8Array(size));
  await out.close();
  globalThis.showDirectoryPicker = async () => folder;
}"""
ASKS = """
let answer = "prompt";
FileSystemHandle.prototype.queryPermission = async () => answer;
FileSystemHandle.prototype.requestPermission = async () => {
  if (!navigator.userActivation.isActive) throw new DOMException("No click", "SecurityError");
  answer = %r;
  return answer;
};
"""


@pytest.fixture
def asks_again(wire, person, dataset):
    """asks_again(answer): the page after a reload, where the browser would ask the person."""

    def begin(answer: str):
        tab = person.open(dataset)
        tab.page.evaluate(FILL, next(SIZES))
        wire.stall()
        tab.page.click("#choose-folder")
        tab.reaches(0.1)
        wire.cut()
        tab.close()
        wire.mend()
        wire.stands_still()  # what the closed tab's workers still did
        person.context.add_init_script(ASKS % answer)
        tab = person.open(dataset)
        tab.page.get_by_role("button", name="Go on with “src”").wait_for()
        return tab

    return begin


def test_a_click_goes_on_where_the_browser_asks(server, wire, person, dataset, asks_again):
    tab = asks_again("granted")
    tab.row("a").get_by_text("unfinished").wait_for()
    wire.stands_still()  # nothing goes before the person has answered
    assert set(server.offsets(dataset)) == {"src/a"}
    assert tab.violations() == []
    wire.rate = 0
    tab.page.click("#go-on")
    tab.sealed()
    assert set(server.digests(dataset)) == {"src/a"}
    assert person.complaints == []


def test_a_no_is_taken_for_an_answer(dataset, asks_again):
    tab = asks_again("denied")
    tab.page.click("#go-on")
    tab.page.get_by_text("does not let this page read it").wait_for()
    tab.row("a").get_by_text("unfinished").wait_for()
    assert tab.page.locator("#choose-folder").is_visible()

"""A person's act at any moment of a request: what they see is what the portal holds."""

import itertools
import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Route

from tests.staging.live import until
from tests.staging.uploader.conftest import Tab, write_tree
from tests.staging.uploader.test_cuts import sign_in, sign_out

SIZES = itertools.count(9_200_000, 10)  # the team has no file of them: all is sent
EXPIRE = """
from staging.models import Upload
Upload.objects.filter(file__dataset__code={code!r}, file__path={path!r}).update(state="expired")
"""


@pytest.fixture
def source(tmp_path):
    size = next(SIZES)
    return write_tree(tmp_path / "src", {"a": size + 1, "b": size + 2, "small": size % 1000})


@pytest.fixture
def later(tmp_path):
    return write_tree(tmp_path / "later", {"late": next(SIZES) % 1000})


class Held:
    """The first request of one kind: held before the portal sees it, or its answer after that."""

    def __init__(self, tab: Tab, name: str, *, reached: bool) -> None:
        self.tab = tab
        self.reached = reached
        self.first: Route | None = None
        self.answer = None
        self.sent: list[str] = []  # what else was asked meanwhile
        tab.page.on("request", lambda request: self.sent.append(request.url.rsplit("/", 1)[1]))
        tab.page.route(f"**/{name}*", self._hold)

    def _hold(self, route: Route) -> None:
        if self.first:
            route.continue_()
            return
        self.answer = route.fetch() if self.reached else None
        self.first = route

    def wait(self) -> None:
        until(lambda: self.tab.page.evaluate("1") and self.first, "it is held", 60)

    def go(self) -> None:
        assert self.first
        if self.answer:
            self.first.fulfill(response=self.answer)
        else:
            self.first.continue_()

    def lose(self) -> None:
        """The connection breaks before the answer has come."""
        assert self.first
        self.first.abort("connectionreset")


def progress(server, dataset: str) -> dict:
    answer = server.request("GET", f"/staging/{dataset}/progress", **server.signed_in)
    return json.loads(answer.body)


def holds_nothing(server, tab: Tab, dataset: str) -> None:
    def empty() -> bool:
        return tab.page.evaluate("1") and not progress(server, dataset)["files"]

    until(empty, "the portal holds nothing")


def staged_with(server, tab: Tab, dataset: str, *paths: str) -> None:
    tab.sealed()
    assert set(server.digests(dataset)) == set(paths)
    server.verify(dataset)
    found = progress(server, dataset)
    assert (found["state"], found["files"]) == ("staged", len(paths))


def remove_all(tab: Tab) -> None:
    tab.page.click("#remove-all")
    tab.page.get_by_role("button", name="Remove them").click()


def pause_and_remove_all(tab: Tab) -> None:
    tab.page.click("#pause")
    until(lambda: "paused" in tab.total, "it is paused")
    remove_all(tab)


def remove(tab: Tab, name: str) -> None:
    tab.row(name).get_by_role("button", name="Remove").click()
    tab.row(name).wait_for(state="detached")


@pytest.mark.parametrize(
    ("act", "end"),
    [
        (remove_all, "answered"),
        (remove_all, "late"),
        (remove_all, "lost"),
        (pause_and_remove_all, "late"),
    ],
)
def test_all_that_is_removed_while_it_is_declared_is_taken_back(
    server, person, dataset, source, later, act: Callable, end: str
):
    """`late`: it reaches the portal only after the act; `lost`: its answer never comes."""
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=end != "late")
    tab.choose(source)
    held.wait()
    act(tab)
    tab.row("a").wait_for(state="detached")
    assert "remove" not in held.sent  # it would be overtaken by what is on its way
    with tab.page.expect_response("**/remove"):
        held.lose() if end == "lost" else held.go()
    holds_nothing(server, tab, dataset)
    assert held.sent.count("manifest") == 1  # what was removed is not declared again
    tab.choose(later)
    staged_with(server, tab, dataset, "later/late")
    assert person.complaints == []


@pytest.mark.parametrize(
    ("paused", "end"), [(False, "answered"), (False, "late"), (False, "lost"), (True, "lost")]
)
def test_one_that_is_removed_while_it_is_declared_is_taken_back(
    server, person, dataset, source, paused: bool, end: str
):
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=end != "late")
    tab.choose(source)
    held.wait()
    if paused:
        tab.page.click("#pause")
        until(lambda: "paused" in tab.total, "it is paused")
    remove(tab, "a")
    held.lose() if end == "lost" else held.go()
    if paused:
        tab.page.click("#resume")
    staged_with(server, tab, dataset, "src/b", "src/small")
    assert person.complaints == []


def test_pausing_and_going_on_while_it_is_declared_declares_it_once(
    server, person, dataset, source
):
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=True)
    tab.choose(source)
    held.wait()
    tab.page.click("#pause")
    tab.row("b").get_by_role("button", name="Remove").wait_for()
    tab.page.click("#resume")
    held.go()
    staged_with(server, tab, dataset, "src/a", "src/b", "src/small")
    assert held.sent.count("manifest") == 1


def test_one_that_is_removed_and_chosen_again_meanwhile_is_the_one_chosen(
    server, person, dataset, source
):
    """The answer is about the file that was removed, which had another size."""
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=True)
    tab.choose(source)
    held.wait()
    remove(tab, "a")
    (source / "a").write_bytes(bytes(5_000_000))
    tab.choose(source)
    tab.row("a").wait_for()
    held.go()
    staged_with(server, tab, dataset, "src/a", "src/b", "src/small")
    answer = server.request("GET", f"/staging/{dataset}/files/src/a", **server.signed_in)
    assert answer.body == bytes(5_000_000)
    assert person.complaints == []


def test_what_is_removed_after_the_sign_in_ended_is_taken_back_after_the_next(
    server, wire, person, source
):
    dataset = server.new_dataset()
    person.context.clear_cookies()
    sign_in(person)  # a session of its own, for it ends
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=True)
    tab.choose(source)
    held.wait()
    sign_out(person)
    remove(tab, "a")
    held.go()
    tab.page.locator("#signed-out").wait_for()
    sign_in(person)
    tab.page.bring_to_front()
    tab.page.locator("#signed-out").wait_for(state="hidden")
    staged_with(server, tab, dataset, "src/b", "src/small")


def test_a_page_that_is_left_while_it_declares_shows_what_the_portal_waits_for(
    server, person, dataset, source
):
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=True)
    tab.choose(source)
    held.wait()
    tab.close()
    tab = person.open(dataset)
    tab.row("a").get_by_text("unfinished").wait_for()
    remove(tab, "a")
    tab.choose(source)
    tab.row("a").wait_for()  # chosen again: it is wanted again
    staged_with(server, tab, dataset, "src/a", "src/b", "src/small")


def test_what_expired_is_removed_at_the_portal_too(server, person, dataset, source):
    """It has no address any more, and the dataset waits for it all the same."""
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=True)
    tab.choose(source)
    held.wait()
    tab.close()
    server.shell(EXPIRE.format(code=dataset, path="src/a"))
    tab = person.open(dataset)
    remove(tab, "a")
    (source / "a").unlink()
    tab.choose(source)
    staged_with(server, tab, dataset, "src/b", "src/small")


def test_a_declaration_that_comes_after_all_was_sent_is_taken_back(
    server, person, dataset, source, later
):
    """Its connection broke, the portal reads it only later: it is looked for before the end."""
    tab = person.open(dataset)
    held = Held(tab, "manifest", reached=False)
    tab.choose(source)
    held.wait()
    body = held.first.request.post_data
    held.lose()
    remove_all(tab)
    tab.row("a").wait_for(state="detached")
    removed = Held(tab, "unfinished", reached=False)
    tab.choose(later)
    removed.wait()
    late = person.context.request.post(
        f"/staging/{dataset}/manifest",
        data=body,
        headers=held.first.request.headers,
    )
    assert late.ok
    removed.go()
    staged_with(server, tab, dataset, "later/late")


def test_what_is_removed_while_it_is_packed_does_not_come_back(server, person, dataset, tmp_path):
    """Its bytes reach the portal after it was taken back."""
    source = write_tree(tmp_path / "src", {"one": next(SIZES) % 1000, "two": 700})
    tab = person.open(dataset)
    held = Held(tab, "pack", reached=False)
    tab.choose(source)
    held.wait()
    with tab.page.expect_response("**/remove"):
        remove(tab, "one")
    held.go()
    staged_with(server, tab, dataset, "src/two")
    assert person.complaints == []

"""A person adds a connection, tests it, counts, syncs, meets a changed source, and ends staged."""

import pytest
from playwright.sync_api import Page, expect

from staging.models import Source
from staging.sync.states import SourceState
from tests.browser.conftest import Visitor, sign_in
from tests.staging.sync.conftest import bucket, finish, loopback, weed  # noqa: F401
from tests.staging.sync.stores import KEY, SECRET
from tests.staging.sync.test_folders import listed

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT_MS = 60_000
WIDTHS = (320, 768, 1280)


def check(visitor: Visitor) -> None:
    """The page as it stands, in both themes and three widths: accessible, and not too wide."""
    page = visitor.page
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert visitor.sideways() == 0, f"{page.url} at {width}"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert visitor.violations() == [], f"{page.url} {scheme}"


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def connect(visitor: Visitor, endpoint: str, name: str) -> None:
    """From the list of datasets to a connection that was tested."""
    page = visitor.go("/staging/")
    page.get_by_role("link", name="Connections").click()
    check(visitor)
    page.get_by_role("link", name="Add a connection").click()
    check(visitor)
    page.get_by_label("Name", exact=True).fill("Archive")
    page.get_by_label("Endpoint").fill(endpoint)
    page.get_by_label("Bucket", exact=True).fill(name)
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_label("Secret", exact=True).fill(SECRET)
    press(page, "Add the connection")
    press(page, "Test connection")
    expect(page.get_by_text("It works: the bucket can be listed")).to_be_visible()
    check(visitor)
    assert SECRET not in page.content()


def count(visitor: Visitor) -> None:
    """From a connection to a preview."""
    page = visitor.page
    page.get_by_role("link", name="Sync from it").click()
    page.get_by_label("Folder optional").fill("2026")
    page.get_by_label("Leave out").fill("*.tmp")
    page.get_by_label("Name", exact=True).fill("Readings of 2026")
    check(visitor)
    press(page, "Preview")
    expect(page.get_by_text("4 files")).to_be_visible()
    expect(page.get_by_role("cell", name="4 MB")).to_be_visible()
    check(visitor)


def test_from_a_connection_to_a_staged_dataset(visit, owner, weed, bucket):  # noqa: F811
    files = {"2026/a.csv": b"a" * 4_000_000, "2026/b.csv": b"b" * 100_000, "2026/c": b"c"}
    weed.put(
        bucket, files | {"2026/x.tmp": b"x", "2026/aux": b"y", "2026/<i>d": b"d", "2025/z": b"z"}
    )
    visitor = visit(owner)
    page = visitor.page
    connect(visitor, weed.endpoint, bucket)
    count(visitor)
    press(page, "Begin the sync")
    expect(page).to_have_title("Being listed · Readings of 2026 · E31")
    check(visitor)
    source = Source.objects.get()
    listed(source)
    expect(page.get_by_text("0 of 4 files")).to_be_visible(timeout=LIMIT_MS)
    press(page, "Pause")
    expect(page.get_by_text("Paused by a member of the team.")).to_be_visible()
    check(visitor)
    press(page, "Resume")
    weed.put(bucket, {"2026/b.csv": b"B" * 90_000})
    assert finish(source).state == SourceState.STALE
    expect(page.get_by_text("1 file changed at the source")).to_be_visible(timeout=LIMIT_MS)
    check(visitor)
    press(page, "List again")
    assert finish(source).dataset.state == "staged"
    expect(page.get_by_text("4 of 4 files")).to_be_visible(timeout=LIMIT_MS)
    page.get_by_text("1 name was not taken").click()
    expect(page.get_by_text("2026/aux")).to_be_visible()
    page.reload()
    expect(page).to_have_title("Staged · Readings of 2026 · E31")
    check(visitor)


def test_without_javascript_it_is_all_there(browser, live_server, owner, weed, bucket):  # noqa: F811
    weed.put(bucket, {"2026/a": b"a" * 1000, "2026/b": b"b", "2026/c": b"c", "2026/d": b"d"})
    context = browser.new_context(java_script_enabled=False)
    sign_in(context, owner, live_server.url)
    page = context.new_page()
    page.goto(f"{live_server.url}/staging/connections/new")
    for label, value in {"Endpoint": weed.endpoint, "Key": KEY, "Secret": SECRET}.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_label("Name", exact=True).fill("Archive")
    page.get_by_label("Bucket", exact=True).fill(bucket)
    press(page, "Add the connection")
    page.get_by_role("link", name="Sync from it").click()
    page.get_by_label("Name", exact=True).fill("Plain")
    press(page, "Preview")
    press(page, "Begin the sync")
    finish(Source.objects.get())
    page.get_by_role("link", name="Refresh").click()
    expect(page).to_have_title("Staged · Plain · E31")
    context.close()

"""Uppy in Chromium, as a page of somebody else's that sends to the portal's tus address."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Request

from tests.clients.conftest import ClientPortal

MIB = 2**20
LIMIT_MS = 60_000
CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="No Chromium was found: install the package chromium."
)


@pytest.fixture(scope="module")
def script(node_folder) -> str:
    """The page's script, in one piece."""
    argv = ["node", "bundle.mjs"]
    done = subprocess.run(argv, cwd=node_folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def context(
    portal, script, node_folder, playwright, orm_beside_playwright
) -> Iterator[BrowserContext]:
    """Signed in; the page with Uppy lies on the portal's origin, served by the browser itself."""
    page = (node_folder / "uppy-page.html").read_text()
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    context = browser.new_context()
    for pair in portal.signed_in["Cookie"].split("; "):
        name, _, value = pair.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": portal.url}])
    context.route(
        f"{portal.url}/uppy", lambda route: route.fulfill(body=page, content_type="text/html")
    )
    context.route(
        f"{portal.url}/uppy-page.js",
        lambda route: route.fulfill(body=script, content_type="text/javascript"),
    )
    yield context
    browser.close()


def open_page(context: BrowserContext, portal: ClientPortal, **tus: object) -> Page:
    options = {
        "meta": {"dataset": portal.dataset},
        "tus": {
            "endpoint": "/tus/",
            "headers": {"X-CSRFToken": portal.client_headers["X-CSRFToken"]},
            **tus,
        },
    }
    page = context.new_page()
    page.add_init_script(f"window.uppyOptions = {json.dumps(options)}")
    page.goto(f"{portal.url}/uppy")
    page.wait_for_function("window.ready")
    return page


def folder(root: Path, sizes: dict[str, int]) -> dict[str, bytes]:
    """{path: content} of a folder that was made at `root`."""
    made = {}
    for name, size in sizes.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made[f"{root.name}/{name}"] = random.Random(name).randbytes(size)  # noqa: S311
        path.write_bytes(made[f"{root.name}/{name}"])
    return made


def choose(page: Page, root: Path) -> None:
    page.locator("#pick-folder").set_input_files(root)


def finished_patches(page: Page) -> list[Request]:
    """Grows with every PATCH that was answered."""
    found: list[Request] = []

    def take(request: Request) -> None:
        if request.method == "PATCH":
            found.append(request)

    page.on("requestfinished", take)
    return found


def result(page: Page) -> dict:
    page.wait_for_function("window.result", timeout=LIMIT_MS)
    return page.evaluate("window.result")


def test_a_folder_arrives_under_its_own_names(portal, context, tmp_path):
    names = [
        "plain.bin",
        "it's 100 %.bin",
        "-dash.bin",
        "Zürich/測試 🛰️.bin",
        "Zu\u0308rich/a b.bin",
    ]
    made = folder(tmp_path / "Mühle", {name: 1000 + len(name) for name in names})
    page = open_page(context, portal)
    choose(page, tmp_path / "Mühle")
    assert result(page)["ok"] == len(names)
    for path, content in made.items():
        assert portal.has(path, content), path
    page.close()


def test_a_closed_page_goes_on_where_it_was(portal, context, tmp_path):
    """The page is closed in the middle; a new one with the same file sends only the rest."""
    made = folder(tmp_path / "cut", {"big.bin": 24 * MIB})
    page = open_page(context, portal, chunkSize=2 * MIB)
    sent = finished_patches(page)
    choose(page, tmp_path / "cut")
    while len(sent) < 3:
        page.wait_for_event("requestfinished", timeout=LIMIT_MS)
    page.close()

    page = open_page(context, portal, chunkSize=2 * MIB)
    asked: list[tuple[str, str]] = []
    page.on("request", lambda r: asked.append((r.method, r.headers.get("upload-offset", ""))))
    choose(page, tmp_path / "cut")
    assert result(page)["ok"] == 1
    tus = [(method, offset) for method, offset in asked if method in ("POST", "HEAD", "PATCH")]
    assert [method for method, _ in tus[:2]] == ["HEAD", "PATCH"]
    assert int(tus[1][1]) >= 6 * MIB
    for path, content in made.items():
        assert portal.has(path, content), path
    page.close()


def test_a_lost_network_is_waited_for(portal, context, tmp_path):
    """Off line in the middle of a file: Uppy asks for the offset and goes on by itself."""
    made = folder(tmp_path / "offline", {"big.bin": 24 * MIB})
    page = open_page(context, portal, chunkSize=2 * MIB, retryDelays=[200] * 50)
    sent = finished_patches(page)
    choose(page, tmp_path / "offline")
    while len(sent) < 2:
        page.wait_for_event("requestfinished", timeout=LIMIT_MS)
    with page.expect_event("requestfailed", timeout=LIMIT_MS):
        context.set_offline(True)
    context.set_offline(False)
    assert result(page)["ok"] == 1
    for path, content in made.items():
        assert portal.has(path, content), path
    page.close()

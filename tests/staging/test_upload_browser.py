"""The uploader in a real browser, against a real server that is killed under it."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from tests.staging.live import serving, until
from tests.staging.test_tus_live import Portal

CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="No Chromium was found: install the package chromium."),
]
MADE = """
from portal.teams.models import Team
from staging import services
made = services.create_dataset(team=Team.objects.get(), name="B", actor="owner@climate.example")
print(made.code)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Portal]:
    server = Portal(tmp_path_factory.mktemp("browser"))
    server.manage("collectstatic", "--noinput", "--verbosity", "0")
    with serving(server):
        server.set_up()
        yield server


@pytest.fixture(scope="module")
def context(server) -> Iterator[BrowserContext]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(base_url=f"http://127.0.0.1:{server.port}")
        session = server.signed_in["Cookie"].split("; ")[0].partition("=")[2]
        url = f"http://127.0.0.1:{server.port}"
        context.add_cookies([{"name": "sessionid", "value": session, "url": url}])
        yield context
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def open_page(context, complaints) -> Iterator:
    pages: list[Page] = []

    def visit(path: str) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: m.type == "error" and complaints.append(m.text))
        page.goto(path)
        pages.append(page)
        return page

    yield visit
    for page in pages:
        page.close(run_before_unload=False)


def new_dataset(server: Portal) -> str:
    return server.shell(MADE).splitlines()[-1]


def folder(root: Path, sizes: dict[str, int]) -> Path:
    for name, size in sizes.items():
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))  # noqa: S311
    return root / "src"


def download(server: Portal, dataset: str, path: str) -> bytes:
    return server.request("GET", f"/staging/{dataset}/files/{path}", **server.signed_in).body


def being_checked(page: Page) -> None:
    page.get_by_text("Everything has arrived.").wait_for(timeout=60_000)
    assert "all uploaded" in page.inner_text("#transfer-text")


def test_a_folder_arrives_and_is_sealed(server, open_page, complaints, tmp_path):
    dataset = new_dataset(server)
    source = folder(tmp_path, {f"d{n % 3}/{n} é%.txt": n for n in range(60)} | {"big": 20_000_000})
    page = open_page(f"/staging/{dataset}/")
    page.set_input_files("#pick-folder", str(source))
    being_checked(page)
    assert download(server, dataset, "src/big") == (source / "big").read_bytes()
    assert complaints == []


def test_a_refused_name_is_shown_and_the_rest_arrives(server, open_page, complaints, tmp_path):
    dataset = new_dataset(server)
    source = folder(tmp_path, {"aux.c": 3, "good": 3})
    page = open_page(f"/staging/{dataset}/")
    page.set_input_files("#pick-folder", str(source))
    page.get_by_text("all uploaded").wait_for(timeout=30_000)
    assert "reserved name" in page.inner_text("#refused")
    page.click("#seal button")
    page.locator("#uploader").wait_for(state="detached", timeout=30_000)
    assert complaints == []


def test_it_goes_on_after_a_reload_and_a_killed_server(server, open_page, tmp_path):
    dataset = new_dataset(server)
    source = folder(tmp_path, {"big": 60_000_000, "small": 10})
    page = open_page(f"/staging/{dataset}/")
    page.set_input_files("#pick-folder", str(source))
    until(lambda: progress(page) > 0.25, "a quarter has gone out")
    page.close(run_before_unload=False)
    page = open_page(f"/staging/{dataset}/")
    assert "unfinished" in page.inner_text("#unfinished")
    server.kill()
    page.set_input_files("#pick-folder", str(source))
    page.locator("#rows-list li").first.wait_for()  # the uploader has met the dead server
    server.start()
    being_checked(page)
    assert download(server, dataset, "src/big") == (source / "big").read_bytes()


def progress(page: Page) -> float:
    return page.evaluate("() => document.getElementById('transfer-progress').value")

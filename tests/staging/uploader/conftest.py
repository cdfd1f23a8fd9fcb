"""The uploader in a real Chromium, against a real server behind a network that can be cut."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Playwright

from tests.staging.live import serving, until
from tests.staging.test_tus_live import Portal
from tests.staging.uploader.wire import Wire

FLAGS = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP portal.test 127.0.0.1"]
MADE = """
from portal.teams.models import Team
from staging import services
made = services.create_dataset(team=Team.objects.get(), name="B", actor="owner@climate.example")
print(made.code)
"""
DIGESTS = """
import json
from staging.models import File
print(json.dumps(dict(File.objects.filter(dataset__code={code!r}).values_list("path", "digest"))))
"""
OFFSETS = """
import json
from staging.models import Upload
rows = Upload.objects.filter(file__dataset__code={code!r}, state="open", offset__gt=0)
print(json.dumps(dict(rows.values_list("file__path", "offset"))))
"""
VERIFY = """
from staging import services
from staging.models import Dataset
services.verify_dataset(dataset=Dataset.objects.get(code={code!r}))
"""


def chromium() -> str | None:
    names = ("chromium", "chromium-browser")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/staging/uploader/" not in item.nodeid:
            continue
        item.add_marker(pytest.mark.browser)
        if not chromium():
            reason = "No Chromium was found: install the package chromium, or name it in CHROMIUM."
            item.add_marker(pytest.mark.skip(reason=reason))


class Uploads(Portal):
    """A portal with datasets to upload to, and what it holds of them."""

    def new_dataset(self) -> str:
        return self.shell(MADE).splitlines()[-1]

    def digests(self, code: str) -> dict[str, str]:
        return json.loads(self.shell(DIGESTS.format(code=code)).splitlines()[-1])

    def offsets(self, code: str) -> dict[str, int]:
        """Bytes kept of each file that is on its way."""
        return json.loads(self.shell(OFFSETS.format(code=code)).splitlines()[-1])

    def verify(self, code: str) -> None:
        self.shell(VERIFY.format(code=code))


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Uploads]:
    server = Uploads(tmp_path_factory.mktemp("browser"))
    server.env["ALLOWED_HOSTS"] = "127.0.0.1,portal.test"
    server.manage("collectstatic", "--noinput", "--verbosity", "0")
    with serving(server):
        server.set_up()
        yield server


@pytest.fixture(scope="session")
def chrome(playwright: Playwright, orm_beside_playwright: None) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
    yield browser
    browser.close()


@pytest.fixture
def wire(server) -> Iterator[Wire]:
    wire = Wire(server.port)
    yield wire
    wire.close()


@pytest.fixture
def dataset(server) -> str:
    return server.new_dataset()


@dataclass
class Person:
    """A signed-in person with a browser. `complaints`: what console, CSP or scripts said;
    `sent`: (method, path) of every request with bytes of files."""

    context: BrowserContext
    complaints: list[str] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)

    def elsewhere(self, chrome: Browser, server: Uploads, url: str) -> None:
        """The same person at another address of the portal."""
        self.context.close()
        self.context = signed_in(chrome, server, url)

    def open(self, dataset: str, path: str = "") -> "Tab":
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._console)
        page.on("request", self._request)
        page.goto(path or f"/staging/{dataset}/")
        return Tab(page)

    def _console(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def _request(self, request: Any) -> None:
        if request.method == "PATCH" or request.url.endswith("/pack?listed"):
            self.sent.append((request.method, request.url.split("/", 3)[3]))


@dataclass
class Tab:
    """A dataset's page."""

    page: Page

    def choose(self, source: Path) -> None:
        self.page.set_input_files("#pick-folder", str(source))

    def drop(self, *sources: Path) -> None:
        """As a person does: the browser itself reads the folder."""
        box = self.page.locator("#drop").bounding_box()
        assert box is not None
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        data = {"items": [], "files": [str(path) for path in sources], "dragOperationsMask": 1}
        session = self.page.context.new_cdp_session(self.page)
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, **at, "data": data})

    @property
    def share(self) -> float:
        return self.page.evaluate("() => document.getElementById('transfer-progress').value")

    @property
    def total(self) -> str:
        return self.page.inner_text("#transfer-text")

    def reaches(self, share: float) -> None:
        until(lambda: self.share >= share, f"{share:.0%} confirmed, not {self.total}", 60)

    def begun(self, count: int) -> None:
        """So many files are in part at the portal."""
        bars = self.page.locator("progress.rows-bar:not([value='0'], [hidden])")
        until(lambda: bars.count() == count, f"{count} have begun", 60)

    def uploaded(self) -> None:
        self.page.get_by_text("all uploaded").wait_for()

    def sealed(self) -> None:
        self.page.get_by_text("Everything has arrived.").wait_for()
        assert "all uploaded" in self.total

    def row(self, name: str) -> Any:
        return self.page.locator("#rows-list li", has=self.page.get_by_text(name, exact=True))

    def violations(self) -> list[str]:
        found = Axe().run(self.page).response["violations"]
        return [f"{rule['id']}: {node['target']}" for rule in found for node in rule["nodes"]]

    def close(self) -> None:
        self.page.close(run_before_unload=False)


def signed_in(chrome: Browser, server: Uploads, url: str) -> BrowserContext:
    context = chrome.new_context(base_url=url)
    session = server.signed_in["Cookie"].split("; ")[0].partition("=")[2]
    context.add_cookies([{"name": "sessionid", "value": session, "url": url}])
    return context


@pytest.fixture
def person(server, chrome, wire) -> Iterator[Person]:
    person = Person(signed_in(chrome, server, f"http://127.0.0.1:{wire.port}"))
    yield person
    person.context.close()


def write_tree(root: Path, sizes: dict[str, int]) -> Path:
    """Files of these sizes with bytes of their own."""
    for name, size in sizes.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))  # noqa: S311
    return root


def sha256sums(root: Path) -> dict[str, str]:
    """What sha256sum says of every file below a folder, by the path it is uploaded under."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    argv = ["sha256sum", "-z", "--", *(str(path) for path in files)]
    lines = subprocess.run(argv, capture_output=True, check=True).stdout.decode().split("\0")
    found = (line.split("  ", 1) for line in lines if line)
    return {f"{root.name}/{Path(path).relative_to(root)}": digest for digest, path in found}

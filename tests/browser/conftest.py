"""Chromium as Debian ships it, and pages that must stay silent, local and accessible."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

from portal.teams.models import User

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    return (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found = chromium()
    for item in items:
        if "tests/browser/" not in item.nodeid:
            continue
        item.add_marker(pytest.mark.browser)
        if not found:
            reason = "No Chromium was found: install the package chromium, or name it in CHROMIUM."
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def _orm(orm_beside_playwright: None) -> None:
    """For the live server's thread and for the tests' own rows."""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict) -> dict:
    return {**browser_type_launch_args, "executable_path": chromium(), "args": FLAGS}


@dataclass
class Visitor:
    """A signed-in person at a browser. `complaints` is what console, CSP or network said."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.complaints.append(f"request to {request.url}")

    def go(self, path: str) -> Page:
        response = self.page.goto(self.base + path)
        assert response is not None
        assert response.status < 400, f"{path}: {response.status}"
        return self.page

    def violations(self) -> list[str]:
        """What axe finds wrong, as rule and element."""
        found = Axe().run(self.page).response["violations"]
        return [f"{rule['id']}: {node['target']}" for rule in found for node in rule["nodes"]]

    def sideways(self) -> int:
        """CSS pixels by which the page is wider than its window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))


def sign_in(context: BrowserContext, user: User, base: str) -> None:
    client = Client()
    client.force_login(user)
    value = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": base}])


@pytest.fixture
def visit(live_server, context: BrowserContext) -> Iterator:
    """visit(user) -> Visitor; at the end no page may have complained."""
    visitors = []

    def start(user: User | None = None) -> Visitor:
        if user is not None:
            sign_in(context, user, live_server.url)
        visitors.append(Visitor(context.new_page(), live_server.url))
        return visitors[-1]

    yield start
    assert [visitor.complaints for visitor in visitors] == [[] for _ in visitors]

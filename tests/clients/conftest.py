"""Clients that others wrote, against a live portal: what they send is not ours to change."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.bench.uploads import npm
from tests.staging.live import Answer, serving
from tests.staging.test_tus_live import Portal

HERE = Path(__file__).parent
# Composed and decomposed letters, quotes, percent signs, an emoji, spaces at odd places.
HOSTILE = 'Zürich – Zu\u0308rich/it\'s "100 %" 測試 🛰️ -- .bin'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.xdist_group("clients"))


class ClientPortal(Portal):
    """A portal with addresses and headers as an outside client is given them."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"{self.url}/tus/"

    @property
    def client_headers(self) -> dict[str, str]:
        return {"Cookie": self.signed_in["Cookie"], "X-CSRFToken": self.signed_in["X_CSRFToken"]}

    def extensions(self) -> set[str]:
        return set(self.request("OPTIONS", "/tus/").headers["tus-extension"].split(","))

    def must_offer(self, extension: str) -> None:
        assert extension in self.extensions()

    def has(self, path: str, content: bytes) -> bool:
        """Whether the dataset holds these bytes under this very name."""
        answer = self._file(path)
        return answer.status == 200 and hashlib.sha256(answer.body).digest() == digest(content)

    def _file(self, path: str) -> Answer:
        address = f"/staging/{self.dataset}/files/{quote(path)}"
        return self.request("GET", address, b"", **self.signed_in)


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """Where the npm packages and the scripts of tests/clients/node lie."""
    try:
        return npm.ensure(HERE / "node")
    except npm.CannotInstall as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def portal(tmp_path_factory) -> Iterator[ClientPortal]:
    server = ClientPortal(tmp_path_factory.mktemp("clients"))
    with serving(server):
        server.set_up()
        yield server


@pytest.fixture
def new_file(tmp_path):
    """new_file(size) is (path, content) of a file with bytes of its own."""

    def make(size: int, name: str = "source.bin") -> tuple[Path, bytes]:
        content = random.Random(f"{tmp_path}{name}{size}").randbytes(size)  # noqa: S311
        path = tmp_path / name
        path.write_bytes(content)
        return path, content

    return make

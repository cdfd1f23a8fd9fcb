"""tus-js-client under Node.js: the client that most others are built on."""

import json
import subprocess
from pathlib import Path
from threading import Thread

import pytest

from tests.clients.conftest import HOSTILE
from tests.staging.live import until

MIB = 2**20
LIMIT_S = 120


@pytest.fixture
def run(node_folder, portal):
    """run(file, path, ...) is what the client said: its requests, then its end."""

    def start(file: Path, path: str, **more: object) -> list[dict]:
        order = {
            "endpoint": portal.endpoint,
            "headers": portal.client_headers,
            "file": str(file),
            "metadata": {"dataset": portal.dataset, "relativePath": path, "filename": file.name},
            **more,
        }
        done = subprocess.run(
            ["node", "tus-client.mjs", json.dumps(order)],
            cwd=node_folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert not done.stderr, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return start


def methods(said: list[dict]) -> list[str]:
    return [line["method"] for line in said if "method" in line]


class TestWhole:
    def test_one_patch(self, portal, run, new_file):
        file, content = new_file(3 * MIB + 17)
        said = run(file, "whole/one.bin")
        assert methods(said) == ["POST", "PATCH"]
        assert said[-1]["done"].startswith(portal.url)
        assert portal.has("whole/one.bin", content)

    def test_in_chunks(self, portal, run, new_file):
        file, content = new_file(3 * MIB + 17)
        said = run(file, "whole/chunks.bin", options={"chunkSize": MIB})
        assert methods(said) == ["POST", "PATCH", "PATCH", "PATCH", "PATCH"]
        assert portal.has("whole/chunks.bin", content)

    def test_a_hostile_name_stays_as_it_is(self, portal, run, new_file):
        file, content = new_file(1000)
        assert "done" in run(file, HOSTILE)[-1]
        assert portal.has(HOSTILE, content)

    def test_an_empty_file(self, portal, run, new_file):
        file, content = new_file(0)
        assert "done" in run(file, "empty.bin")[-1]
        assert portal.has("empty.bin", content)

    def test_patch_sent_as_post(self, portal, run, new_file):
        file, content = new_file(MIB)
        said = run(file, "override.bin", options={"overridePatchMethod": True})
        assert "done" in said[-1]
        assert portal.has("override.bin", content)


class TestInterrupted:
    def test_a_killed_client_goes_on_where_it_was(self, portal, run, new_file, tmp_path):
        file, content = new_file(24 * MIB)
        store = str(tmp_path / "addresses.json")
        options = {"chunkSize": 4 * MIB}
        said = run(file, "cut.bin", store=store, dieAfter=9 * MIB, options=options)
        assert "done" not in said[-1]
        said = run(file, "cut.bin", store=store, options=options)
        assert methods(said)[:2] == ["HEAD", "PATCH"]
        assert said[1]["offset"] >= 8 * MIB
        assert "done" in said[-1]
        assert portal.has("cut.bin", content)

    def test_a_portal_killed_in_the_middle(self, portal, run, new_file):
        """kill -9 and a new start: the client asks for the offset and goes on from there."""
        file, content = new_file(48 * MIB)
        said: list[dict] = []
        options = {"chunkSize": MIB, "retryDelays": [200] * 100}
        work = lambda: said.extend(run(file, "killed.bin", options=options))  # noqa: E731
        client = Thread(target=work)
        before = _keys(portal.folder)
        client.start()
        until(lambda: _stored(portal.folder, before) >= 4 * MIB, "some of it is in the store")
        portal.kill()
        portal.start()
        client.join(LIMIT_S)
        assert not client.is_alive()
        assert methods(said).count("POST") == 1
        assert methods(said).count("HEAD") >= 1
        assert "done" in said[-1]
        assert portal.has("killed.bin", content)

    def test_a_client_that_gives_up_leaves_nothing(self, portal, run, new_file):
        file, _ = new_file(8 * MIB)
        options = {"chunkSize": MIB}
        said = run(file, "ended.bin", terminateAfter=2 * MIB, options=options)
        path = said[-1]["terminated"].removeprefix(portal.url)
        assert portal.tus("HEAD", path).status in (404, 410)


def _keys(folder: Path) -> set[Path]:
    return set((folder / "store").glob("*/*"))


def _stored(folder: Path, before: set[Path]) -> int:
    """Bytes in the store that were not there before."""
    return sum(path.stat().st_size for path in _keys(folder) - before)


class TestExtensions:
    def test_deferred_length(self, portal, run, new_file):
        portal.must_offer("creation-defer-length")
        file, content = new_file(5 * MIB + 3)
        options = {"uploadLengthDeferred": True, "chunkSize": MIB}
        said = run(file, "deferred.bin", options=options)
        assert "done" in said[-1]
        assert portal.has("deferred.bin", content)

    def test_bytes_with_the_creation(self, portal, run, new_file):
        portal.must_offer("creation-with-upload")
        file, content = new_file(2 * MIB)
        said = run(file, "with-upload.bin", options={"uploadDataDuringCreation": True})
        assert methods(said) == ["POST"]
        assert "done" in said[-1]
        assert portal.has("with-upload.bin", content)

    def test_parts_that_are_joined(self, portal, run, new_file):
        portal.must_offer("concatenation")
        file, content = new_file(6 * MIB + 1)
        part = {"dataset": portal.dataset, "filename": "part"}
        options = {"parallelUploads": 3, "metadataForPartialUploads": part}
        said = run(file, "joined.bin", options=options)
        assert methods(said).count("POST") == 4
        assert "done" in said[-1]
        until(lambda: portal.has("joined.bin", content), "the parts are one file")

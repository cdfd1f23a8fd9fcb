"""What tests of sync share: real stores, connections to them, a pump that is run by hand."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from staging import services
from staging.models import Connection, Dataset, Source
from staging.sync import connections, pump, sources
from staging.sync.states import SourceKind, SourceState
from staging.sync.web import POOL
from tests.staging.sync.stores import KEY, SECRET, Rclone, Store, Weed

LIMIT_S = 60
AT_WORK = (SourceState.LISTING, SourceState.COPYING)


def _binary(name: str) -> None:
    if not Path(sys.executable).with_name(name).exists():
        pytest.skip(f"{name} is not installed here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What talks to a store of others is marked so: .ci/run gives it a step of its own. So do the
    tests with a browser, which stay there."""
    for item in items:
        if "tests/browser/" not in item.nodeid and {"weed", "rclone"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.stores)


@pytest.fixture(scope="package")
def weed(tmp_path_factory) -> Iterator[Store]:
    _binary("weed")
    store = Weed(tmp_path_factory.mktemp("weed")).start()
    yield store
    store.stop()


@pytest.fixture(scope="package")  # an idle rclone still takes a third of a CPU
def rclone(tmp_path_factory) -> Iterator[Store]:
    _binary("rclone")
    store = Rclone(tmp_path_factory.mktemp("rclone")).start()
    yield store
    store.stop()


@pytest.fixture(autouse=True)
def loopback(settings, tmp_path) -> Iterator[None]:
    """Stores of tests are on this machine; the store of the portal is a folder of the test."""
    settings.SYNC_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.STORE_ROOT = tmp_path / "store"
    settings.DISK_FLOOR_BYTES = 0
    yield
    POOL.clear()
    shutil.rmtree(settings.STORE_ROOT, ignore_errors=True)


_buckets = iter(range(10**6))


@pytest.fixture
def bucket(weed) -> str:
    name = f"bucket-{next(_buckets)}"
    weed.client.create_bucket(Bucket=name)
    return name


def connect(team, store: Store | None, bucket: str, **options) -> Connection:
    values = {"name": f"To {bucket}", "key_id": KEY, "secret": SECRET} | options
    return connections.create_connection(
        team=team,
        endpoint=values.pop("endpoint", None) or store.endpoint,
        bucket=bucket,
        actor="owner@climate.example",
        **values,
    )


@pytest.fixture
def connection(team, weed, bucket) -> Connection:
    return connect(team, weed, bucket)


def begin(connection: Connection, prefix: str = "", name: str = "Readings", **options) -> Source:
    """A new dataset that a bucket fills."""
    dataset = services.create_dataset(
        team=connection.team, name=name, actor="owner@climate.example"
    )
    choice = sources.Choice(SourceKind.S3, connection, prefix=prefix, **options)
    return sources.create_source(dataset=dataset, choice=choice, actor="owner@climate.example")


def run_until(condition: Callable[[], object], what: str, turn_s: float = 20) -> None:
    """Turns of a pump until a condition holds."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        pump.run(time.monotonic() + turn_s)
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {LIMIT_S} s: {what}")


def finish(source: Source) -> Source:
    """Turns of a pump until a source is no longer listed or copied; then the check."""

    def ended() -> bool:
        source.refresh_from_db()
        return source.state not in AT_WORK

    run_until(ended, "the sync ends")
    if source.state == SourceState.DONE:
        services.verify_dataset(dataset=source.dataset)
    source.dataset.refresh_from_db()
    return source


def contents(dataset: Dataset) -> dict[str, bytes]:
    """What the store has of each file."""
    return {
        file.path: b"".join(services.open_file(file=file))
        for file in dataset.files.order_by("path")
    }

"""A worker that is to end: its pumps stop between two steps, and the next worker goes on."""

import time
from collections.abc import Iterator

import pytest

from portal.base import turns
from staging import services, tasks
from staging.models import Blob, ServerFolder
from staging.states import DatasetReason, DatasetState
from staging.sync import pump, sources
from staging.sync.states import SourceKind, SourceState

pytestmark = pytest.mark.django_db
ACTOR = "owner@climate.example"


@pytest.fixture
def ending() -> Iterator[None]:
    turns.ask_to_end()
    yield
    turns.go_on()


def an_hour() -> float:
    return time.monotonic() + 3600


def test_a_check_stops_after_a_file_and_goes_on(dataset, owner, put, ending):
    for name in "abc":
        put(dataset, name, name.encode() * 10)
    services.seal_dataset(dataset=dataset, actor=owner.email)
    services.verify_dataset(dataset=dataset, until=an_hour())
    assert dataset.state == DatasetState.VERIFYING
    assert Blob.objects.exclude(verified_at=None).count() == 1
    turns.go_on()
    services.verify_dataset(dataset=dataset, until=an_hour())
    assert dataset.state == DatasetState.STAGED


def test_sync_begins_nothing_more_and_goes_on(team, tmp_path, settings, ending):
    settings.STORE_ROOT = tmp_path / "store"
    root = tmp_path / "lab"
    root.mkdir()
    (root / "a").write_bytes(b"a")
    folder = ServerFolder.objects.create(name="Lab", path=str(root))
    folder.teams.add(team)
    dataset = services.create_dataset(team=team, name="Lab", actor=ACTOR)
    choice = sources.Choice(SourceKind.FOLDER, folder=folder, prefix="")
    source = sources.create_source(dataset=dataset, choice=choice, actor=ACTOR)
    assert pump.run(an_hour()) == 0
    source.refresh_from_db()
    assert (source.state, source.sentence) == (SourceState.LISTING, "")
    turns.go_on()
    until = time.monotonic() + 60
    while source.state != SourceState.DONE:
        assert time.monotonic() < until, source.state
        pump.run(time.monotonic() + 5)
        source.refresh_from_db()


def test_a_deletion_stops_and_goes_on(staged, owner, ending):
    dataset = staged({"a": b"a"})
    services.delete_dataset(
        dataset=dataset, actor=owner.email, reason=DatasetReason.DELETED_BY_PERSON
    )
    tasks.purge(dataset.pk)
    turns.go_on()
    tasks.purge(dataset.pk)
    dataset.refresh_from_db()
    assert dataset.state == DatasetState.PURGED

"""What the tests of staging share: datasets, and bytes in them."""

import io
from datetime import datetime, timedelta

import pytest

from portal.base.clock import db_now
from staging import progress, services
from staging.models import Dataset, File
from staging.states import DatasetState


@pytest.fixture
def dataset(team, owner) -> Dataset:
    """A declared input dataset of the team."""
    return services.create_dataset(team=team, name="Readings", actor=owner.email)


@pytest.fixture
def put(owner):
    """put(dataset, path, content) stores one file by the server's own hand."""

    def store(dataset: Dataset, path: str, content: bytes, **options) -> File:
        return services.store_bytes(
            dataset=dataset,
            path=path,
            content=io.BytesIO(content),
            size=len(content),
            actor=options.pop("actor", owner.email),
            **options,
        )

    return store


@pytest.fixture
def staged(team, owner, put):
    """staged({path: content}, **options) is a dataset of these files that has been verified."""

    def stage(files: dict[str, bytes], **options) -> Dataset:
        dataset = services.create_dataset(
            team=options.pop("team", team), name="Readings", actor=owner.email, **options
        )
        for path, content in files.items():
            put(dataset, path, content)
        services.seal_dataset(dataset=dataset, actor=owner.email)
        services.verify_dataset(dataset=dataset)
        assert dataset.state == DatasetState.STAGED
        return dataset

    return stage


class Clock:
    """The time that looks at transfers are told; it stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now: datetime = db_now()

    def tick(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def clock(db, monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "db_now", lambda: clock.now)
    return clock

"""The fixed cast of every test: two teams, their people, an operator."""

import os
import signal
from collections.abc import Generator, Iterator

import pytest
from django.db import connection
from django.test import Client

from portal.teams.models import Membership, Team, User

PASSWORD = "correct horse battery"
HANG_SECONDS = 300


def _hangs(*args: object) -> None:
    pytest.fail(f"This test hung for {HANG_SECONDS} s.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A browser that never answers ends its test, and not the whole run."""
    if not item.get_closest_marker("browser"):
        return (yield)
    before = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(HANG_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def orm_beside_playwright() -> Iterator[None]:
    """Playwright keeps an event loop in this thread, which Django's ORM takes for async code.

    Its loop lives as long as the session does, and other tests of this process want rows, too.
    """
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
    else:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture
def two_writers() -> None:
    """For tests in which two transactions write at once; see tests/races.py."""
    if connection.vendor == "sqlite":
        pytest.skip("needs a database that several threads can write to")


@pytest.fixture
def team(db) -> Team:
    return Team.objects.create(name="Climate")


@pytest.fixture
def other_team(db) -> Team:
    return Team.objects.create(name="Robotics")


def _member(team: Team, email: str, role: str) -> User:
    user = User.objects.create_user(email, PASSWORD)
    Membership.objects.create(team=team, user=user, role=role)
    return user


@pytest.fixture
def owner(team) -> User:
    """An admin of the team."""
    return _member(team, "owner@climate.example", Membership.Role.ADMIN)


@pytest.fixture
def mate(team) -> User:
    """A plain member of the team."""
    return _member(team, "mate@climate.example", Membership.Role.MEMBER)


@pytest.fixture
def stranger(other_team) -> User:
    """An admin of another team."""
    return _member(other_team, "stranger@robotics.example", Membership.Role.ADMIN)


@pytest.fixture
def operator(db) -> User:
    return User.objects.create_superuser("operator@portal.example", PASSWORD)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def owner_client(owner) -> Client:
    return signed_in(owner)


@pytest.fixture
def mate_client(mate) -> Client:
    return signed_in(mate)


@pytest.fixture
def stranger_client(stranger) -> Client:
    return signed_in(stranger)


@pytest.fixture
def operator_client(operator) -> Client:
    return signed_in(operator)


@pytest.fixture(autouse=True)
def store_in_tmp(settings, tmp_path):
    """Each test has a store and log folder of its own."""
    settings.DATA_DIR = tmp_path
    settings.STORE_ROOT = tmp_path / "store"
    # The manifest of hashed names exists only after collectstatic.
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    """Slow hashing is for attackers; every test makes accounts."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

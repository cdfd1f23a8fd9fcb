"""Quota and disk: what cannot fit is refused at creation, uploads in flight counted."""

import threading

import pytest
from django.db import connection

from portal.base.clock import db_now
from portal.base.errors import Conflict, NoRoom
from staging import services, store
from staging.models import Dataset, TeamUsage, Upload

pytestmark = [pytest.mark.django_db, pytest.mark.db]


def declare(dataset, owner, size: int, path: str = "a"):
    entry = services.Entry(path=path, size=size)
    return services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)


@pytest.fixture
def quota(team):
    def limit(size: int) -> None:
        team.quota_bytes = size
        team.save()

    return limit


def test_two_that_fit_alone_do_not_fit_together(dataset, owner, quota):
    quota(100)
    declare(dataset, owner, 60)
    with pytest.raises(NoRoom, match="40 bytes more") as caught:
        declare(dataset, owner, 60, "b")
    assert caught.value.data["free"] == 40
    assert Upload.objects.count() == 1
    declare(dataset, owner, 40, "b")


def test_stored_bytes_count_and_are_given_back(staged, owner, dataset, quota):
    full = staged({"a": b"x" * 80})
    quota(100)
    with pytest.raises(NoRoom):
        declare(dataset, owner, 30)
    services.delete_dataset(dataset=full, actor=owner.email, reason="deleted_by_person")
    services.purge_dataset(dataset=full)
    declare(dataset, owner, 100)


def test_bytes_that_are_here_already_need_no_room(staged, owner, dataset, quota):
    staged({"a": b"x" * 80})
    digest = dataset.team.datasets.get(state="staged").files.get().digest
    quota(80)
    entry = services.Entry(path="again", size=80, digest=digest)
    (plan,) = services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
    assert plan.state == "have"


def test_a_refused_batch_leaves_nothing(dataset, owner, quota):
    quota(100)
    entries = [services.Entry(path=str(n), size=20) for n in range(6)]
    with pytest.raises(NoRoom):
        services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
    assert not dataset.files.exists()
    assert Dataset.objects.get().state == "declared"


def test_the_disk_counts_what_open_uploads_wait_for(dataset, owner, monkeypatch):
    monkeypatch.setattr(store, "free_bytes", lambda: 100)
    declare(dataset, owner, 60)
    with pytest.raises(NoRoom, match="room for 40 bytes"):
        declare(dataset, owner, 60, "b")


def test_the_floor_is_kept(dataset, owner, settings):
    settings.DISK_FLOOR_BYTES = 2**62
    with pytest.raises(NoRoom):
        declare(dataset, owner, 1)


def test_a_file_larger_than_any_disk_is_refused(dataset, owner, settings):
    settings.LARGEST_UPLOAD_BYTES = 2**62
    with pytest.raises(NoRoom):
        declare(dataset, owner, 2**61)


@pytest.mark.django_db(transaction=True)
def test_promises_made_at_once_never_exceed_the_quota(team, owner, quota):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite test_tus_live does this, with a database file")
    quota(100)
    made = [services.create_dataset(team=team, name=f"D{n}", actor=owner.email) for n in range(6)]
    won: list[int] = []

    def promise(number: int) -> None:
        try:
            declare(made[number], owner, 30)
            won.append(number)
        except NoRoom:
            pass
        finally:
            connection.close()

    threads = [threading.Thread(target=promise, args=[n]) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 3
    assert TeamUsage.objects.get(team=team).promised_bytes == 90


@pytest.mark.django_db(transaction=True)
def test_a_hold_and_a_deletion_at_once(team, owner, staged, two_writers):
    """Exactly one of them wins, and held data is never on its way out."""
    for round_ in range(10):
        dataset = staged({f"f{round_}": b"x"})
        results: list[str] = []
        start = threading.Barrier(2)

        def run(name: str, act, start=start, results=results) -> None:
            start.wait(60)
            try:
                act()
                results.append(name)
            except Conflict:
                pass
            finally:
                connection.close()

        one, other = Dataset.objects.get(pk=dataset.pk), Dataset.objects.get(pk=dataset.pk)
        acts = {
            "hold": lambda row=one: services.hold(
                dataset=row, holder="job", label="job", at=db_now()
            ),
            "delete": lambda row=other: services.delete_dataset(
                dataset=row, actor="a", reason="deleted_by_person"
            ),
        }
        threads = [threading.Thread(target=run, args=item) for item in acts.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        dataset.refresh_from_db()
        assert len(results) == 1
        assert (dataset.state, dataset.holds) == (
            ("staged", 1) if results == ["hold"] else ("expiring", 0)
        )

"""Deletion, checks and declarations at once: no byte that somebody needs goes, none stays."""

from collections.abc import Callable

import pytest
from django.db import transaction

from portal.base.clock import db_now
from staging import blobs, retention, services
from staging.datasets import begin_verifying
from staging.models import Blob, Dataset, File, TeamUsage, Upload
from staging.receive import receive
from tests.races import together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]


def meanwhile(first: Callable[[], object], second: Callable[[], object]) -> None:
    """`second` begins while `first` has not committed."""
    assert together(first, second) == []


def doomed(dataset: Dataset) -> Dataset:
    services.delete_dataset(dataset=dataset, actor="owner", reason="deleted_by_person")
    return Dataset.objects.get(pk=dataset.pk)


def test_two_deletions_at_once_leave_the_bytes_of_another_dataset(staged, two_writers):
    staged({"kept": b"shared"})
    going = doomed(staged({"a": b"shared"}))
    other = Dataset.objects.get(pk=going.pk)
    meanwhile(
        lambda: retention._free_some(going),
        lambda: retention.purge_dataset(dataset=other),
    )
    blob = Blob.objects.get(dead_at=None)
    assert blob.links == 1
    assert b"".join(services.open_file(file=File.objects.get(path="kept"))) == b"shared"


def test_unlinking_the_same_rows_again_gives_no_link_back(staged):
    staged({"kept": b"shared"})
    twice = staged({"a": b"shared"})
    one, other = twice.files.get(), twice.files.get()
    with transaction.atomic():
        blobs.unlink([one], at=db_now(), dataset=None)
        blobs.unlink([other], at=db_now(), dataset=None)
    assert Blob.objects.get(dead_at=None).links == 1


def test_bytes_condemned_twice_are_counted_once(staged, team):
    staged({"a": b"12345"})
    one, other = Blob.objects.get(), Blob.objects.get()
    with transaction.atomic():
        assert blobs.condemn(one, at=db_now())
        assert blobs.condemn(other, at=db_now()) == []
    assert TeamUsage.objects.get(team=team).stored_bytes == 0


def test_a_file_whose_last_bytes_come_as_it_is_taken_away_leaves_none(dataset, owner, two_writers):
    entry = services.Entry(path="a", size=3)
    services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
    upload = Upload.objects.get()
    meanwhile(
        lambda: receive(upload=upload, offset=0, pieces=[b"abc"]),
        lambda: services.remove_file(dataset=dataset, path="a", actor=owner.email),
    )
    assert not Blob.objects.filter(dead_at=None).exists()
    usage = TeamUsage.objects.get(team=dataset.team)
    assert (usage.promised_bytes, usage.stored_bytes) == (0, 0)


def test_a_file_that_is_listed_as_the_check_begins_opens_the_dataset(dataset, owner, two_writers):
    entries = [services.Entry(path="a", size=0)]
    services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
    Dataset.objects.filter(pk=dataset.pk).update(sealed_at=db_now())
    sealed = Dataset.objects.get(pk=dataset.pk)
    again = Dataset.objects.get(pk=dataset.pk)

    def check() -> None:
        with transaction.atomic():
            begin_verifying(dataset=sealed, at=db_now(), actor="system")

    meanwhile(
        lambda: services.declare_files(
            dataset=again, entries=[services.Entry(path="b", size=1)], actor=owner.email
        ),
        check,
    )
    assert Dataset.objects.get(pk=dataset.pk).state == "transferring"

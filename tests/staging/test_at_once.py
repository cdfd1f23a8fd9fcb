"""Deletion, checks and declarations at once: no byte that somebody needs goes, none stays."""

from collections.abc import Callable

import pytest
from django.db import transaction

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from staging import batches, blobs, concat, pack, retention, services
from staging.datasets import begin_verifying
from staging.errors import Gone
from staging.models import Blob, Dataset, File, TeamUsage, Upload
from staging.receive import receive
from staging.takeover import writing
from staging.writer import Writer
from tests.races import begin, join, together, wait_blocked
from tests.staging.test_pack import frame

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


def test_a_pack_and_the_purge_of_the_same_bytes_do_not_wait_for_each_other(
    staged, dataset, owner, two_writers, monkeypatch
):
    """One had the team's room and came for the blob, the other the reverse."""
    going = doomed(staged({"old": b"same"}))
    services.declare_files(dataset=dataset, entries=[services.Entry("a", 4)], actor=owner.email)
    threads, caught, adopt = [], [], batches._adopt

    def meanwhile_purged(team_id, arrivals):
        threads.append(begin(lambda: retention.purge_dataset(dataset=going), caught))
        wait_blocked(threads)
        return adopt(team_id, arrivals)

    monkeypatch.setattr(batches, "_adopt", meanwhile_purged)
    answers, error = pack.receive_pack(
        dataset=dataset, pieces=[frame("a", b"same")], actor=owner.email
    )
    join(threads[0])
    assert (error, caught) == (None, [])
    assert [answer["state"] for answer in answers] == ["staged-upload"]
    assert b"".join(services.open_file(file=dataset.files.get())) == b"same"
    assert TeamUsage.objects.get().stored_bytes == 4


def test_room_is_not_promised_to_an_upload_that_ended(dataset, owner):
    """A DELETE just before gave back what the upload had, and nobody would the rest."""
    entry = services.Entry("a", 0, deferred=True)
    (plan,) = services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
    with writing(plan.upload) as fd:
        writer = Writer(plan.upload, fd)
        services.terminate_upload(upload=Upload.objects.get(), actor=owner.email)
        with pytest.raises(Gone):
            writer.announce(1000)
        writer.close()
    assert TeamUsage.objects.get().promised_bytes == 0


class TestParts:
    @pytest.fixture
    def parts(self, dataset, owner) -> list[Upload]:
        """Two complete parts, as a request read them some time ago."""
        found = []
        for _ in range(2):
            part, _ = concat.create_part(
                team_id=dataset.team_id, length=3, deferred=False, holder=owner.email, metadata=""
            )
            receive(upload=part, offset=0, pieces=[b"abc"])
            found.append(part)
        return found

    def final(self, dataset, owner, parts, path):
        return concat.create_final(
            dataset=dataset,
            entry=services.Entry(path, 0),
            parts=parts,
            actor=owner.email,
            metadata="",
        )

    def test_are_taken_by_one_final_alone(self, dataset, owner, parts, monkeypatch):
        monkeypatch.setattr(concat, "assemble", lambda **kw: None)
        again = list(Upload.objects.order_by("pk"))
        self.final(dataset, owner, parts, "a")
        with pytest.raises(DomainError, match="part of no other file"):
            self.final(dataset, owner, again, "b")
        assert list(dataset.files.values_list("path", flat=True)) == ["a"]

    def test_are_not_ended_once_taken(self, dataset, owner, parts, monkeypatch):
        monkeypatch.setattr(concat, "assemble", lambda **kw: None)
        stale = Upload.objects.order_by("pk").first()
        self.final(dataset, owner, parts, "a")
        with pytest.raises(Conflict, match="being made"):
            services.terminate_upload(upload=stale, actor=owner.email)
        assert Upload.objects.get(pk=stale.pk).state == "complete"

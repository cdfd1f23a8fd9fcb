"""Concatenation in the background: repeated, interrupted, given up, swept."""

import time

import pytest

from portal.base.clock import db_now
from portal.base.errors import Conflict
from staging import concat, services, tasks
from staging.errors import DigestMismatch
from staging.history import history
from staging.models import DeadKey, File, TeamUsage, Upload
from staging.retention import forget_tombstones

pytestmark = [pytest.mark.django_db, pytest.mark.db]
CONTENTS = (b"a" * 3_000_000, b"", b"b" * 1_500_001)
WHOLE = b"".join(CONTENTS)


@pytest.fixture
def parts(dataset, owner) -> list[Upload]:
    made = []
    for content in CONTENTS:
        part, _ = concat.create_part(
            team_id=dataset.team_id,
            length=len(content),
            deferred=False,
            holder=owner.email,
            metadata="",
        )
        if content:
            services.receive(upload=part, offset=0, pieces=[content])
        made.append(part)
    return made


@pytest.fixture
def final(dataset, owner, parts, monkeypatch) -> Upload:
    """An upload whose parts have not been copied yet."""
    monkeypatch.setattr(concat, "AT_ONCE", 0)
    upload, _ = concat.create_final(
        dataset=dataset,
        entry=services.Entry("whole", 0),
        parts=parts,
        actor=owner.email,
        metadata="",
    )
    return upload


def held() -> bytes:
    return b"".join(services.open_file(file=File.objects.get()))


def test_it_goes_on_where_it_stopped_and_may_run_twice(final):
    rounds = 0
    while final.state == "open":
        concat.assemble(final=final, until=0)  # one piece, then the time is over
        rounds += 1
    assert rounds > 3
    assert held() == WHOLE
    tasks.assemble()
    tasks.assemble(final.pk)
    assert held() == WHOLE
    usage = TeamUsage.objects.get()
    assert (usage.promised_bytes, usage.stored_bytes) == (0, len(WHOLE))
    assert set(Upload.objects.filter(concat="taken").values_list("state", flat=True)) == {
        "terminated"
    }
    assert DeadKey.objects.count() == 3


def test_the_pump_finds_what_waits(final):
    tasks.assemble()
    assert held() == WHOLE


def test_parts_are_ended_though_the_portal_was_killed_before(final, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(concat, "_end_parts", lambda final: None)
        tasks.assemble()
    assert held() == WHOLE
    assert Upload.objects.filter(concat="taken", state="complete").exists()
    tasks.assemble()
    assert not Upload.objects.filter(concat="taken", state="complete").exists()
    assert TeamUsage.objects.get().promised_bytes == 0


def test_room_counts_twice_until_the_file_is_whole(final):
    assert TeamUsage.objects.get().promised_bytes == 2 * len(WHOLE)


def test_a_taken_part_cannot_be_ended_and_does_not_expire(final, parts):
    part = Upload.objects.get(pk=parts[0].pk)
    with pytest.raises(Conflict):
        services.terminate_upload(upload=part, actor="a")
    Upload.objects.filter(pk=part.pk).update(expires_at=db_now())
    assert services.expire_uploads(at=db_now()) == 0
    assert forget_tombstones(at=db_now()) == 0
    concat.assemble(final=final, until=time.monotonic() + 60)
    assert held() == WHOLE


def test_ending_the_file_ends_its_parts(final):
    services.terminate_upload(upload=final, actor="a")
    assert set(Upload.objects.values_list("state", flat=True)) == {"terminated"}
    assert TeamUsage.objects.get().promised_bytes == 0


def test_parts_that_nobody_uses_expire(parts):
    Upload.objects.update(expires_at=db_now())
    assert services.expire_uploads(at=db_now()) == 3
    assert TeamUsage.objects.get().promised_bytes == 0
    assert DeadKey.objects.count() == 3


def test_deleting_the_dataset_ends_it(final, dataset):
    services.delete_dataset(dataset=dataset, actor="a", reason="deleted_by_person")
    services.purge_dataset(dataset=dataset)
    assert dataset.state == "purged"
    assert TeamUsage.objects.get().promised_bytes == 0
    concat.assemble(final=Upload.objects.get(pk=final.pk), until=time.monotonic() + 9)


class TestOtherBytesThanThoseDeclared:
    """The file was declared by its digest; its parts have the right length and other bytes."""

    @pytest.fixture
    def declared(self, dataset, owner) -> services.Entry:
        entry = services.Entry("whole", len(WHOLE), digest="0" * 64)
        services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
        return entry

    def join(self, dataset, owner, parts, digest: str = "") -> Upload:
        entry = services.Entry("whole", 0, digest=digest)
        made, _ = concat.create_final(
            dataset=dataset, entry=entry, parts=parts, actor=owner.email, metadata=""
        )
        return made

    def test_whoever_asks_is_told_and_it_ends(self, declared, dataset, owner, parts):
        with pytest.raises(DigestMismatch):
            self.join(dataset, owner, parts)
        self.check_ended(dataset, owner)

    def test_the_pump_copies_them_once(self, declared, dataset, owner, parts, monkeypatch):
        monkeypatch.setattr(concat, "AT_ONCE", 0)
        self.join(dataset, owner, parts)
        tasks.assemble()
        assert concat.waiting(None) == []
        self.check_ended(dataset, owner)

    def check_ended(self, dataset, owner) -> None:
        assert set(Upload.objects.values_list("state", flat=True)) == {"terminated"}
        assert TeamUsage.objects.get().promised_bytes == 0
        assert File.objects.get().state == "expected"
        assert "declared" in history(dataset, 1)[0].what
        entry = services.Entry("whole", len(WHOLE))
        (plan,) = services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
        services.receive(upload=plan.upload, offset=0, pieces=[WHOLE])
        assert held() == WHOLE

"""Bytes that no row knows: those a request leaves, and those a killed process left."""

import os
import time

import pytest

from portal.base.clock import db_now
from staging import batches, body, orphans, pack, services, store, tasks
from staging.models import Blob, DeadKey, File, Source, SourceFile, Upload
from tests.staging.test_pack import frame

pytestmark = [pytest.mark.django_db, pytest.mark.db]
WEEK = 7 * 86400


def keys() -> set[str]:
    root = store.ensure_root()
    return {f"{p.parent.name}/{p.name}" for p in root.rglob("*") if p.is_file()}


def lay(age: float = WEEK) -> str:
    """Bytes under a new key, last written `age` seconds ago."""
    key = store.new_key()
    store.write_new(key, b"x")
    then = time.time() - age
    os.utime(store.path_of(key), (then, then))
    return key


def age_all() -> None:
    for key in keys():
        os.utime(store.path_of(key), (time.time() - WEEK,) * 2)


def breaking(error: Exception):
    yield frame("a", b"one") + frame("b", b"two")
    raise error


def test_bad_framing_in_a_pack_is_a_fault_of_the_pack(dataset, owner):
    answers, error = pack.receive_pack(
        dataset=dataset, pieces=breaking(body.BadFraming("no number")), actor=owner.email
    )
    assert [a["state"] for a in answers] == ["staged-upload"] * 2
    assert (type(error), str(error)) == (pack.BadPack, "no number")
    assert keys() == set(Blob.objects.values_list("key", flat=True))


def test_what_else_ends_a_pack_leaves_no_bytes(dataset, owner):
    with pytest.raises(RuntimeError):
        pack.receive_pack(dataset=dataset, pieces=breaking(RuntimeError()), actor=owner.email)
    assert (keys(), File.objects.count()) == (set(), 0)


def test_what_fails_after_the_rows_were_written_keeps_the_bytes(dataset, owner, monkeypatch):
    def fail(**kwargs):
        raise RuntimeError

    monkeypatch.setattr(batches, "arrived", fail)
    with pytest.raises(RuntimeError):
        pack.receive_pack(dataset=dataset, pieces=[frame("a", b"one")], actor=owner.email)
    assert keys() == {Blob.objects.get().key}


def test_old_bytes_without_a_row_are_swept(staged):
    staged({"a": b"one", "b": b"two"})
    age_all()
    lost, young = lay(), lay(age=3600)
    tasks.orphans()
    assert not store.path_of(lost).exists()
    assert store.path_of(young).exists()
    assert keys() == {young, *Blob.objects.values_list("key", flat=True)}


def test_whatever_has_a_row_stays(staged, dataset, owner):
    staged({"a": b"one"})
    (plan,) = services.declare_files(
        dataset=dataset, entries=[services.Entry("part", 9)], actor=owner.email
    )
    services.receive(upload=plan.upload, offset=0, pieces=[b"abc"])
    dead = lay()
    DeadKey.objects.create(key=dead, size=1)
    age_all()
    before = keys()
    assert {dead, Upload.objects.get(file=plan.file).key} < before
    assert (orphans.sweep_orphans(), keys()) == (0, before)


def test_a_file_that_a_sync_copies_stays(staged, dataset, put):
    staged({"a": b"one"})
    copied = lay()
    source = Source.objects.create(dataset=dataset, kind="urls", created_at=db_now())
    file = put(dataset, "b", b"x")
    SourceFile.objects.create(source=source, file=file, key="b", size=1, store_key=copied)
    assert (orphans.sweep_orphans(), store.path_of(copied).exists()) == (0, True)


def test_the_store_of_another_database_is_left_alone(staged):
    staged({"a": b"one"})
    others = {lay() for _ in range(5)}
    age_all()
    assert orphans.sweep_orphans() == 0
    assert others < keys()


def test_what_is_no_key_is_left_alone(staged):
    staged({"a": b"one"})
    strange = store.ensure_root() / "ab" / "notes.txt"
    strange.parent.mkdir(exist_ok=True)
    strange.write_text("x")
    os.utime(strange, (0, 0))
    age_all()
    assert (orphans.sweep_orphans(), strange.exists()) == (0, True)

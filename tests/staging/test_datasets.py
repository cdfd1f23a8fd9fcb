"""A dataset's life: declared, filled, sealed, verified, held, deleted."""

import errno
import hashlib

import pytest

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from staging import blobs, services, store, tasks, verification
from staging.datasets import begin_verifying
from staging.models import Blob, Dataset, DeadKey, File, TeamUsage, Upload
from staging.signals import dataset_settled
from staging.states import DatasetKind, DatasetReason, DatasetState, FileState, UploadState

pytestmark = [pytest.mark.django_db, pytest.mark.db]


def entry(path: str, size: int = 3, **options) -> services.Entry:
    return services.Entry(path=path, size=size, **options)


def names_in_store(root) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


class TestStaging:
    def test_becomes_staged_with_manifest_counts_and_positions(self, staged, settings):
        dataset = staged({"b/two.txt": b"two", "a.txt": b"a", "b.txt": b"", "B": b"x"})
        assert (dataset.file_count, dataset.byte_count) == (4, 5)
        rows = list(dataset.files.order_by("position").values_list("path", "state", "digest"))
        assert [path for path, *_ in rows] == ["B", "a.txt", "b.txt", "b/two.txt"]
        assert {state for _, state, _ in rows} == {FileState.STAGED}
        lines = [
            f"{hashlib.sha256(c).hexdigest()} {len(c)} - {p}\0"
            for p, c in [("B", b"x"), ("a.txt", b"a"), ("b.txt", b""), ("b/two.txt", b"two")]
        ]
        assert dataset.manifest_digest == hashlib.sha256("".join(lines).encode()).hexdigest()

    def test_every_move_leaves_an_event(self, staged):
        dataset = staged({"a": b"a"})
        verbs = list(dataset.events.values_list("verb", flat=True))
        assert verbs == ["declare", "list", "seal", "check", "verify"]

    def test_folder_of_only_empty_files(self, staged, settings):
        dataset = staged({"d/a": b"", "d/b": b""})
        assert (dataset.file_count, dataset.byte_count) == (2, 0)
        assert Blob.objects.get().links == 2
        assert names_in_store(settings.STORE_ROOT) == []

    def test_an_empty_selection_is_refused(self, dataset, owner):
        with pytest.raises(DomainError, match="no file"):
            services.seal_dataset(dataset=dataset, actor=owner.email)
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.DECLARED

    def test_an_empty_output_is_staged(self, team, owner):
        output = services.create_dataset(
            team=team, name="Out", actor=owner.email, kind=DatasetKind.OUTPUT
        )
        services.seal_dataset(dataset=output, actor="system")
        services.verify_dataset(dataset=output)
        assert (output.state, output.file_count) == (DatasetState.STAGED, 0)
        assert output.manifest_digest == hashlib.sha256(b"").hexdigest()

    def test_a_partial_output_leaves_behind_what_did_not_arrive(self, team, owner, put):
        output = services.create_dataset(
            team=team, name="Out", actor=owner.email, kind=DatasetKind.OUTPUT
        )
        put(output, "came", b"came", actor="lease:l1")
        services.declare_files(dataset=output, entries=[entry("not")], actor="lease:l1")
        type(output).objects.filter(pk=output.pk).update(partial=True)
        services.seal_dataset(dataset=output, actor="system")
        services.verify_dataset(dataset=output)
        assert output.state == DatasetState.STAGED
        assert list(output.files.values_list("path", flat=True)) == ["came"]
        assert TeamUsage.objects.get().promised_bytes == 0

    def test_sealed_early_it_waits_for_its_files(self, dataset, owner, put):
        services.declare_files(dataset=dataset, entries=[entry("a")], actor=owner.email)
        services.seal_dataset(dataset=dataset, actor=owner.email)
        services.verify_dataset(dataset=dataset)
        assert dataset.state == DatasetState.TRANSFERRING

    def test_settled_is_signalled_after_commit(self, staged, django_capture_on_commit_callbacks):
        heard = []

        def hear(sender, dataset, **kwargs):
            heard.append(dataset.state)

        dataset_settled.connect(hear)
        try:
            with django_capture_on_commit_callbacks(execute=True):
                staged({"a": b"a"})
                assert heard == []
        finally:
            dataset_settled.disconnect(hear)
        assert heard == [DatasetState.STAGED]

    @pytest.mark.parametrize("name", ["", " \t", "x" * 121, "a\0b", "a\x1bb", "a\u202eb", "\u200d"])
    def test_a_bad_name_is_refused(self, team, owner, name):
        with pytest.raises(DomainError):
            services.create_dataset(team=team, name=name, actor=owner.email)

    def test_joined_emoji_and_persian_words_are_names(self, team, owner):
        for name in ("\U0001f469\u200d\U0001f52c", "\u0645\u06cc\u200c\u062e\u0648"):
            made = services.create_dataset(team=team, name=name, actor=owner.email)
            assert made.name == name

    def test_wrong_bytes_in_the_store_are_found(self, dataset, owner, put):
        file = put(dataset, "a", b"right")
        services.seal_dataset(dataset=dataset, actor=owner.email)
        store.path_of(file.blob.key).write_bytes(b"wrong")
        services.verify_dataset(dataset=dataset)
        assert (dataset.state, dataset.reason) == (
            DatasetState.FAILED,
            DatasetReason.BYTES_CORRUPT,
        )
        file.refresh_from_db()
        assert (file.state, file.blob) == (FileState.EXPECTED, None)
        put(dataset, "a", b"right")
        services.seal_dataset(dataset=dataset, actor=owner.email)
        services.verify_dataset(dataset=dataset)
        assert dataset.state == DatasetState.STAGED

    @pytest.mark.parametrize("left", [None, b"", b"righ"])
    def test_missing_bytes_in_the_store_are_found(self, dataset, owner, put, left):
        file = put(dataset, "a", b"right")
        services.seal_dataset(dataset=dataset, actor=owner.email)
        store.delete(file.blob.key)
        if left is not None:
            store.write_new(file.blob.key, left)
        services.verify_dataset(dataset=dataset)
        assert (dataset.state, dataset.reason) == (
            DatasetState.FAILED,
            DatasetReason.BYTES_MISSING,
        )


class TestDeclaring:
    def test_the_same_file_again_is_the_same_upload(self, dataset, owner):
        (first,) = services.declare_files(dataset=dataset, entries=[entry("a")], actor=owner.email)
        (second,) = services.declare_files(dataset=dataset, entries=[entry("a")], actor=owner.email)
        assert (first.state, second.state) == ("send", "send")
        assert first.address == second.address
        assert TeamUsage.objects.get().promised_bytes == 3

    def test_another_size_replaces_it_and_gives_room_back(self, dataset, owner):
        for size in (3, 7):
            services.declare_files(dataset=dataset, entries=[entry("a", size)], actor=owner.email)
        assert TeamUsage.objects.get().promised_bytes == 7
        assert File.objects.get().size == 7
        assert Upload.objects.filter(state=UploadState.TERMINATED).count() == 1

    def test_another_time_of_change_starts_again(self, dataset, owner):
        plans = [
            services.declare_files(
                dataset=dataset, entries=[entry("a", modified=when)], actor=owner.email
            )[0]
            for when in (1, 1, 2)
        ]
        assert plans[0].address == plans[1].address != plans[2].address

    def test_what_arrived_is_not_sent_again(self, dataset, owner, put):
        put(dataset, "a", b"abc")
        (plan,) = services.declare_files(dataset=dataset, entries=[entry("a")], actor=owner.email)
        assert plan.state == "have"

    def test_bytes_that_the_team_has_are_not_sent(self, staged, dataset, owner):
        staged({"a": b"abc"})
        digest = hashlib.sha256(b"abc").hexdigest()
        (plan,) = services.declare_files(
            dataset=dataset, entries=[entry("z", digest=digest)], actor=owner.email
        )
        assert plan.state == "have"
        assert Blob.objects.get().links == 2
        services.seal_dataset(dataset=dataset, actor=owner.email)
        services.verify_dataset(dataset=dataset)
        assert dataset.state == DatasetState.STAGED

    def test_bytes_of_another_team_are_sent(self, staged, other_team, stranger):
        staged({"a": b"abc"})
        theirs = services.create_dataset(team=other_team, name="T", actor=stranger.email)
        digest = hashlib.sha256(b"abc").hexdigest()
        (plan,) = services.declare_files(
            dataset=theirs, entries=[entry("z", digest=digest)], actor=stranger.email
        )
        assert (plan.state, plan.hash_first) == ("send", False)

    def test_the_same_bytes_are_kept_once(self, staged, settings):
        staged({"a": b"same", "b": b"same"})
        staged({"c": b"same"})
        blob = Blob.objects.get()
        assert blob.links == 3
        bury_all()
        assert names_in_store(settings.STORE_ROOT) == [blob.key]

    def test_a_file_and_a_folder_of_one_name(self, dataset, owner):
        def declare(*paths):
            return [
                plan.state
                for plan in services.declare_files(
                    dataset=dataset,
                    entries=[entry(path) for path in paths],
                    actor=owner.email,
                    strict=False,
                )
            ]

        assert declare("a", "a/b") == ["refused", "send"]
        assert declare("x/y") == ["send"]
        assert declare("x") == ["refused"]
        assert declare("x/y/z") == ["refused"]

    def test_a_listing_with_a_twin_is_refused(self, dataset, owner):
        with pytest.raises(DomainError, match="twice"):
            services.declare_files(
                dataset=dataset, entries=[entry("a"), entry("a")], actor=owner.email
            )
        assert not File.objects.exists()

    def test_a_staged_dataset_takes_no_more(self, staged, owner):
        dataset = staged({"a": b"a"})
        with pytest.raises(Conflict):
            services.declare_files(dataset=dataset, entries=[entry("b")], actor=owner.email)

    def test_a_thousand_files_take_few_queries(self, dataset, owner, django_assert_max_num_queries):
        entries = [entry(f"d{n % 30}/{n}") for n in range(1000)]
        with django_assert_max_num_queries(40):
            plans = services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
        assert [plan.path for plan in plans] == [e.path for e in entries]

    def test_discarding_a_prefix_keeps_case_and_rest(self, dataset, put):
        for path in ("out/a", "OUT/a", "outer/b"):
            put(dataset, path, path.encode())
        assert services.discard_files(dataset=dataset, prefix="out/") == 1
        assert sorted(dataset.files.values_list("path", flat=True)) == ["OUT/a", "outer/b"]


class TestHolds:
    def test_a_held_dataset_is_not_deleted_and_says_who_needs_it(self, staged, owner):
        dataset = staged({"a": b"a"})
        services.hold(dataset=dataset, holder="job1", label="Training reads it", at=db_now())
        services.hold(dataset=dataset, holder="job1", label="Training reads it", at=db_now())
        assert dataset.holds == 1
        with pytest.raises(Conflict, match="Training reads it"):
            services.delete_dataset(
                dataset=dataset, actor=owner.email, reason=DatasetReason.DELETED_BY_PERSON
            )
        services.unhold(dataset=dataset, holder="job1")
        services.unhold(dataset=dataset, holder="job1")
        assert dataset.holds == 0
        services.delete_dataset(
            dataset=dataset, actor=owner.email, reason=DatasetReason.DELETED_BY_PERSON
        )
        assert dataset.state == DatasetState.EXPIRING

    def test_what_is_being_deleted_cannot_be_held(self, staged, owner):
        dataset = staged({"a": b"a"})
        services.delete_dataset(
            dataset=dataset, actor=owner.email, reason=DatasetReason.DELETED_BY_PERSON
        )
        with pytest.raises(Conflict):
            services.hold(dataset=dataset, holder="job1", label="late", at=db_now())


class TestDeletion:
    def delete(self, dataset, owner):
        services.delete_dataset(
            dataset=dataset, actor=owner.email, reason=DatasetReason.DELETED_BY_PERSON
        )
        return services.purge_dataset(dataset=dataset)

    def test_bytes_are_gone_before_the_receipt(self, staged, owner, settings):
        dataset = staged({"a": b"abc", "b": b"", "c/d": b"12345"})
        assert len(names_in_store(settings.STORE_ROOT)) == 2
        self.delete(dataset, owner)
        assert names_in_store(settings.STORE_ROOT) == []
        assert (dataset.state, dataset.purged_bytes) == (DatasetState.PURGED, 8)
        assert dataset.purged_by == owner.email
        assert not DeadKey.objects.exists()
        assert TeamUsage.objects.get().stored_bytes == 0

    def test_the_manifest_stays(self, staged, owner):
        dataset = staged({"a": b"abc"})
        self.delete(dataset, owner)
        file = dataset.files.get()
        assert (file.path, file.digest != "", file.blob) == ("a", True, None)

    def test_bytes_of_another_dataset_stay(self, staged, owner, settings):
        one, other = staged({"a": b"same"}), staged({"b": b"same"})
        self.delete(one, owner)
        assert one.purged_bytes == 0
        assert b"".join(services.open_file(file=other.files.get())) == b"same"
        self.delete(other, owner)
        assert names_in_store(settings.STORE_ROOT) == []

    def test_uploads_in_flight_end_with_it(self, dataset, owner):
        (plan,) = services.declare_files(dataset=dataset, entries=[entry("a")], actor=owner.email)
        self.delete(dataset, owner)
        plan.upload.refresh_from_db()
        assert plan.upload.state == UploadState.TERMINATED
        assert TeamUsage.objects.get().promised_bytes == 0

    def test_a_deletion_that_was_cut_off_is_finished(self, staged, owner, settings, monkeypatch):
        dataset = staged({"a": b"abc"})
        services.delete_dataset(
            dataset=dataset, actor=owner.email, reason=DatasetReason.DELETED_BY_PERSON
        )

        def no_disk(key):
            raise OSError("the disk is away")

        with monkeypatch.context() as patch:
            patch.setattr(store, "delete", no_disk)
            with pytest.raises(OSError, match="away"):
                services.purge_dataset(dataset=dataset)
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.EXPIRING
        services.purge_dataset(dataset=dataset)
        assert (dataset.state, dataset.purged_bytes) == (DatasetState.PURGED, 3)
        assert names_in_store(settings.STORE_ROOT) == []


def bury_all() -> int:
    return blobs.bury(DeadKey.objects.all())


@pytest.mark.parametrize("state", ["expiring", "purged", "verifying"])
def test_nothing_is_removed_from_what_takes_no_files(dataset, owner, put, state):
    """One that failed was never sealed: what it looks at is the state, not the seal alone."""
    put(dataset, "a", b"x")
    at = db_now() if state == "purged" else None
    rows = Dataset.objects.filter(pk=dataset.pk)
    rows.update(state=state, reason="abandoned", purged_at=at)
    with pytest.raises(Conflict):
        services.remove_file(dataset=dataset, path="a", actor=owner.email)
    dataset.refresh_from_db()
    assert (dataset.reason, dataset.files.count()) == ("abandoned", 1)


@pytest.mark.parametrize(
    ("state", "reason", "after"),
    [
        ("transferring", "disk_full", ""),
        ("failed", "upload_expired", "upload_expired"),
        ("failed", "bytes_missing", "bytes_missing"),
    ],
)
def test_a_removal_ends_only_a_full_disk(dataset, owner, put, state, reason, after):
    put(dataset, "a", b"x")
    Dataset.objects.filter(pk=dataset.pk).update(state=state, reason=reason)
    services.remove_file(dataset=dataset, path="a", actor=owner.email)
    dataset.refresh_from_db()
    assert (dataset.reason, dataset.files.count()) == (after, 0)


def test_removing_again_does_nothing_and_is_no_event(dataset, owner, put):
    put(dataset, "a", b"x")
    for _ in range(2):
        services.remove_file(dataset=dataset, path="a", actor=owner.email)
    assert dataset.events.filter(verb="remove").count() == 1


class TestBadBlocks:
    @pytest.fixture
    def sealed(self, team, owner, put, monkeypatch):
        """Two sealed datasets, of which the older has a file that cannot be read."""
        found = []
        for name in ("old", "young"):
            dataset = services.create_dataset(team=team, name=name, actor=owner.email)
            put(dataset, "a", name.encode())
            Dataset.objects.filter(pk=dataset.pk).update(state="verifying", sealed_at=db_now())
            found.append(dataset)
        bad, read = Blob.objects.get(size=3).key, store.read

        def broken(number: int) -> None:
            def fail(key: str, start: int, stop: int):
                if key == bad:
                    raise OSError(number, "broken")
                return read(key, start, stop)

            monkeypatch.setattr(store, "read", fail)

        return found, broken

    def states(self, datasets) -> list[str]:
        return [Dataset.objects.get(pk=dataset.pk).state for dataset in datasets]

    def test_are_bytes_that_are_corrupt(self, sealed):
        datasets, broken = sealed
        broken(errno.EIO)
        tasks.verify()
        assert self.states(datasets) == ["failed", "staged"]
        assert Dataset.objects.get(name="old").reason == "bytes_corrupt"

    def test_another_fault_stops_no_other_check_and_condemns_nothing(self, sealed):
        datasets, broken = sealed
        broken(errno.EMFILE)
        tasks.verify()
        assert self.states(datasets) == ["verifying", "staged"]
        assert Dataset.objects.get(name="old").claimed_until is None
        assert Blob.objects.filter(dead_at=None).count() == 2


def test_the_check_keeps_the_claim_of_the_one_who_checks(dataset, owner, put):
    put(dataset, "a", b"x")
    Dataset.objects.filter(pk=dataset.pk).update(sealed_at=db_now())
    dataset.refresh_from_db()
    assert verification.claim(dataset, db_now())
    assert begin_verifying(dataset=dataset, at=db_now(), actor="system")
    assert Dataset.objects.get(pk=dataset.pk).claimed_until is not None

"""Dates of deletion, sweeps of uploads and datasets."""

from datetime import timedelta

import pytest

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from staging import retention, services, tasks
from staging.models import Dataset, DeadKey, File, TeamUsage, Upload
from staging.receive import receive
from staging.states import DatasetReason, DatasetState, UploadState

pytestmark = [pytest.mark.django_db, pytest.mark.db]
DAY = timedelta(days=1)


def days_of(dataset: Dataset) -> float | None:
    return None if dataset.expires_at is None else (dataset.expires_at - dataset.staged_at) / DAY


class TestDates:
    @pytest.mark.parametrize(
        ("own", "team_days", "portal_days", "wanted", "by"),
        [
            (None, None, 0, None, ""),
            (None, None, 30, 30, "this portal's policy"),
            (None, 7, 30, 7, "the team's policy"),
            (None, 0, 30, None, ""),
            (3, 7, 30, 3, "owner@climate.example"),
            (0, 7, 30, None, "owner@climate.example"),
        ],
    )
    def test_who_decides(self, staged, team, settings, own, team_days, portal_days, wanted, by):
        settings.DEFAULT_RETENTION_DAYS = portal_days
        team.retention_days = team_days
        team.save()
        dataset = staged({"a": b"a"}, keep_days=own)
        assert (days_of(dataset), dataset.expiry_set_by) == (wanted, by)

    def test_a_later_policy_moves_no_date(self, staged, team):
        team.retention_days = 30
        team.save()
        dataset = staged({"a": b"a"})
        team.retention_days = 1
        team.save()
        tasks.sweep()
        dataset.refresh_from_db()
        assert (dataset.state, days_of(dataset)) == (DatasetState.STAGED, 30)

    def test_a_change_is_an_act_with_a_name(self, staged, mate):
        dataset = staged({"a": b"a"})
        services.set_expiry(dataset=dataset, days=5, actor=mate.email)
        assert 4.9 < days_of(dataset) < 5.1
        event = dataset.events.last()
        assert (event.verb, event.actor, event.detail) == ("keep", mate.email, {"days": 5})

    @pytest.mark.parametrize("days", [-1, 36501, 10**12])
    def test_dates_out_of_range(self, staged, mate, days):
        with pytest.raises(DomainError):
            services.set_expiry(dataset=staged({"a": b"a"}), days=days, actor=mate.email)

    def test_no_date_for_what_is_being_deleted(self, staged, mate):
        dataset = staged({"a": b"a"})
        services.delete_dataset(dataset=dataset, actor=mate.email, reason="deleted_by_person")
        with pytest.raises(Conflict):
            services.set_expiry(dataset=dataset, days=5, actor=mate.email)


class TestSweep:
    def overdue(self, dataset: Dataset) -> None:
        Dataset.objects.filter(pk=dataset.pk).update(expires_at=db_now() - DAY)

    def test_a_date_that_has_come(self, staged, settings):
        dataset = staged({"a": b"abc"})
        self.overdue(dataset)
        tasks.sweep()
        dataset.refresh_from_db()
        assert (dataset.state, dataset.reason) == (DatasetState.PURGED, DatasetReason.RETENTION)
        assert (dataset.purged_by, dataset.purged_bytes) == ("retention policy", 3)
        assert [p for p in settings.STORE_ROOT.rglob("*") if p.is_file()] == []

    def test_held_data_stays_past_its_date(self, staged):
        dataset = staged({"a": b"abc"})
        services.hold(dataset=dataset, holder="job1", label="Training", at=db_now())
        self.overdue(dataset)
        tasks.sweep()
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.STAGED
        services.unhold(dataset=dataset, holder="job1")
        tasks.sweep()
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.PURGED

    def test_abandoned_uploads_give_their_room_back(self, dataset, owner, put):
        kept = put(dataset, "kept", b"kept")
        entries = [services.Entry(path=f"f{n}", size=10) for n in range(100)]
        services.declare_files(dataset=dataset, entries=entries, actor=owner.email)
        assert TeamUsage.objects.get().promised_bytes == 1000
        Upload.objects.filter(state=UploadState.OPEN).update(expires_at=db_now() - DAY)
        tasks.sweep()
        dataset.refresh_from_db()
        assert TeamUsage.objects.get().promised_bytes == 0
        assert Upload.objects.filter(state=UploadState.EXPIRED).count() == 100
        assert (dataset.state, dataset.reason) == (
            DatasetState.FAILED,
            DatasetReason.UPLOAD_EXPIRED,
        )
        plans = services.declare_files(
            dataset=dataset,
            entries=[services.Entry(path="kept", size=4), *entries],
            actor=owner.email,
        )
        assert [plan.state for plan in plans] == ["have"] + ["send"] * 100
        kept.refresh_from_db()
        assert (dataset.state, kept.state) == (DatasetState.TRANSFERRING, "uploaded")

    @pytest.mark.parametrize(
        ("sent", "reason"),
        [(b"", DatasetReason.ABANDONED), (b"a", DatasetReason.UNFINISHED)],
    )
    def test_what_was_never_finished_is_deleted_for_that(
        self, client, dataset, owner, sent, reason
    ):
        """And its address says so, for as long again as it had; then it is forgotten."""
        entry = services.Entry(path="a", size=10)
        (plan,) = services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
        headers = {"Tus-Resumable": "1.0.0", "Upload-Offset": "0"}
        kind = "application/offset+octet-stream"
        if sent:
            client.patch(plan.address, sent, content_type=kind, headers=headers)
        assert Upload.objects.get().offset == len(sent)
        Upload.objects.update(expires_at=db_now() - DAY)
        tasks.sweep()
        dataset.refresh_from_db()
        assert dataset.reason == DatasetReason.UPLOAD_EXPIRED
        self.overdue(dataset)
        for _ in range(2):
            answer = client.head(plan.address, headers=headers)
            assert answer.status_code == 410
            again = client.patch(plan.address, b"b", content_type=kind, headers=headers)
            assert (again.status_code, again.json()["error"]) == (410, "gone")
            tasks.sweep()
        dataset.refresh_from_db()
        assert (dataset.state, dataset.reason) == (DatasetState.PURGED, reason)
        assert dataset.purged_by == "system"
        Upload.objects.update(expires_at=db_now() - DAY)
        tasks.sweep()
        assert client.head(plan.address, headers=headers).status_code == 404

    def test_an_upload_whose_date_moved_is_not_swept(self, dataset, owner):
        entry = services.Entry(path="a", size=10)
        services.declare_files(dataset=dataset, entries=[entry], actor=owner.email)
        assert retention.expire_uploads(at=db_now()) == 0

    def test_a_name_without_files_is_deleted_in_the_end(self, dataset, settings):
        Dataset.objects.update(created_at=db_now() - settings.UPLOAD_LIFETIME - DAY)
        tasks.sweep()
        dataset.refresh_from_db()
        assert (dataset.state, dataset.reason) == (DatasetState.PURGED, DatasetReason.ABANDONED)

    def test_tombstones_go_and_files_stay(self, dataset, put):
        put(dataset, "a", b"abc")
        Upload.objects.update(expires_at=db_now() - DAY)
        tasks.sweep()
        assert not Upload.objects.exists()
        assert dataset.files.count() == 1

    def test_doubled_bytes_are_swept(self, staged, settings):
        staged({"a": b"same", "b": b"same"})
        assert DeadKey.objects.count() == 1
        tasks.sweep()
        assert not DeadKey.objects.exists()
        assert len([p for p in settings.STORE_ROOT.rglob("*") if p.is_file()]) == 1


class TestPump:
    def test_verifies_what_is_sealed(self, dataset, owner, put):
        put(dataset, "a", b"a")
        services.seal_dataset(dataset=dataset, actor=owner.email)
        tasks.verify()
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.STAGED

    def test_leaves_what_another_worker_has_claimed(self, dataset, owner, put):
        put(dataset, "a", b"a")
        services.seal_dataset(dataset=dataset, actor=owner.email)
        Dataset.objects.update(claimed_until=db_now() + DAY)
        tasks.verify()
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.VERIFYING
        Dataset.objects.update(claimed_until=db_now() - DAY)
        tasks.verify(dataset.pk)
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.STAGED

    def test_goes_on_where_it_ran_out_of_time(self, dataset, owner, put):
        for n in range(3):
            put(dataset, f"f{n}", bytes([n]))
        services.seal_dataset(dataset=dataset, actor=owner.email)
        rounds = 0
        while dataset.state == DatasetState.VERIFYING:
            services.verify_dataset(dataset=dataset, until=0)
            rounds += 1
            assert rounds < 10
        assert dataset.state == DatasetState.STAGED

    def test_wakes_for_the_last_file(self, dataset, owner, put, monkeypatch):
        woken = []
        monkeypatch.setattr(tasks, "wake_verify", lambda row: woken.append(row.pk))
        services.declare_files(
            dataset=dataset, entries=[services.Entry(path="a", size=1)], actor=owner.email
        )
        services.seal_dataset(dataset=dataset, actor=owner.email)
        receive(upload=File.objects.get().upload, offset=0, pieces=[b"a"])
        dataset.refresh_from_db()
        assert dataset.state == DatasetState.VERIFYING
        assert woken[-1] == dataset.pk

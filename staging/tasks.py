"""Celery pumps. Rows are the queue; a message only means "look now"."""

import time
from datetime import timedelta

import structlog
from celery import shared_task

from portal.base.clock import db_now
from portal.base.errors import DomainError
from portal.base.failures import outage
from portal.base.turns import is_over
from portal.base.wake import wake
from staging import blobs, concat, notices, retention, verification
from staging.estimates import notes
from staging.models import Dataset, DeadKey, Upload
from staging.orphans import sweep_orphans
from staging.states import DatasetState, UploadState

PUMP_SECONDS = 20
BATCH = 500
REST = 4  # times what a look took, before the next
_measured = (0.0, 0.0)  # when this process looked last: beginning and end
log = structlog.get_logger(__name__)


def wake_verify(dataset: Dataset) -> None:
    wake(verify, dataset.pk)


def wake_assemble(final: Upload) -> None:
    wake(assemble, final.pk)


def wake_purge(dataset: Dataset) -> None:
    wake(purge, dataset.pk)


@shared_task(name="staging.tasks.verify", time_limit=3600)
def verify(dataset_id: int | None = None) -> None:
    """Check datasets that are complete: this one, or all that wait, for at most 20 s."""
    until = time.monotonic() + PUMP_SECONDS
    now = db_now()
    rows = verification.waiting_for_check(now)
    for dataset in rows.filter(pk=dataset_id) if dataset_id else rows[:BATCH]:
        if not verification.claim(dataset, now):
            continue
        try:
            verification.verify_dataset(dataset=dataset, until=until)
        except Exception as error:  # the others wait behind the oldest: it may not stop them
            if outage(error):
                raise
            log.exception("verify_failed", dataset=dataset.code)
            continue
        finally:
            verification.release_claim(dataset)
        if dataset.state == DatasetState.VERIFYING:
            wake_verify(dataset)
        if is_over(until):
            return


@shared_task(name="staging.tasks.assemble")
def assemble(upload_id: int | None = None) -> None:
    """Put files together from their parts: this one, or all that wait, for at most 20 s."""
    until = time.monotonic() + PUMP_SECONDS
    for final in concat.waiting(upload_id):
        try:
            concat.assemble(final=final, until=until)
        except DomainError as error:  # a full disk: the sweep's next round tries again
            log.warning("assemble_refused", upload=final.pk, error=str(error))
            continue
        if final.state == UploadState.OPEN:
            wake_assemble(final)
        if is_over(until):
            return


@shared_task(name="staging.tasks.purge")
def purge(dataset_id: int | None = None) -> None:
    """Finish deletions: this one, or all that were decided, for at most 20 s."""
    until = time.monotonic() + PUMP_SECONDS
    rows = Dataset.objects.filter(state=DatasetState.EXPIRING)
    for dataset in rows.filter(pk=dataset_id) if dataset_id else rows[:BATCH]:
        retention.purge_dataset(dataset=dataset, until=until)
        if is_over(until):
            return


@shared_task(name="staging.tasks.notify")
def notify() -> None:
    """Tell people by mail what is deleted soon, for at most 20 s."""
    now = db_now()
    sent = notices.send_notices(at=now, stop=now + timedelta(seconds=PUMP_SECONDS))
    if sent:
        log.info("deletion_notices_sent", mails=sent)


@shared_task(name="staging.tasks.measure", time_limit=60)
def measure() -> None:
    """Look at what moves, so that it is known when it will be there; where that takes long, less
    often, as passes of the scheduler wait behind it."""
    global _measured
    began = time.monotonic()
    last_began, last_ended = _measured
    if began - last_ended < REST * (last_ended - last_began):
        return
    notes.look_at_all(db_now())
    _measured = began, time.monotonic()


@shared_task(name="staging.tasks.sweep")
def sweep() -> None:
    """Expire uploads and datasets, finish deletions, remove dead bytes."""
    now = db_now()
    counts = {
        "uploads": retention.expire_uploads(at=now),
        "abandoned": retention.abandon_datasets(at=now),
        "datasets": retention.expire_datasets(at=now),
        "tombstones": retention.forget_tombstones(at=now),
        "bytes": blobs.bury(DeadKey.objects.order_by("pk")[:BATCH]),
        "estimates": notes.forget(now),
    }
    purge()
    if any(counts.values()):
        log.info("staging_swept", **counts)


@shared_task(name="staging.tasks.orphans", time_limit=3600)
def orphans() -> None:
    """Delete old bytes in the store that no row knows: one walk through all of it."""
    if count := sweep_orphans():
        log.warning("orphans_deleted", keys=count)


from staging.sync import tasks as sync  # noqa: E402,F401  Celery finds its task through here

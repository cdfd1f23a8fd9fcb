"""The Celery pump of sync. Rows are the queue; a message only means "look now"."""

import time

from celery import shared_task

from portal.base.clock import db_now
from portal.base.wake import wake
from staging.sync import claims, pump

PUMP_SECONDS = 20
# A file of many gigabytes that is compared with one sum of its source is read back at a stretch.
LONGEST_S = 900


def wake_sync(times: int = 1) -> None:
    for _ in range(times):
        wake(copy)


@shared_task(name="staging.tasks.sync", time_limit=LONGEST_S)
def copy() -> None:
    """List and copy for at most 20 s, then let another look. Without a seat it does nothing, so
    it does not matter how many messages there are."""
    did = pump.run(time.monotonic() + PUMP_SECONDS)
    if did and claims.at_work(db_now()).exists():
        wake_sync()

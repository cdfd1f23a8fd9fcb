"""Waking a pump. Rows are the queue, so a message that is never sent only means a later start."""

import structlog
from celery import Task
from django.db import transaction
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)


def wake(task: Task, *args: object) -> None:
    """Send `task` to the broker once the transaction has committed; a failure is logged."""

    def send() -> None:
        try:
            task.apply_async(args=args, retry=False)
        except (OperationalError, OSError) as error:
            log.warning("wake_failed", task=task.name, error=str(error))

    transaction.on_commit(send)

"""Celery's side of nodes: the scheduling pass and the look at what time alone decides."""

from celery import shared_task

from nodes.scheduler import run_pass
from nodes.watch import watch as watch_once


@shared_task(time_limit=60)
def schedule() -> None:
    run_pass()


@shared_task(time_limit=60)
def watch() -> None:
    watch_once()

"""The Celery app. Rows are the queue: messages only wake the pumps named in the schedule below."""

import os
import warnings

import structlog
from celery import Celery
from celery.exceptions import CPendingDeprecationWarning
from celery.schedules import crontab
from celery.signals import task_prerun, worker_shutting_down

from portal.base import turns

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# What Celery 6 does to running tasks when the broker goes; ours are short and may run twice.
warnings.simplefilter("ignore", CPendingDeprecationWarning)
app.conf.task_routes = {
    "staging.tasks.notify": {"queue": "control"},
    "staging.tasks.measure": {"queue": "control"},
    "staging.tasks.*": {"queue": "transfer"},
}
app.conf.beat_schedule = {
    "schedule": {"task": "nodes.tasks.schedule", "schedule": 5.0, "options": {"expires": 5}},
    "watch": {"task": "nodes.tasks.watch", "schedule": 5.0, "options": {"expires": 5}},
    "advance": {"task": "jobs.tasks.advance", "schedule": 10.0, "options": {"expires": 10}},
    "verify": {"task": "staging.tasks.verify", "schedule": 10.0, "options": {"expires": 10}},
    "assemble": {"task": "staging.tasks.assemble", "schedule": 15.0, "options": {"expires": 15}},
    "notify": {"task": "staging.tasks.notify", "schedule": 600.0, "options": {"expires": 600}},
    "measure": {"task": "staging.tasks.measure", "schedule": 2.0, "options": {"expires": 2}},
    "sync": {"task": "staging.tasks.sync", "schedule": 10.0, "options": {"expires": 10}},
    "orphans": {"task": "staging.tasks.orphans", "schedule": crontab(hour=4, minute=40)},
    "sweep": {"task": "staging.tasks.sweep", "schedule": 60.0, "options": {"expires": 60}},
}


@worker_shutting_down.connect
def end_turns(**kwargs: object) -> None:
    """Pumps stop between two steps, so that nobody who ends a worker waits for a whole turn."""
    turns.ask_to_end()


@task_prerun.connect
def name_task(task: object = None, task_id: str = "", **kwargs: object) -> None:
    """Log lines of a task carry its name and id, and nothing of the task before it."""
    if getattr(getattr(task, "request", None), "is_eager", False):
        return  # it runs inside somebody's request, whose names stay
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(task=getattr(task, "name", ""), task_id=task_id)

"""The Celery app. Rows are the queue: messages only wake the pumps named in the schedule below."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.task_routes = {"staging.tasks.*": {"queue": "transfer"}}
app.conf.beat_schedule = {
    "schedule": {"task": "nodes.tasks.schedule", "schedule": 5.0, "options": {"expires": 5}},
    "watch": {"task": "nodes.tasks.watch", "schedule": 5.0, "options": {"expires": 5}},
    "advance": {"task": "jobs.tasks.advance", "schedule": 10.0, "options": {"expires": 10}},
    "verify": {"task": "staging.tasks.verify", "schedule": 10.0, "options": {"expires": 10}},
    "sweep": {"task": "staging.tasks.sweep", "schedule": 60.0, "options": {"expires": 60}},
}

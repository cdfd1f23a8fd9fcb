"""Celery's side of jobs: a pump that queues what has become staged."""

from celery import shared_task

from jobs.models import Job
from jobs.services import advance as advance_job
from jobs.states import JobState
from portal.base.clock import db_now


@shared_task(time_limit=30)
def advance() -> None:
    """Queue every job whose inputs are all staged. May run twice, and at the same time."""
    for job in Job.objects.filter(state=JobState.STAGING).order_by("submitted_at")[:500]:
        advance_job(job=job, at=db_now())

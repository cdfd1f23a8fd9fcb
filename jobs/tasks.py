"""Celery's side of jobs: a pump that queues what has become staged."""

import structlog
from celery import shared_task

from jobs.models import Job
from jobs.services import advance as advance_job
from jobs.states import JobState
from portal.base.clock import db_now
from portal.base.errors import DomainError
from portal.base.turns import is_ending

log = structlog.get_logger(__name__)


@shared_task(time_limit=30)
def advance() -> None:
    """Queue every job whose inputs are all staged. May run twice, and at the same time."""
    for job in Job.objects.filter(state=JobState.STAGING).order_by("submitted_at")[:500]:
        if is_ending():
            return
        try:
            advance_job(job=job, at=db_now())
        except DomainError as error:  # another was first; the jobs behind it go on
            log.info("advance_refused", job=job.code, why=str(error))

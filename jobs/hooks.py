"""What jobs does when staging speaks: a job whose last input has become staged is queued."""

from django.db.models import Q

from jobs.logs import remove_unkept_logs
from jobs.models import Job
from jobs.services import advance
from jobs.signals import job_ended
from jobs.states import JobState
from portal.base.clock import db_now
from staging.models import Dataset
from staging.signals import dataset_settled


def connect() -> None:
    dataset_settled.connect(_settled, dispatch_uid="jobs.dataset_settled")
    job_ended.connect(remove_unkept_logs, dispatch_uid="jobs.remove_unkept_logs")


def _settled(sender: object, dataset: Dataset, **kwargs: object) -> None:
    needs_it = Q(inputs__dataset=dataset) | Q(code_dataset=dataset)
    for job in Job.objects.filter(needs_it, state=JobState.STAGING).distinct():
        advance(job=job, at=db_now())

"""Who asks, and for which dataset."""

from django.http import HttpRequest

from portal.base.errors import Conflict
from portal.teams.access import of_my_teams, plainly_of_my_teams
from staging.models import Dataset
from staging.states import DatasetKind
from staging.uploads import is_lease

ONLY_A_JOB = "The files of this dataset come from a job; nobody else can change them."


def my_dataset(request: HttpRequest, code: str) -> Dataset:
    """The dataset with this code if it belongs to a team of the person. Raises NotFound."""
    return of_my_teams(request, Dataset.objects.select_related("team"), code)


def my_input(request: HttpRequest, code: str) -> Dataset:
    """A dataset that people may put files into. Raises NotFound, and Conflict for what only a job
    writes: its record says that nobody else did."""
    row = plainly_of_my_teams(request, Dataset, code)
    if row.kind != DatasetKind.INPUT:
        raise Conflict(ONLY_A_JOB)
    return row


def check_writer(dataset: Dataset, holder: str) -> None:
    """Only a lease puts files into an output. Raises Conflict. The doors above are for people,
    and say it sooner; this is asked where files are opened, whoever came through which door."""
    if dataset.kind == DatasetKind.OUTPUT and not is_lease(holder):
        raise Conflict(ONLY_A_JOB)

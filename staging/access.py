"""Who asks, and for which dataset."""

from django.http import HttpRequest

from portal.teams.access import of_my_teams
from staging.models import Dataset


def my_dataset(request: HttpRequest, code: str) -> Dataset:
    """The dataset with this code if it belongs to a team of the person. Raises NotFound."""
    return of_my_teams(request, Dataset.objects.select_related("team"), code)

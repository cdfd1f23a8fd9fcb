"""Who asks, and for which dataset."""

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest

from portal.base.errors import NotFound
from portal.base.rows import find, table
from portal.teams.models import Membership
from staging.models import Dataset


def my_dataset(request: HttpRequest, code: str) -> Dataset:
    """The dataset with this code if it belongs to a team of the person. Raises NotFound.

    In plain SQL: every file of a plain tus client begins with it.
    """
    mine = f"team_id IN (SELECT team_id FROM {table(Membership)} WHERE user_id = %s)"  # noqa: S608
    row = find(Dataset, f"code = %s AND {mine}", [code, request.user.pk])
    if row is None:
        raise NotFound("There is nothing here, or it belongs to another team.")
    return row


def actor_of(request: HttpRequest) -> str:
    """The address of the signed-in person, as events name it."""
    user = request.user
    return "" if isinstance(user, AnonymousUser) else user.email

"""Upload keys: for programs that create uploads and have no session.

A key is signed, names one input and one person, and is good for as long as an unfinished upload
is. It ends with the person's membership, and once the dataset takes no more files it opens nothing.
"""

from django.conf import settings
from django.core import signing

from portal.teams.access import is_member
from staging.models import Dataset
from staging.states import DatasetKind

SALT = "staging.key"


def upload_key(dataset: Dataset, email: str) -> str:
    """What a program sends as `Authorization: Bearer <key>` to create uploads in a dataset."""
    return signing.dumps([dataset.code, email], salt=SALT, compress=True)


def read_key(key: str) -> tuple[Dataset, str] | None:
    """(dataset, address of the person) of a key; None for one that is wrong or over."""
    try:
        code, email = signing.loads(key, salt=SALT, max_age=settings.UPLOAD_LIFETIME)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    dataset = Dataset.objects.select_related("team").filter(code=code).first()
    if dataset is None or dataset.kind != DatasetKind.INPUT:
        return None
    if not is_member(email, dataset.team_id):
        return None
    return dataset, email

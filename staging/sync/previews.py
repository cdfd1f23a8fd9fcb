"""A preview between two requests: signed, and good for the very choice that was counted.

Nothing is kept on the server. What begins is what was counted: another choice has other prints.
"""

import hashlib
import json
from dataclasses import dataclass

from django.core import signing

from portal.teams.models import Team
from staging.errors import Busy
from staging.models import Dataset
from staging.sync import sources
from staging.sync.asking import asking
from staging.sync.errors import Interrupted, Trouble
from staging.sync.sources import Choice, Preview

SALT = "staging.sync.preview"
GOOD_FOR_S = 24 * 3600


@dataclass(frozen=True)
class Look:
    """What a look at a source found, or the sentence that says why it could not be had."""

    preview: Preview | None
    sentence: str = ""


def look(team: Team, choice: Choice, so_far: Preview | None) -> Look:
    """Count some seconds more. Raises DomainError for a choice that cannot be."""
    try:
        with asking():
            return Look(sources.preview(dataset=Dataset(team=team), choice=choice, so_far=so_far))
    except (Trouble, Interrupted, Busy) as trouble:
        return Look(so_far, str(trouble) or "The source answers too slowly.")


def sealed(team: Team, choice: Choice, found: Preview) -> str:
    """The preview as a field of a form."""
    facts = [found.files, found.size, found.skipped, sorted(found.largest), found.cursor]
    return signing.dumps([_print_of(team, choice), *facts], salt=SALT, compress=True)


def opened(team: Team, choice: Choice, text: str) -> Preview | None:
    """What was sealed for this choice; None for anything else."""
    try:
        given, files, size, skipped, largest, cursor = signing.loads(
            text, salt=SALT, max_age=GOOD_FOR_S
        )
    except (signing.BadSignature, ValueError):
        return None
    if given != _print_of(team, choice):
        return None
    return Preview(files, size, skipped, [(count, path) for count, path in largest], cursor)


def _print_of(team: Team, choice: Choice) -> str:
    facts = [
        team.pk,
        choice.kind.value,
        choice.connection.pk if choice.connection else None,
        choice.folder.pk if choice.folder else None,
        choice.prefix,
        choice.include,
        choice.exclude,
        choice.addresses,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

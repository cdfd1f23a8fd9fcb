"""Server folders: which folders of this server which teams may read. Operators alone say so."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from django.conf import settings
from django.db import IntegrityError, transaction

from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from portal.teams.models import Team
from staging.models import ServerFolder


def checked_path(text: str) -> str:
    """An absolute path in its plain form. Raises DomainError for none, and for what is ours."""
    path = PurePosixPath(text.strip())
    if not path.is_absolute() or ".." in path.parts or not str(path).isprintable():
        raise DomainError("A server folder is an absolute path without “..”.")
    for ours in (settings.DATA_DIR, settings.STORE_ROOT):
        own = PurePosixPath(ours)
        if path == own or path in own.parents or own in path.parents:
            raise DomainError(f"{path} holds what this portal keeps, or lies in it.")
    return str(path)


def save_folder(
    *, folder: ServerFolder, name: str, path: str, teams: Iterable[Team], actor: str
) -> ServerFolder:
    """Make or change a server folder. Teams that come or go see it among what happened."""
    folder.name, folder.path = name.strip(), checked_path(path)
    wanted = {team.pk: team for team in teams}
    try:
        with transaction.atomic():
            now = db_now()
            folder.save()
            had = {team.pk: team for team in folder.teams.all()}
            folder.teams.set(wanted.values())
            for pk, team in (had | wanted).items():
                if (pk in had) != (pk in wanted):
                    verb = "folder_lend" if pk in wanted else "folder_take"
                    team.note(verb, at=now, actor=actor, folder=folder.name)
    except IntegrityError as error:
        raise Conflict(f"There is a server folder called {folder.name} already.") from error
    return folder

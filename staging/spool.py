"""Forms with files in them: Django writes their bodies to disk before a view sees them.

So what can be refused is refused first, by the length that was announced: somebody who is not
signed in (by the decorator around), a dataset that takes no files, a team or a disk without room.
"""

import os
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from portal.base.errors import NoRoom
from portal.base.middleware import announced, read_whole, takes_files
from portal.base.words import in_bytes
from staging import store, usage
from staging.access import my_input


def check_form(request: HttpRequest, *, team_id: int) -> None:
    """Whether the files of a form that is about to be read could be kept. Raises NoRoom.

    A form without files fits always: only what is above its size counts.
    """
    size = announced(request)
    if size > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        usage.check_room(team_id=team_id, amount=size)
        _check_spool(size)


def _check_spool(size: int) -> None:
    """Where the spool and the store share a disk, the bytes are there twice for a while."""
    folder = Path(settings.FILE_UPLOAD_TEMP_DIR or tempfile.gettempdir())
    stat = os.statvfs(folder)
    free = max(0, stat.f_bavail * stat.f_frsize - settings.DISK_FLOOR_BYTES)
    shared = folder.stat().st_dev == store.ensure_root().stat().st_dev
    if size * (2 if shared else 1) > free:
        raise NoRoom(
            f"This form has {in_bytes(size)}; the portal's disk has no room to take it in.",
            free=free,
            needed=size,
        )


def spools(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view that puts the files of a form into the dataset `code`; `login_required` is around it.

    The CSRF check reads the body, so it runs inside: `csrf_exempt` only moves it here.
    """
    protected = csrf_protect(view)

    @csrf_exempt
    @takes_files
    @wraps(view)
    def wrapper(request: HttpRequest, code: str) -> HttpResponse:
        check_form(request, team_id=my_input(request, code).team_id)
        read_whole(request)
        return protected(request, code)

    return wrapper

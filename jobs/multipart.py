"""Reading the job form's files with the names that browsers send.

Django cuts a file's name to its last part, which is right everywhere but for a chosen folder,
whose files come with their path in it. Here the sent name is kept beside the file as `sent_name`;
`jobs.code.safe_path` decides whether it may be used.
"""

from collections.abc import Callable
from functools import wraps
from types import MethodType

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.multipartparser import MultiPartParser
from django.utils.datastructures import MultiValueDict
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from portal.base.errors import TooLarge
from portal.base.middleware import announced, read_whole, takes_files
from portal.teams.access import require_team
from staging.spool import check_form

FORM_BYTES = 16 * 2**20  # room for the other fields and the multipart's own lines


class NamingParser(MultiPartParser):
    """Gives each file a number as its name; `names` has what was sent for it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.names: list[str] = []

    def sanitize_file_name(self, file_name: str) -> str | None:
        if not file_name:
            return None
        # Django drops what has no usable last part (".."); kept, it is refused by name.
        self.names.append(file_name)
        return str(len(self.names) - 1)


def _parse(request: HttpRequest, meta: dict, post_data: object) -> tuple[QueryDict, MultiValueDict]:
    parser = NamingParser(meta, post_data, request.upload_handlers, request.encoding)
    data, files = parser.parse()
    for name in files:
        for file in files.getlist(name):
            file.sent_name = parser.names[int(file.name)]
    return data, files


def takes_folders(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Refuse a body that is too large, or has no room, before it is read, and keep the names of a
    folder's files.

    The CSRF check reads the body, so it runs inside: `csrf_exempt` only moves it here.
    """
    protected = csrf_protect(view)

    @csrf_exempt
    @takes_files
    @wraps(view)
    def wrapper(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        length = announced(request)
        if length > settings.LARGEST_CODE_BYTES + FORM_BYTES:
            limit = settings.LARGEST_CODE_BYTES / 2**20
            raise TooLarge(
                f"The form with its files is {length / 2**20:,.0f} MiB; code can have at most "
                f"{limit:g} MiB. Stage larger files as a dataset. Go back: the form is kept."
            )
        if length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            check_form(request, team_id=require_team(request).pk)
        request.parse_file_upload = MethodType(_parse, request)  # type: ignore[method-assign]
        read_whole(request)
        return protected(request, *args, **kwargs)

    return wrapper

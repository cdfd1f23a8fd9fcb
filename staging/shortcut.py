"""The short way to an upload's address: no session, no routing, no page's headers.

An address below /tus/ is a capability, so most of what the other middleware does is of no use to
it, and it is asked for thousands of times. What fails here becomes a page of portal.base.failures
like everywhere else.
"""

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from staging.tus import tus_upload

ADDRESS = re.compile(r"/tus/([^/]+)/([^/]+)")


class UploadShortcut:
    """Answers requests for one upload before the middleware that follows sees them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        match = ADDRESS.fullmatch(request.path_info)
        if match is None:
            return self.get_response(request)
        response = tus_upload(request, *match.groups())
        response["X-Content-Type-Options"] = "nosniff"
        if isinstance(response, HttpResponse):
            response["Content-Length"] = str(len(response.content))
        return response

"""/healthz says that this process lives; /readyz says whether the installation can do its work."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.pages import parts


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Touches nothing outside this process: a database outage must not restart the portal."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when every part can do its work, else 503; the body says which part cannot, and why."""
    found = parts.all_parts()
    ready = all(part.ok for part in found.values())
    body = {"ready": ready, "parts": {name: part.as_json() for name, part in found.items()}}
    return JsonResponse(body, status=200 if ready else 503)

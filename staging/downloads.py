"""Downloads: one file with ranges, or a folder as a streamed zip. Nothing here is ever trusted
to be shown: every answer is an attachment, not sniffed, in a sandbox."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header, quote_etag
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from portal.base.errors import NotFound
from portal.base.ranges import RangeNotSatisfiable, ranged
from staging import services
from staging.access import my_dataset
from staging.models import File

SANDBOX = "sandbox; default-src 'none'"


@login_required
@require_safe
def dataset_file(request: HttpRequest, code: str, path: str) -> HttpResponseBase:
    """The bytes of one file; `Range: bytes=a-b`, `a-` and `-n` are honored."""
    dataset = my_dataset(request, code)
    file = dataset.files.select_related("blob").filter(path=path, blob__isnull=False).first()
    if file is None:
        raise NotFound("There is no such file here, or its bytes are gone.")
    return serve(request, file)


def serve(request: HttpRequest, file: File) -> HttpResponseBase:
    """An answer to GET or HEAD with a file's bytes."""
    etag = quote_etag(file.digest)
    same = request.headers.get("If-Range", etag) == etag
    wanted = request.headers.get("Range", "") if same else ""
    try:
        response = ranged(
            wanted, file.size, services.reader_of(file), head=request.method == "HEAD"
        )
    except RangeNotSatisfiable:
        refusal = HttpResponse(status=416)
        refusal["Content-Range"] = f"bytes */{file.size}"
        return harmless(refusal, "")
    response["ETag"] = etag
    return harmless(response, file.path.rpartition("/")[2])


def harmless(response: HttpResponseBase, name: str) -> HttpResponseBase:
    """Headers that keep a browser from running what a job or a stranger wrote."""
    response["Content-Type"] = "application/octet-stream"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = SANDBOX
    response["Cache-Control"] = "private, no-cache"
    if name:
        response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    return response


@login_required
@require_safe
def dataset_zip(request: HttpRequest, code: str) -> HttpResponseBase:
    """All files, or those below `?folder=`, as a zip that is made while it is sent."""
    dataset = my_dataset(request, code)
    folder = request.GET.get("folder", "").strip("/")
    rows = dataset.files.filter(blob__isnull=False).select_related("blob")
    prefix = f"{folder}/" if folder else ""
    files = [
        file
        for file in rows.defer("blob__chunk_digests").order_by("path")
        if file.path.startswith(prefix)
    ]
    if not files:
        raise NotFound("There is no file here to download.")
    pieces = () if request.method == "HEAD" else services.zip_of(files)
    name = slugify(f"{dataset.name} {folder.rpartition('/')[2]}") or dataset.code
    return harmless(StreamingHttpResponse(pieces), f"{name}.zip")

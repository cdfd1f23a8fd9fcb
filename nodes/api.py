"""The agent's HTTP interface; docs/agent-protocol.md is its description.

Every request about a lease names it and carries its token. Views check who asks and what the body
is, call one service, and answer JSON; errors become JSON in DomainErrorMiddleware.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import structlog
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from jobs import logs
from nodes import fleet, polls, returns
from nodes.errors import LeaseInDoubt, StaleLease
from nodes.manifest import file_page, lease_file
from nodes.models import Lease, Node
from nodes.specs import lease_spec
from nodes.states import LeaseState
from portal.base.bodies import BadBody, checked_json, whole_body
from portal.base.crypto import hash_token
from portal.base.errors import DomainError, NotFound, TooLarge
from portal.base.ranges import ranged
from staging import services as staging

SCHEMAS = Path(__file__).parent / "schemas"
MOST_LOG_BYTES = 2**20  # in one request

type View = Callable[..., HttpResponseBase]


class UnknownCredential(DomainError):
    """No node has this credential."""

    code = "unknown_credential"
    status = 401


class Revoked(DomainError):
    """An operator ended this node's right to speak."""

    code = "revoked"
    status = 401


class UnknownLease(NotFound):
    """This node has no such lease."""

    code = "unknown_lease"


def node_of(request: HttpRequest) -> Node:
    """The node whose credential the request carries. Raises UnknownCredential or Revoked."""
    scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not credential.strip().isascii():
        raise UnknownCredential("This address needs a node's credential.")
    node = Node.objects.filter(credential_hash=hash_token(credential.strip())).first()
    if node is None:
        raise UnknownCredential("No node has this credential.")
    if node.revoked_at is not None:
        raise Revoked("This node's credential was revoked by an operator.")
    structlog.contextvars.bind_contextvars(node=node.name)
    return node


def agent_view(*methods: str) -> Callable[[View], View]:
    """A view for agents: no CSRF cookie, these methods only, the node as second argument."""

    def decorate(view: View) -> View:
        @csrf_exempt
        @require_http_methods(list(methods))
        @wraps(view)
        def inner(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            return view(request, node_of(request), *args, **kwargs)

        return inner

    return decorate


def lease_view(*methods: str, after_release: bool = False) -> Callable[[View], View]:
    """A view about one lease, fenced by its token; the lease is the second argument.

    `after_release` admits a released lease too: its output may still be on its way.
    """

    def decorate(view: View) -> View:
        @agent_view(*methods)
        @wraps(view)
        def inner(request: HttpRequest, node: Node, code: str, **rest: object) -> HttpResponseBase:
            lease = (
                Lease.objects.select_related("node", "shard__job__output", "shard__job__team")
                .filter(code=code, node=node)
                .first()
            )
            if lease is None:
                raise UnknownLease("This node has no such lease.")
            if lease.token != request.headers.get("X-Lease-Token", ""):
                raise StaleLease("Another attempt has this piece.")
            if lease.in_doubt:
                raise LeaseInDoubt("The node was silent for too long; its next poll decides.")
            allowed = LeaseState.RELEASED if after_release else ""
            if lease.ended_at is not None and lease.state != allowed:
                raise StaleLease(f"This lease is {lease.state}.")
            structlog.contextvars.bind_contextvars(lease=lease.code, job=lease.shard.job.code)
            return view(request, lease, **rest)

        return inner

    return decorate


@csrf_exempt
@require_http_methods(["POST"])
def enrol(request: HttpRequest) -> JsonResponse:
    body = checked_json(request, SCHEMAS / "enrol.json", most_bytes=2**16)
    node, credential = fleet.enrol(token=body["token"], agent_version=body.get("agent_version", ""))
    answer = {
        "node": node.code,
        "name": node.name,
        "credential": credential,
        "epoch": fleet.installation().epoch,
    }
    return JsonResponse(answer, status=201)


@agent_view("POST")
def poll(request: HttpRequest, node: Node) -> JsonResponse:
    body = checked_json(request, SCHEMAS / "poll.json")
    return JsonResponse(polls.take_poll(node=node, body=body))


@lease_view("GET")
def spec(request: HttpRequest, lease: Lease) -> JsonResponse:
    return JsonResponse(lease_spec(lease))


@lease_view("GET")
def files(request: HttpRequest, lease: Lease) -> JsonResponse:
    page, following = file_page(lease, request.GET.get("after", ""))
    return JsonResponse({"files": [vars(file) for file in page], "next": following})


@lease_view("GET")
def file_bytes(request: HttpRequest, lease: Lease, number: int) -> HttpResponseBase:
    file = lease_file(lease, number)
    if file is None:
        raise NotFound("This lease reads no such file.")
    return ranged(request.headers.get("Range", ""), file.size, staging.reader_of(file))


@lease_view("POST", after_release=True)
def log(request: HttpRequest, lease: Lease) -> JsonResponse:
    offset = _number(request.GET.get("offset", ""), "offset")
    too_large = f"Send at most {MOST_LOG_BYTES} bytes of log at a time."
    if _number(request.headers.get("Content-Length") or "0", "Content-Length") > MOST_LOG_BYTES:
        raise TooLarge(too_large)
    # The rest of the log may arrive after the release; the report of it said how long it is.
    ends_at = lease.log_bytes or 0 if lease.state == LeaseState.RELEASED else None
    following = logs.append_log(lease.code, offset, whole_body(request, too_large), ends_at=ends_at)
    return JsonResponse({"offset": following})


@lease_view("POST", after_release=True)
def output(request: HttpRequest, lease: Lease) -> JsonResponse:
    body = checked_json(request, SCHEMAS / "output.json", most_bytes=16 * 2**20)
    return JsonResponse({"files": returns.declare_output(lease=lease, files=body["files"])})


@lease_view("POST", after_release=True)
def output_complete(request: HttpRequest, lease: Lease) -> HttpResponse:
    body = checked_json(request, SCHEMAS / "complete.json", most_bytes=2**16)
    returns.complete_output(
        lease=lease,
        files=body["files"],
        byte_count=body["bytes"],
        manifest_digest=body["manifest_digest"],
    )
    return JsonResponse({"verified": True})


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadBody(f"{name} must be a whole number.")
    return int(text)


def not_here(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Any other address below /agent/: JSON, so that a program never gets a page."""
    return JsonResponse({"error": "not_found", "message": "There is no such address."}, status=404)

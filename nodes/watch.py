"""What time alone decides: silence, nodes that left before the start, releases without evidence."""

from datetime import datetime, timedelta
from http.client import HTTPException
from ssl import SSLCertVerificationError
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F, Q

from jobs import services as jobs
from jobs.states import ShardState
from nodes import doubt, fleet, leases
from nodes.models import Installation, Lease, Node
from nodes.release import release
from nodes.report import Report
from nodes.states import BEFORE_GRANT, HOLDING, METERED, LeaseReason, LeaseState, NodeState
from portal.base.clock import db_now
from portal.base.errors import DomainError, Stale
from portal.base.moves import move

log = structlog.get_logger(__name__)

QUIET_AFTER = timedelta(seconds=10)  # then it is asked whether the portal itself is away
OFFLINE_AFTER = timedelta(seconds=45)  # longer than an agent's longest pause between two tries
PORTAL_GAP = timedelta(seconds=60)  # no look for so long means that the portal itself was away
ANSWER_S = 5  # how long the portal may take to answer its own worker
RELEASE_LIMIT = timedelta(minutes=5)  # for a node in contact to prove that all is removed


def watch() -> None:
    """One look. May run twice, and at the same time."""
    now = db_now()
    since = _silence_counts_from(now)
    _mark_offline(now, since)
    for lease in _withdrawn():
        _try(_void, lease)
    for lease in Lease.objects.filter(state__in=HOLDING).select_related("node", "shard__job"):
        last = max(lease.node.last_seen_at or since, since)
        if now - last > settings.SILENCE_LIMIT:
            _try(_lose, lease)
    for lease in Lease.objects.awaited().select_related("node", "shard__job"):
        last = max(lease.node.last_seen_at or since, since)
        if now - last > settings.SILENCE_LIMIT:
            _try(_give_up_output, lease)
    # A node that is silent, or that could not speak while the portal was away, proves nothing yet.
    if since < now - RELEASE_LIMIT:
        for lease in Lease.objects.filter(
            state=LeaseState.RELEASING,
            releasing_at__lt=now - RELEASE_LIMIT,
            node__last_seen_at__gte=now - OFFLINE_AFTER,
        ).select_related("node", "shard__job"):
            _try(_release_without_evidence, lease)


def _silence_counts_from(now: datetime) -> datetime:
    """The portal's own down time is nobody's silence."""
    row = fleet.installation()
    unwatched = row.watched_at is None or now - row.watched_at > PORTAL_GAP
    away = unwatched or (_somebody_is_quiet(now) and not portal_answers())
    since = now if away or row.up_since is None else row.up_since
    Installation.objects.filter(pk=row.pk).update(watched_at=now, up_since=since)
    return since


def _somebody_is_quiet(now: datetime) -> bool:
    matters = Q(state=NodeState.ONLINE) | Q(leases__state__in=HOLDING)
    matters |= Q(leases__in=Lease.objects.awaited())
    return Node.objects.filter(matters, last_seen_at__lt=now - QUIET_AFTER).exists()


def portal_answers() -> bool:
    """Whether agents can reach the portal: this worker runs on without it, and asks as they do.

    Every answer will do but that of a server, or of a proxy before it, that cannot now (5xx).
    """
    try:
        address = f"{settings.PUBLIC_URL}/healthz"
        build_opener(ProxyHandler({})).open(address, timeout=ANSWER_S).close()
    except HTTPError as error:
        return error.code < 500
    except (OSError, HTTPException) as error:
        if isinstance(getattr(error, "reason", None), SSLCertVerificationError):
            return True  # it is there; that its certificate is unknown here is another matter
        log.warning("portal_does_not_answer", address=settings.PUBLIC_URL, why=str(error))
        return False
    return True


def _mark_offline(now: datetime, since: datetime) -> None:
    for node in Node.objects.filter(state=NodeState.ONLINE):
        if now - max(node.last_seen_at or since, since) > OFFLINE_AFTER:
            _try(_offline, node)


def _offline(node: Node) -> None:
    with transaction.atomic():
        _still_silent(node)
        move(node, NodeState.OFFLINE, "offline", at=db_now(), actor="system")


def _still_silent(node: Node) -> None:
    """Write the row that was judged: a poll that comes now waits. Raises Stale when one came."""
    silent = Node.objects.filter(pk=node.pk, last_seen_at=node.last_seen_at)
    if not silent.update(version=F("version") + 1):
        raise Stale("The node has spoken meanwhile.")


def _withdrawn() -> list[Lease]:
    """Leases without compute whose node takes no work now, or whose shard no longer waits."""
    begun = Q(pk__in=Lease.objects.behind().values("pk"))
    gone = Q(shard__state=ShardState.ENDED) | ~Q(node__in=Node.objects.taking_work()) & ~begun
    return list(
        Lease.objects.filter(gone, state__in=BEFORE_GRANT).select_related("node", "shard__job")
    )


def _void(lease: Lease) -> None:
    ended = lease.shard.state == ShardState.ENDED
    reason = LeaseReason.CANCELLED if ended else LeaseReason.NODE_LEFT
    leases.void(lease=lease, reason=reason, at=db_now())


def _give_up_output(lease: Lease) -> None:
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)
        _still_silent(lease.node)
        doubt.give_up_output(lease=lease, reason=LeaseReason.SILENT, at=db_now())


def _lose(lease: Lease) -> None:
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)
        _still_silent(lease.node)
        leases.lose(lease=lease, at=db_now())


def _release_without_evidence(lease: Lease) -> None:
    """A node in contact that cannot remove what is left: stop the meter, take the node off."""
    with transaction.atomic():
        at = db_now()
        report = Report(
            phase="released",
            ages={},
            output=lease.output_state,
            evidence={"processes": "left", "scratch": "left", "gpus": {}},
        )
        if lease.state in METERED:
            # What came of it after the node's last word is not known: it is not metered.
            said = max(lease.releasing_at or at, lease.last_report_at or at)
            reason = LeaseReason.NO_EVIDENCE
            release(lease=lease, report=report, released_at=min(at, said), at=at, reason=reason)


def _try(act, row: Lease | Node) -> None:
    try:
        act(row)
    except DomainError as error:
        log.info("watch_outdated", act=act.__name__, why=str(error))
    except DatabaseError:
        log.exception("watch_failed", act=act.__name__, row=str(row))

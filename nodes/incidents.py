"""Leases that a node has and this portal does not know, as after the restore of a backup.

They are never stopped because of that. Each is an incident, opened and closed by what the node
lists; an operator adopts the attempt, or ends it. Until then its GPUs are granted to nobody.
"""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import F

from jobs import services as jobs
from jobs.models import Shard
from jobs.states import ShardState
from nodes import doubt, fleet, keep, leases
from nodes.models import Gpu, Incident, Installation, Lease, LeaseGpu, Node
from nodes.report import PHASES, Report
from nodes.results import drop_output
from nodes.scheduler import disk_of
from nodes.states import BEFORE_GRANT, IncidentCause, IncidentState, LeaseReason, LeaseState
from portal.base.clock import db_now
from portal.base.errors import Conflict
from portal.base.moves import move

log = structlog.get_logger(__name__)


def raise_epoch() -> int:
    """After a restore: no token that is given out from now on was ever given out before.

    Silence counts from the next look on, not from the time of the backup.
    """
    with transaction.atomic():
        Installation.objects.get_or_create(id=1)
        Installation.objects.filter(id=1).update(epoch=F("epoch") + 1, watched_at=None)
        return Installation.objects.get(id=1).epoch


def cause_of(lease: Lease | None, item: dict) -> str:
    """Why a reported lease is an incident; empty where it is none."""
    if lease is None:
        return IncidentCause.UNKNOWN
    begun = PHASES.index(item["phase"]) >= PHASES.index("allocated")
    behind = begun and lease.token == item["token"] and lease.state in BEFORE_GRANT
    return IncidentCause.BEHIND if behind else ""


def seen(*, node: Node, item: dict, cause: str, at: datetime) -> str:
    """Open the incident of a reported lease, or bring it up to date; what the node should do."""
    facts = {
        "phase": item["phase"],
        "job": item.get("job") or "",
        "kind": item.get("kind") or "",
        "index": item.get("index"),
        "gpus": item.get("gpus"),
        "report": item,
        "last_seen_at": at,
        "gone_at": None,
    }
    with transaction.atomic():
        incident, opened = Incident.objects.get_or_create(
            node=node,
            lease=item["lease"],
            token=item["token"],
            defaults=facts | {"cause": cause, "first_seen_at": at},
        )
        if not opened:
            Incident.objects.filter(pk=incident.pk).update(**facts)
            again = Incident.objects.filter(pk=incident.pk, state=IncidentState.GONE)
            opened = bool(again.update(state=IncidentState.OPEN))
        if opened:
            _note(incident, "incident_opened", at=at, actor=f"node {node.name}")
            log.warning("incident_opened", node=node.name, lease=incident.lease, cause=cause)
    return "drop" if incident.state == IncidentState.ENDED else "keep"


def unlisted(*, node: Node, reported: set[str], at: datetime) -> None:
    """The node has these no more: their GPUs are free again."""
    rows = Incident.objects.filter(node=node, gone_at=None).exclude(lease__in=reported)
    for incident in rows:
        with transaction.atomic():
            if not rows.filter(pk=incident.pk).update(gone_at=at):
                continue
            still_open = Incident.objects.filter(pk=incident.pk, state=IncidentState.OPEN)
            if still_open.update(state=IncidentState.GONE):
                _note(incident, "incident_gone", at=at, actor=f"node {node.name}")


def _note(incident: Incident, verb: str, *, at: datetime, actor: str, reason: str = "") -> None:
    detail = {"reason": reason[:300], "lease": incident.lease, "job": incident.job}
    incident.node.note(verb, at=at, actor=actor, detail=detail)


def _decide(incident: Incident, state: str, at: datetime, actor: str, reason: str) -> None:
    """One operator decides, once. Raises Conflict."""
    decided = Incident.objects.filter(pk=incident.pk, state=IncidentState.OPEN).update(
        state=state, decided_by=actor[:254], decided_at=at, reason=reason[:300]
    )
    if not decided:
        raise Conflict("This incident is no longer open.")
    _note(incident, f"incident_{state}", at=at, actor=actor, reason=reason)


def end(*, incident: Incident, actor: str, reason: str) -> None:
    """The node is told to drop the attempt; its piece is tried anew."""
    with transaction.atomic():
        at = db_now()
        lease = Lease.objects.filter(code=incident.lease, node=incident.node_id).first()
        if lease is not None:
            jobs.claim(job=lease.shard.job)
            lease.refresh_from_db()
        _decide(incident, IncidentState.ENDED, at, actor, reason)
        if lease is not None and lease.state in BEFORE_GRANT:
            leases.void(lease=lease, reason=LeaseReason.ENDED_BY_OPERATOR, at=at)
            drop_output(lease)


def adopt(*, incident: Incident, actor: str, reason: str) -> None:
    """The attempt becomes its piece's own, if it is further on than the one that the piece has.

    It is metered from its own begin, as far as the portal can know it. Raises Conflict, saying why.
    """
    with transaction.atomic():
        at = db_now()
        shard = _shard_of(incident)
        jobs.claim(job=shard.job)
        others = keep.claim_shard(shard, besides=incident.lease)
        incident.refresh_from_db()
        _decide(incident, IncidentState.ADOPTED, at, actor, reason)
        lease = Lease.objects.filter(code=incident.lease, node=incident.node_id).first()
        _may_be_adopted(incident, shard, lease, others)
        keep.lock_nodes([incident.node_id, *(row.node_id for row in others)])
        for row in others:
            leases.fence(lease=row, at=at)
        adopted = _bring_along(incident, shard, lease, at, actor)
        _take_gpus(incident, adopted, at)
        doubt.drop_outputs(shard=shard)
        Shard.objects.filter(pk=shard.pk).update(attempts=F("attempts") + 1)
        shard.refresh_from_db()
        jobs.adopt_shard(shard=shard, at=at, actor=actor)


def other_attempts(incident: Incident) -> list[Lease]:
    """Attempts of the same piece that this portal holds alive, for the page."""
    piece = {"job__code": incident.job, "kind": incident.kind, "index": incident.index or 0}
    rows = Lease.objects.live().filter(shard__in=Shard.objects.filter(**piece))
    return list(rows.exclude(code=incident.lease).select_related("node"))


def _shard_of(incident: Incident) -> Shard:
    found = Shard.objects.filter(
        job__code=incident.job, kind=incident.kind, index=incident.index or 0
    )
    shard = found.select_related("job").first() if incident.job else None
    if shard is None:
        raise Conflict("This portal has no such job or piece. The attempt can only be ended.")
    return shard


def _may_be_adopted(
    incident: Incident, shard: Shard, lease: Lease | None, others: list[Lease]
) -> None:
    if shard.state == ShardState.ENDED or shard.job.cancel_asked_at is not None:
        raise Conflict("Its piece has ended or is being cancelled. End the attempt.")
    if lease is not None and lease.state not in BEFORE_GRANT:
        raise Conflict(f"The portal knows this attempt: it is {lease.state}.")
    if lease is not None and lease.shard_id != shard.pk:
        raise Conflict("The portal knows this attempt as one of another piece. End it.")
    report = Report.of(incident.report)
    verified = lease is not None and lease.output_verified_at is not None
    mine = keep.rank_of_report(report, verified=verified)
    if mine < keep.Rank.RUNNING:
        raise Conflict("It has not begun, or ended by a fault of its node. End the attempt.")
    began = tuple(int(part) for part in incident.token.split("."))
    if began[0] > fleet.installation().epoch:
        raise Conflict("This portal has given out no such token yet. End the attempt.")
    if not keep.further_on(mine, began, others[0] if others else None):
        raise Conflict(f"Attempt {others[0].code} of its piece is further on. End this one.")


def _began_at(incident: Incident, not_before: datetime) -> datetime:
    """When the node allocated it, by its age; when it was first seen where that is not known."""
    age = (incident.report.get("ages") or {}).get("allocated")
    began = incident.first_seen_at
    if age is not None:
        began = incident.last_seen_at - timedelta(milliseconds=age)
    return max(not_before, began)


def _bring_along(
    incident: Incident, shard: Shard, lease: Lease | None, at: datetime, actor: str
) -> Lease:
    """Its row as if the portal had granted it; the node's next report moves it on from there."""
    job = shard.job
    made = lease is None
    if lease is None:
        epoch, number = incident.token.split(".")
        start = _began_at(incident, shard.queued_at)
        lease = leases.new_lease(
            shard=shard,
            node=incident.node,
            epoch=int(epoch),
            number=int(number),
            disk_bytes=disk_of(shard),
            at=start,
            code=incident.lease,
        )
    known = lease.ready_at or lease.placed_at
    start = _began_at(incident, known)
    times = {"ready_at": known, "granted_at": start, "allocated_at": start}
    Node.objects.filter(pk=incident.node_id).update(
        reserved_disk_bytes=F("reserved_disk_bytes") + (lease.disk_bytes if made else 0),
        reserved_cpus=F("reserved_cpus") + job.cpus,
        reserved_memory_bytes=F("reserved_memory_bytes") + job.memory_bytes,
        version=F("version") + 1,
    )
    move(
        lease,
        LeaseState.ALLOCATED,
        "adopt",
        at=at,
        actor=actor,
        changes=times | {"last_report_at": incident.last_seen_at, "cleared_gpus": None},
    )
    return lease


def _take_gpus(incident: Incident, lease: Lease, at: datetime) -> None:
    """Exactly those that the node says it gave. Raises Conflict where one has another holder."""
    if incident.gpus is None and lease.gpu_count:
        raise Conflict("Its agent is too old to say which GPUs it uses. Upgrade it, or end this.")
    named = incident.gpus or []
    gpus = list(Gpu.objects.filter(node=incident.node_id, uuid__in=named))
    if len(gpus) != len(named) or len(named) != lease.gpu_count:
        raise Conflict(
            f"Its piece needs {lease.gpu_count} GPUs; the node names {len(named)} for it, of which "
            f"it has {len(gpus)}. End the attempt."
        )
    for gpu in gpus:
        if LeaseGpu.objects.filter(gpu=gpu, until=None).exists():
            raise Conflict(f"{gpu} is held by another attempt.")
        LeaseGpu.objects.create(lease=lease, gpu=gpu, since=lease.granted_at or at)

"""What operators and agents do to nodes: join, drain, resume, quarantine, retire, revoke."""

from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F

from nodes import doubt
from nodes.models import Gpu, Incident, Installation, Lease, Node
from nodes.states import HOLDING, NodeState
from portal.base.clock import db_now
from portal.base.crypto import hash_token, new_token
from portal.base.errors import Conflict, DomainError
from portal.base.moves import move


class EnrolmentRefused(DomainError):
    """The one-time token is unknown, used or expired."""

    code = "enrolment_refused"
    status = 401


def installation() -> Installation:
    return Installation.objects.get_or_create(id=1)[0]


def create_node(*, name: str, actor: str, simulated: bool = False) -> tuple[Node, str]:
    """A pending node and the one-time token that its agent enrols with."""
    with transaction.atomic():
        at = db_now()
        try:
            with transaction.atomic():
                node = Node.objects.create(name=name, simulated=simulated)
        except IntegrityError as error:
            raise Conflict(f"There is a node named {name} already.") from error
        node.note("created", at=at, actor=actor)
        return node, _issue(node, at, actor)


def new_enrolment_token(*, node: Node, actor: str) -> str:
    """A fresh one-time token; the node's present credential works until it is used."""
    with transaction.atomic():
        if node.state == NodeState.RETIRED:
            raise Conflict("A retired node cannot enrol again. Make a new one.")
        return _issue(node, db_now(), actor)


def _issue(node: Node, at: datetime, actor: str) -> str:
    token = new_token()
    node.enrol_token_hash = hash_token(token)
    node.enrol_expires_at = at + settings.ENROLMENT_LIFETIME
    node.save(update_fields=["enrol_token_hash", "enrol_expires_at"])
    node.note("token_issued", at=at, actor=actor)
    return token


def enrol(*, token: str, agent_version: str) -> tuple[Node, str]:
    """Use up a one-time token. Returns the node and its new credential, shown only here."""
    with transaction.atomic():
        at = db_now()
        node = Node.objects.filter(
            enrol_token_hash=hash_token(token), enrol_expires_at__gt=at
        ).first()
        if node is None or node.state == NodeState.RETIRED:
            raise EnrolmentRefused("This enrolment token is unknown, used or expired.")
        credential = new_token()
        used = Node.objects.filter(pk=node.pk, enrol_token_hash=node.enrol_token_hash).update(
            enrol_token_hash="",
            enrol_expires_at=None,
            credential_hash=hash_token(credential),
            revoked_at=None,
            instance="",
            agent_version=agent_version[:32],
        )
        if not used:
            raise EnrolmentRefused("This enrolment token is unknown, used or expired.")
        node.note("enrolled", at=at, actor=f"node {node.name}")
        return node, credential


def drain(*, node: Node, actor: str, reason: str = "") -> None:
    """Finish what it has, take nothing new."""
    with transaction.atomic():
        at = db_now()
        move(node, NodeState.DRAINING, "drain", at=at, actor=actor, **_because(reason))
        settle_drain(node=node, at=at)


def settle_drain(*, node: Node, at: datetime) -> None:
    """draining -> drained once no lease holds compute there, and no output waits there."""
    busy = Lease.objects.filter(node=node, state__in=HOLDING).exists()
    busy |= Lease.objects.awaited().filter(node=node).exists()
    busy |= Incident.objects.blocking().filter(node=node).exists()
    if node.state == NodeState.DRAINING and not busy:
        move(node, NodeState.DRAINED, "drained", at=at, actor="system")


def resume(*, node: Node, actor: str, reason: str = "") -> None:
    """Take new leases again; an operator also ends a quarantine, its GPUs' too, with this.

    What such a GPU is held by is free with the node's next poll that does not list it.
    """
    with transaction.atomic():
        if node.state == NodeState.PENDING:
            raise Conflict("Its agent has not enrolled yet; only that brings it online.")
        move(node, NodeState.ONLINE, "resume", at=db_now(), actor=actor, **_because(reason))
        Gpu.objects.filter(node=node, quarantined=True).update(quarantined=False, reason="")


def quarantine(*, node: Node, actor: str, reason: str = "", at: datetime | None = None) -> None:
    """Off new work until an operator has looked; what runs there goes on."""
    with transaction.atomic():
        at = at or db_now()
        if node.state == NodeState.QUARANTINED:
            return
        move(node, NodeState.QUARANTINED, "quarantine", at=at, actor=actor, **_because(reason))


def revoke(*, node: Node, actor: str, reason: str = "") -> None:
    """Make its credential worthless. The agent stops its work at its next poll and says why."""
    with transaction.atomic():
        at = db_now()
        Node.objects.filter(pk=node.pk).update(revoked_at=at, enrol_token_hash="")
        node.revoked_at = at
        node.note("revoke", at=at, actor=actor, detail={"reason": reason[:300]})
    doubt.node_left(node=node)


def retire(*, node: Node, actor: str, reason: str = "") -> None:
    """Keep it as history only; refused while a lease holds compute, or an output waits, there.

    The output on a node that is offline is given up by this: its piece is tried elsewhere.
    """
    with transaction.atomic():
        # Written before it is judged: a grant that comes now waits, and then finds it retired.
        Node.objects.filter(pk=node.pk).update(version=F("version") + 1)
        if Lease.objects.filter(node=node, state__in=HOLDING).exists():
            raise Conflict("This node still holds compute for a job. Drain it first.")
        waits = Lease.objects.awaited().filter(node=node).exists()
        if waits and node.state != NodeState.OFFLINE:
            raise Conflict("An output is still on its way from this node. Wait until it is here.")
        if Incident.objects.open().filter(node=node).exists():
            raise Conflict("This node has open incidents. Adopt or end them first.")
        move(node, NodeState.RETIRED, "retire", at=db_now(), actor=actor, **_because(reason))
        Node.objects.filter(pk=node.pk).update(credential_hash="", enrol_token_hash="")
    doubt.node_left(node=node)


def _because(reason: str) -> dict:
    return {"detail": {"reason": reason[:300]}, "changes": {"reason": reason[:300]}}

"""One poll of an agent: take its facts, bring its leases along, answer what it should have.

The answer is the whole truth about the node's leases, so nothing depends on an earlier message.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Q

from jobs.models import Job
from jobs.signals import shard_queued
from nodes import doubt, fleet, incidents
from nodes.leases import declare_forgotten
from nodes.models import Gpu, Lease, LeaseGpu, Node
from nodes.progress import apply_report
from nodes.report import Report
from nodes.states import (
    BEFORE_GRANT,
    HOLDING,
    METERED,
    TERMINAL,
    LeaseReason,
    LeaseState,
    NodeState,
)
from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError
from portal.base.moves import move

log = structlog.get_logger(__name__)

SECOND_AGENT_AFTER = timedelta(seconds=15)
REMEMBERED_INSTANCES = 20
# A lease that came to one of these gives a scheduling pass something to do.
PASS_AFTER = TERMINAL | {LeaseState.READY}


class SecondAgent(Conflict):
    """Another agent process speaks for this node."""

    code = "second_agent"


class StalePoll(Conflict):
    """A later poll of this agent process was here already: what this one lacks proves nothing."""

    code = "stale_poll"


def take_poll(*, node: Node, body: dict) -> dict:
    """Apply a poll that its schema has accepted; returns the answer's JSON.

    Raises SecondAgent when a newer agent process has taken over, or another machine uses the same
    credential while the first one is alive; StalePoll for one that a later poll has overtaken.
    """
    with transaction.atomic():
        # Two agents that claim one node do so one after the other: PostgreSQL locks the row, on
        # SQLite the IMMEDIATE transaction does the same.
        node = Node.objects.select_for_update().get(pk=node.pk)
        at = db_now()
        _claim(node, body, at)
        _take_facts(node, body, at)
        _take_gpus(node, body["facts"])
        _come_online(node, at)
    reported = {item["lease"]: item for item in body["leases"]}
    unsure = set(Lease.objects.filter(node=node, in_doubt=True).values_list("code", flat=True))
    # What is there already comes before what is granted now: it may be on the same GPUs.
    turn = sorted(reported.values(), key=lambda i: (i["lease"] not in unsure, _may_begin(i)))
    answers = [_one_lease(node, item) for item in turn]
    answers += _unreported(node, set(reported))
    with transaction.atomic():
        at = db_now()
        _free_what_is_gone(node, set(reported), at)
        incidents.unlisted(node=node, reported=set(reported), at=at)
        _check_latest(node)
        node.refresh_from_db()  # a release may have put it into quarantine
        fleet.settle_drain(node=node, at=at)
    return {
        "epoch": fleet.installation().epoch,
        "next_poll_ms": int(settings.AGENT_POLL.total_seconds() * 1000),
        "leases": answers,
    }


def _may_begin(item: dict) -> bool:
    return item["phase"] in ("fetching", "ready")


def _claim(node: Node, body: dict, at: datetime) -> None:
    """One live agent per node: a restarted one takes over at once, a copied one is refused."""
    instance, boot = body["instance"], body["boot"]
    if node.instance == instance:
        if body["sequence"] <= node.sequence:
            raise StalePoll("A later poll of this agent was here already.")
        return
    superseded = node.facts.get("superseded", [])
    seen = node.last_seen_at
    elsewhere = node.boot not in ("", boot) and seen and at - seen < SECOND_AGENT_AFTER
    if instance in superseded or (node.instance and elsewhere):
        raise SecondAgent("Another agent process speaks for this node.")
    if node.instance:
        superseded = [*superseded, node.instance][-REMEMBERED_INSTANCES:]
    node.facts["superseded"] = superseded
    node.note("agent_started", at=at, actor=f"node {node.name}", detail={"boot": boot})


def _check_latest(node: Node) -> None:
    """What is not listed is gone only by the latest word of the node: a poll may be held up on its
    way, or in here, while later ones bring leases along. Raises StalePoll.

    Call it last in the transaction that concludes so: the row is locked until that commits.
    """
    mine = Node.objects.select_for_update().filter(
        pk=node.pk, instance=node.instance, sequence=node.sequence
    )
    if not mine.exists():
        raise StalePoll("A later poll of this agent overtook this one.")


def _take_facts(node: Node, body: dict, at: datetime) -> None:
    facts = dict(body["facts"])
    gpus = facts.pop("gpus")
    facts["superseded"] = node.facts.get("superseded", [])
    node.instance, node.sequence, node.boot = body["instance"], body["sequence"], body["boot"]
    node.agent_version = body.get("agent_version", "")
    node.last_seen_at, node.facts = at, facts
    node.isolation = facts["isolation"]
    node.simulated = any(gpu.get("simulated") for gpu in gpus)
    node.cpus, node.memory_bytes = facts["cpus"], facts["memory_bytes"]
    node.disk_bytes = facts["disk_bytes"]
    node.save(
        update_fields=[
            "instance",
            "sequence",
            "boot",
            "agent_version",
            "last_seen_at",
            "facts",
            "isolation",
            "simulated",
            "cpus",
            "memory_bytes",
            "disk_bytes",
        ]
    )


def _take_gpus(node: Node, facts: dict) -> None:
    present = set()
    for item in facts["gpus"]:
        held = Gpu.objects.filter(uuid=item["uuid"]).exclude(node=node).first()
        if held is not None and held.node.state not in (NodeState.RETIRED, NodeState.OFFLINE):
            log.warning("gpu_claimed_twice", gpu=item["uuid"], node=node.name)
            continue
        processes = item.get("processes") or []
        usable = item["usable"] and not processes
        reason = item.get("reason", "") or _outside(processes)
        values = {
            "node": node,
            "index": item["index"],
            "model": item["model"],
            "memory_bytes": item["memory_bytes"],
            "simulated": item.get("simulated", False),
            "usable": usable,
            "present": True,
        }
        gpu, made = Gpu.objects.get_or_create(
            uuid=item["uuid"], defaults=values | {"reason": reason}
        )
        if not made:
            if not gpu.quarantined:
                values["reason"] = reason
            Gpu.objects.filter(pk=gpu.pk).update(**values)
        present.add(item["uuid"])
    gone = node.gpus.exclude(uuid__in=present)
    gone.update(present=False, usable=False)
    # The node knows why it sees none: the driver does not answer, or was changed under it.
    reason = facts.get("gpu_reason", "")[:300] or "No longer reported by the node."
    gone.filter(quarantined=False).update(reason=reason)


def _outside(processes: list[dict]) -> str:
    """A process of no lease makes a GPU unusable for new leases; nothing is quarantined."""
    if not processes:
        return ""
    first = processes[0]
    since = (first.get("since_ms") or 0) // 60000
    return (
        f"In use outside the portal by {first.get('user', 'somebody')} "
        f"(process {first.get('pid', '?')}, for {since} min)."
    )


def _come_online(node: Node, at: datetime) -> None:
    if node.state in (NodeState.PENDING, NodeState.OFFLINE):
        move(node, NodeState.ONLINE, "online", at=at, actor=f"node {node.name}")


def _one_lease(node: Node, item: dict) -> dict:
    """Apply one lease's report in a transaction of its own; one bad lease stops no other."""
    lease = (
        Lease.objects.select_related("node", "shard__job__output")
        .filter(code=item["lease"], node=node)
        .first()
    )
    cause = incidents.cause_of(lease, item)
    if lease is None or cause:
        wanted = incidents.seen(node=node, item=item, cause=cause, at=db_now())
        return {"lease": item["lease"], "token": item["token"], "wanted": wanted, "gpus": []}
    if lease.token != item["token"]:
        return {"lease": item["lease"], "token": item["token"], "wanted": "drop", "gpus": []}
    with structlog.contextvars.bound_contextvars(lease=lease.code, job=lease.shard.job.code):
        before = lease.state
        try:
            with transaction.atomic():
                apply_report(lease=lease, report=Report.of(item), at=db_now())
        except DomainError as error:
            log.warning("report_refused", why=str(error))
            lease.refresh_from_db()
        except DatabaseError:
            log.exception("report_failed")  # the next poll says the same again
            lease.refresh_from_db()
        if lease.state != before and lease.state in PASS_AFTER:
            shard_queued.send(Job, job=lease.shard.job)
    return answer_for(lease, item["phase"])


def answer_for(lease: Lease, phase: str) -> dict:
    """What the agent should do with a lease that it reported in `phase`."""
    lease.refresh_from_db()
    wanted, reason = _wanted(lease, phase)
    uuids: list[str] = []
    if wanted == "run":
        uuids = [row.gpu.uuid for row in lease.gpus.select_related("gpu").order_by("gpu__index")]
    return {
        "lease": lease.code,
        "token": lease.token,
        "wanted": wanted,
        "gpus": uuids,
        "reason": reason,
    }


def _wanted(lease: Lease, phase: str) -> tuple[str, str]:
    state = lease.state
    if lease.in_doubt:
        return "keep", ""  # its report could not be applied: the next one decides
    if state in (LeaseState.VOID, LeaseState.LOST):
        return "drop", lease.reason
    if state == LeaseState.RELEASED:
        awaited = Lease.objects.delivering().filter(pk=lease.pk).exists()
        return ("release", "") if awaited else ("forget", "")
    if lease.shard.job.cancel_asked_at is not None and state != LeaseState.RELEASING:
        return "stop", "cancelled"
    if state in BEFORE_GRANT:
        return "fetch", ""
    if state == LeaseState.GRANTED:
        late = db_now() - lease.granted_at > settings.GRANT_LIMIT  # type: ignore[operator]
        return ("stop", "not_acknowledged") if late and phase == "ready" else ("run", "")
    if state == LeaseState.RETURNING and lease.returning_at is not None:
        over = db_now() - lease.returning_at > lease.output_window
        return ("release", "output_window") if over else ("run", "")
    return ("release", "") if state == LeaseState.RELEASING else ("run", "")


def _unreported(node: Node, reported: set[str]) -> list[dict]:
    """Leases that the agent should have and did not list."""
    missing = (
        Lease.objects.live()
        .filter(node=node)
        .exclude(code__in=reported)
        .select_related("node", "shard__job__output")
    )
    answers = []
    for lease in missing:
        if lease.state in METERED:
            _settle(node, declare_forgotten, lease)
        elif lease.shard.job.cancel_asked_at is None:
            answers.append(
                {"lease": lease.code, "token": lease.token, "wanted": "fetch", "gpus": []}
            )
        elif lease.state in HOLDING:
            _settle(node, declare_forgotten, lease)
    _gone(node, reported)
    return answers


def _gone(node: Node, reported: set[str]) -> None:
    """What the node kept for leases that hold no compute here, and does not have any more."""
    rows = Lease.objects.filter(node=node).exclude(code__in=reported).select_related("shard__job")
    for lease in rows.filter(in_doubt=True):
        _settle(node, doubt.gone, lease)
    for lease in rows.filter(pk__in=Lease.objects.awaited()):
        _settle(node, _output_is_lost, lease)


def _output_is_lost(*, lease: Lease, at: datetime) -> None:
    doubt.give_up_output(lease=lease, reason=LeaseReason.OUTPUT_LOST, at=at)


def _settle(node: Node, verb: Callable[..., None], lease: Lease) -> None:
    """One lease that the node does not have; where another was first, the next poll sees it.

    Raises StalePoll.
    """
    try:
        with transaction.atomic():
            verb(lease=lease, at=db_now())
            _check_latest(node)
    except StalePoll:
        raise
    except DomainError as error:
        log.info("settled_elsewhere", lease=lease.code, why=str(error))
    except DatabaseError:
        log.exception("settling_failed", lease=lease.code)


def _free_what_is_gone(node: Node, reported: set[str], at: datetime) -> None:
    """An ended lease that the node no longer lists has no process and no folder there any more.

    GPUs that were found busy stay held until an operator ends their quarantine. A GPU that a
    retired node held, and that this node has now, is free when no process is seen on it.
    """
    moved = Q(lease__node__state=NodeState.RETIRED, gpu__node=node, gpu__usable=True)
    rows = LeaseGpu.objects.filter(
        Q(lease__node=node) | moved,
        lease__state__in=TERMINAL,
        until=None,
        gpu__quarantined=False,
    ).exclude(lease__code__in=reported)
    for row in rows:
        LeaseGpu.objects.filter(pk=row.pk, until=None).update(until=max(at, row.since))

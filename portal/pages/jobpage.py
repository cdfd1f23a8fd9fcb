"""Everything the job page shows, in a number of queries that does not grow with the pieces."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core.paginator import Page, Paginator
from django.db.models import Case, F, Prefetch, QuerySet, TextField, Value, When

from jobs import clearing
from jobs.models import Job, Shard
from jobs.states import JobState, Outcome, Reason, ShardState
from nodes.meter import counted, declared_cap, job_meter, slices
from nodes.models import Lease, Node, SchedulerReason
from nodes.states import LIVE, METERED, TERMINAL, LeaseState, NodeState
from portal.base.icons import look_of
from portal.pages import pieces
from portal.pages.history import history
from portal.pages.retention import Retention, retention
from portal.pages.steps import Step, current_step, steps
from portal.pages.timeline import timeline
from staging.models import Dataset, File

PIECES_PER_PAGE = 25
FILES_SHOWN = 12
EVENTS_SHOWN = 40
HISTORY_SHOWN = 12
SILENT_AFTER = timedelta(seconds=60)

METER_COLUMNS = [
    "shard_id", "node_id", "number", "state", "reason", "gpu_count", "time_limit",
    "output_window", "placed_at", "ready_at", "granted_at", "allocated_at", "running_at",
    "returning_at", "releasing_at", "released_at", "ended_at", "last_report_at",
    "output_verified_at", "output_state", "evidence", "fetched_bytes",
]  # fmt: skip

STEP_SENTENCES = {
    "staging": "The data is on its way to the store. Nothing is held and nothing is metered.",
    "waiting": "Waiting for compute. Nothing is held and nothing is metered.",
    "rent": "Compute is named for it; the work is about to start.",
    "run": "The work is running.",
    "output": "The output is on its way to the store.",
    "release": "The node removes what is left and proves it.",
}


@dataclass(frozen=True)
class Attempt:
    """A lease with its held time up to now, as a row of the pieces' table."""

    lease: Lease
    held_ms: int
    counted_ms: int
    uncounted: str


@dataclass(frozen=True)
class Piece:
    shard: Shard
    attempts: list[Attempt]


@dataclass(frozen=True)
class Stored:
    """A dataset of the job in the store, and what is said of its end."""

    role: str
    dataset: Dataset
    retention: Retention


@dataclass(frozen=True)
class Left:
    """What is left of a job on the nodes, from the evidence of its attempts."""

    released: int
    proved: int
    holding: int
    gpus_clear: int
    gpus_simulated: int
    gpus_busy: int
    gpus_not_checked: int
    scratch_wiped: int
    sealed: int
    cached_bytes: int


def with_parts(queryset: QuerySet[Job]) -> QuerySet[Job]:
    return queryset.select_related("team", "output", "code_dataset", "rerun_of")


def job_leases(job: Job) -> list[Lease]:
    """All attempts, with only the columns that times are derived from."""
    return list(Lease.objects.filter(shard__job=job).only(*METER_COLUMNS))


def page_context(job: Job, at: datetime, *, only: str = "", page: str | None = None) -> dict:
    """The context of the live part. `only` filters the pieces by state or outcome."""
    leases = job_leases(job)
    rows = list(
        Shard.objects.filter(job=job)
        .order_by("-kind", "index")
        .values_list("pk", "kind", "index", "state", "outcome")
    )
    states = [(state, outcome) for *_, state, outcome in rows]
    delivering = any(state == ShardState.DELIVERING for state, _ in states)
    waits = _waits(rows)
    shown = _pieces(job, only, page)
    files = _output_files(job)
    ended = job.state == JobState.ENDED
    cleared = job.events.filter(verb=clearing.VERB).exists()
    nodes = list(Node.objects.filter(leases__shard__job=job).distinct())
    live_nodes = {x.node_id for x in leases if x.state in LIVE}
    return {
        "job": job,
        "at": at,
        "rate_text": settings.RATE_TEXT,
        "cleared": cleared,
        "ended": ended,
        "failed_piece": _failed_piece(rows) if leases and job.keep_log and not cleared else None,
        "every": 2 if len(rows) <= pieces.LINKED else 5,
        "steps": steps(
            job,
            leases,
            at,
            pieces=len(rows),
            delivering=delivering,
            sentence=_sentence(job, leases, waits, states),
        ),
        "line": timeline(job, leases, at),
        "meter": job_meter(leases, declared_cap(job), at),
        "gpus_held": sum(x.gpu_count for x in leases if x.state in METERED),
        "waits": waits,
        "waiting_pieces": sum(state == ShardState.QUEUED for state, _ in states),
        "cells": rows if len(rows) <= pieces.LINKED else [],
        "grid": pieces.grid(states) if len(rows) > pieces.LINKED else None,
        "legend": pieces.legend(states),
        "piece_total": len(rows),
        "only": only,
        "page": shown,
        "pieces": _rows(shown, at),
        "nodes": nodes,
        "silent": [n for n in nodes if n.pk in live_nodes and _is_silent(n, at)],
        "simulated": any(node.simulated for node in nodes),
        "no_isolation": [node for node in nodes if node.isolation == "process"],
        "left": left_of(leases),
        "files": files,
        "output_ready": bool(ended and files and job.output and job.output.state == "staged"),
        "stored": stored(job),
        "events": history(job, EVENTS_SHOWN),
        "can_cancel": job.state in (JobState.STAGING, JobState.QUEUED, JobState.ACTIVE)
        and job.cancel_asked_at is None,
    }


def declaration(job: Job) -> dict:
    """The four parts as declared; a secret is known by its name only."""
    return {
        "inputs": list(job.inputs.select_related("dataset")),
        "output_paths": list(job.output_paths.all()),
        "variables": list(job.variables.defer("stored").annotate(shown=_SHOWN)),
    }


_SHOWN = Case(When(secret=False, then=F("stored")), default=Value(""), output_field=TextField())


def _waits(rows: list[tuple]) -> list[SchedulerReason]:
    """Why the first waiting piece waits, newest first: the rest is its history."""
    first = next((pk for pk, _, _, state, _ in rows if state == ShardState.QUEUED), None)
    return list(SchedulerReason.objects.filter(shard_id=first)[:HISTORY_SHOWN]) if first else []


def _is_silent(node: Node, at: datetime) -> bool:
    return node.state == NodeState.OFFLINE or (
        node.last_seen_at is not None and at - node.last_seen_at > SILENT_AFTER
    )


def _sentence(job: Job, leases: list[Lease], waits: list[SchedulerReason], states: list) -> str:
    if job.state == JobState.ENDED:
        bad = sum(outcome not in ("", Outcome.SUCCEEDED) for _, outcome in states)
        share = f" {bad} of {len(states)} pieces." if len(states) > 1 and bad else ""
        return f"{_reason(job, len(states))}{share}"
    if job.cancel_asked_at:
        return f"{job.cancel_asked_by} asked to cancel. It ends when its node says so."
    delivering = any(state == ShardState.DELIVERING for state, _ in states)
    step = current_step(job, leases, delivering)
    if step == "output" and delivering and not any(x.state == "returning" for x in leases):
        return "The compute is released. The output is still on its way, unmetered."
    if step == "waiting" and waits:
        return waits[0].sentence
    return STEP_SENTENCES.get(step, "")


def _reason(job: Job, pieces: int) -> str:
    """Why the job did not succeed; of a single piece with its exit code."""
    if job.reason == Reason.EXIT_CODE and pieces == 1:
        code = job.shards.values_list("exit_code", flat=True).first()
        if code is not None:
            return f"The work ended with exit code {code}."
    if job.reason == Reason.NO_NODE_FITS:
        end = job.events.filter(verb="end").last()
        if end and end.detail.get("sentence"):
            return str(end.detail["sentence"])
    return job.get_reason_display() or "It ended without success."


def _failed_piece(rows: list[tuple]) -> tuple[str, int] | None:
    """Kind and index of the first piece whose log may say what went wrong."""
    good = ("", Outcome.SUCCEEDED, Outcome.CANCELLED)
    return next(((kind, i) for _, kind, i, _, outcome in rows if outcome not in good), None)


def _pieces(job: Job, only: str, page: str | None) -> Page:
    """A page of the pieces that the filter leaves."""
    shards = Shard.objects.filter(job=job).order_by("-kind", "index")
    if only in Outcome.values and only:
        shards = shards.filter(outcome=only)
    elif only in ShardState.values:
        shards = shards.filter(state=only)
    attempts = Lease.objects.select_related("node").prefetch_related("gpus__gpu")
    shards = shards.prefetch_related(Prefetch("leases", attempts.order_by("number")))
    return Paginator(shards, PIECES_PER_PAGE).get_page(page)


def _rows(page: Page, at: datetime) -> list[Piece]:
    """The pieces of a page with their attempts, as the table shows them."""
    return [
        Piece(shard, [_attempt(lease, at) for lease in shard.leases.all()])
        for shard in page.object_list
    ]


def _attempt(lease: Lease, at: datetime) -> Attempt:
    charged, why = counted(lease, at)
    return Attempt(lease, slices(lease, at).held_ms, charged, why)


def _output_files(job: Job) -> list[File]:
    if job.output_id is None:
        return []
    files = File.objects.filter(dataset_id=job.output_id).exclude(state="expected")
    return list(files.order_by("path")[:FILES_SHOWN])


def stored(job: Job) -> list[Stored]:
    """Each input, the code and the output, with their retention."""
    rows = [
        Stored(f"input at /data/{row.mount}", row.dataset, retention(row.dataset))
        for row in job.inputs.select_related("dataset")
    ]
    if job.code_dataset:
        rows.append(Stored("code", job.code_dataset, retention(job.code_dataset)))
    if job.output:
        rows.append(Stored("output", job.output, retention(job.output)))
    return rows


def left_of(leases: list[Lease]) -> Left:
    """Counts over the attempts that held compute."""
    had = [x for x in leases if x.allocated_at]
    found = [value for x in had for value in (x.evidence.get("gpus") or {}).values()]
    return Left(
        released=sum(x.state == LeaseState.RELEASED for x in had),
        proved=sum(_is_proved(x.evidence) for x in had),
        holding=sum(x.state in METERED for x in had),
        gpus_clear=found.count("clear"),
        gpus_simulated=found.count("simulated"),
        gpus_busy=found.count("busy"),
        gpus_not_checked=found.count("not checked"),
        scratch_wiped=sum(x.evidence.get("scratch") == "wiped" for x in had),
        sealed=sum(x.output_state == "sealed" and x.state in TERMINAL for x in had),
        cached_bytes=sum(x.fetched_bytes for x in leases),
    )


def _is_proved(evidence: dict) -> bool:
    """Whether the node showed that nothing is left; the portal may have stopped the meter alone."""
    return evidence.get("processes") == "none" and evidence.get("scratch") == "wiped"


def title_of(job: Job) -> str:
    """The state first, so that a row of tabs can be read."""
    return f"{look_of(job.state, job.outcome).word.capitalize()}: {job.name}"


def milestone_of(job: Job, found: list[Step]) -> str:
    """What a polite live region says when it changes; not the running numbers."""
    if job.state == JobState.ENDED:
        return f"The job {look_of(job.state, job.outcome).word}."
    now = next((step for step in found if step.mark == "current"), None)
    return f"Now: {now.title}." if now else ""

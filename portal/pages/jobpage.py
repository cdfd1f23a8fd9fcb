"""Everything the job page shows, in a number of queries that does not grow with the pieces."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core.paginator import Page, Paginator
from django.db.models import Case, F, Prefetch, QuerySet, TextField, Value, When

from jobs import clearing
from jobs.awaited import awaited, how_far
from jobs.endings import ending
from jobs.models import Job, Shard
from jobs.states import JobState, Outcome, Reason, ShardState
from nodes.meter import counted, slices
from nodes.models import NO_ISOLATION, Lease, Node, SchedulerReason
from nodes.states import METERED, LeaseState, NodeState
from portal.base.icons import look_of
from portal.base.words import hms_column
from portal.pages import attempts, pieces
from portal.pages.history import history
from portal.pages.hops import hops_of
from portal.pages.retention import Retention, retention
from portal.pages.sealed import sealed_sentence
from portal.pages.steps import Marks, Step, current_step, steps
from portal.pages.timeline import Held, Timeline, rough_timeline, timeline
from staging.estimates.shown import all_shown
from staging.estimates.subjects import of_dataset
from staging.models import Dataset, File
from staging.states import DatasetState

PIECES_PER_PAGE = 25
EXACT = 250  # attempts up to which the bar is drawn to the millisecond
FILES_SHOWN = 12
EVENTS_SHOWN = 40
HISTORY_SHOWN = 12
SILENT_AFTER = timedelta(seconds=60)
CANCELLABLE = (JobState.STAGING, JobState.QUEUED, JobState.ACTIVE)

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
    held: str
    counted: str
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


def with_parts(queryset: QuerySet[Job]) -> QuerySet[Job]:
    return queryset.select_related("team", "output", "code_dataset", "rerun_of")


def page_context(job: Job, at: datetime, *, only: str = "", page: str | None = None) -> dict:
    """The context of the live part. `only` filters the pieces by state or outcome."""
    live = attempts.live_of(job)
    rows = list(
        Shard.objects.filter(job=job)
        .order_by("-kind", "index")
        .values_list("pk", "kind", "index", "state", "outcome")
    )
    return {
        "job": job,
        "at": at,
        "rate_text": settings.RATE_TEXT,
        "ended": job.state == JobState.ENDED,
        "can_cancel": job.state in CANCELLABLE and job.cancel_asked_at is None,
        "every": 2 if len(rows) <= pieces.LINKED else 5,
        "events": history(job, EVENTS_SHOWN),
        **_progress(job, at, live, rows),
        **_pieces_table(job, at, rows, only, page),
        **_nodes(job, at, live, rows),
        **_data(job, at),
    }


def _progress(job: Job, at: datetime, live: list[Lease], rows: list[tuple]) -> dict:
    """The steps, the bar, the meter and why it waits."""
    marks = attempts.marks_of(job, live)
    held = attempts.held_of(job, live, at)
    line = _line(job, live, held, at)
    states = [(state, outcome) for *_, state, outcome in rows]
    waits = _waits(rows)
    return {
        "steps": steps(
            job,
            marks,
            at,
            lengths=line.lengths,
            pieces=len(rows),
            delivering=any(state == ShardState.DELIVERING for state, _ in states),
            released=all(s in (ShardState.DELIVERING, ShardState.ENDED) for s, _ in states),
            sentence=_sentence(job, marks, waits, states, at),
        ),
        "hops": hops_of(job, at),
        "line": line,
        "meter": held.meter,
        "gpus_held": sum(lease.gpu_count for lease in live if lease.state in METERED),
        "waits": waits,
        "waiting_pieces": sum(state == ShardState.QUEUED for state, _ in states),
    }


def _pieces_table(job: Job, at: datetime, rows: list[tuple], only: str, page: str | None) -> dict:
    """Every piece as a cell, or many to a cell of a grid; one page of them as a table."""
    states = [(state, outcome) for *_, state, outcome in rows]
    shown = _pieces(job, only, page)
    return {
        "cells": rows if len(rows) <= pieces.LINKED else [],
        "grid": pieces.grid(states) if len(rows) > pieces.LINKED else None,
        "legend": pieces.legend(states),
        "piece_total": len(rows),
        "only": only,
        "page": shown,
        "pieces": _rows(shown, at),
    }


def _nodes(job: Job, at: datetime, live: list[Lease], rows: list[tuple]) -> dict:
    """Where it ran, what is to be known of those nodes, and whose log may say what went wrong."""
    nodes = list(Node.objects.filter(pk__in=attempts.of_job(job).values("node")))
    live_nodes = {lease.node_id for lease in live}
    cleared = job.events.filter(verb=clearing.VERB).exists()
    return {
        "nodes": nodes,
        "silent": [n for n in nodes if n.pk in live_nodes and _is_silent(n, at)],
        "simulated": any(node.simulated for node in nodes),
        "no_isolation": [node for node in nodes if node.isolation == NO_ISOLATION],
        "left": attempts.left_of(job),
        "cleared": cleared,
        "failed_piece": _failed_piece(rows) if nodes and job.keep_log and not cleared else None,
    }


def _data(job: Job, at: datetime) -> dict:
    files = _output_files(job)
    kept = stored(job)
    going = (
        all_shown([of_dataset(row.dataset.code) for row in kept], at) if not job.queued_at else {}
    )
    staged = bool(job.output and job.output.state == "staged")
    return {
        "files": files,
        "output_ready": bool(job.state == JobState.ENDED and files and staged),
        "stored": kept,
        "far": {
            row.dataset.code: how_far(row.dataset, going.get(of_dataset(row.dataset.code)))
            for row in kept
            if not job.queued_at and row.dataset.state != DatasetState.STAGED
        },
    }


def _line(job: Job, live: list[Lease], held: Held, at: datetime) -> Timeline:
    """Exact where the bar can show it; with more attempts than that, to one unit of the bar."""
    if attempts.of_job(job).count() <= EXACT:
        return timeline(job, attempts.leases_of(job), held, at)
    return rough_timeline(job, attempts.ended_marks(job), live, held, at)


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


def _sentence(
    job: Job, marks: Marks, waits: list[SchedulerReason], states: list, at: datetime
) -> str:
    if job.state == JobState.ENDED:
        bad = sum(outcome not in ("", Outcome.SUCCEEDED) for _, outcome in states)
        share = f" {bad} of {len(states)} pieces." if len(states) > 1 and bad else ""
        return f"{_reason(job, len(states))}{share}"
    if job.cancel_asked_at:
        return f"{job.cancel_asked_by} asked to cancel. It ends when its node says so."
    delivering = any(state == ShardState.DELIVERING for state, _ in states)
    step = current_step(job, marks, delivering)
    if step == "output" and delivering and LeaseState.RETURNING not in marks.states:
        return sealed_sentence(job)
    if step == "waiting" and waits:
        return waits[0].sentence
    if step == "staging" and (data := awaited([job], at).get(job.pk)):
        return f"{data} Nothing is held and nothing is metered."
    return STEP_SENTENCES.get(step, "")


def _reason(job: Job, pieces: int) -> str:
    """Why the job did not succeed; of a single piece with its exit code and detail."""
    if job.reason == Reason.NO_NODE_FITS:
        end = job.events.filter(verb="end").last()
        if end and end.detail.get("sentence"):
            return str(end.detail["sentence"])
    piece = job.shards.first() if pieces == 1 else None
    code, detail = (piece.exit_code, piece.detail) if piece else (None, "")
    return ending(job.reason, exit_code=code, detail=detail) or "It ended without success."


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
    """The pieces of a page with their attempts, as the table shows them.

    Held and counted times are texts that add up to what the meter says of the same attempts.
    """
    leases = [lease for shard in page.object_list for lease in shard.leases.all()]
    held = hms_column([slices(lease, at).held_ms for lease in leases])
    charged = [counted(lease, at) for lease in leases]
    of_counted = hms_column([ms for ms, _ in charged])
    found = {
        lease.pk: Attempt(lease, held[place], of_counted[place], charged[place][1])
        for place, lease in enumerate(leases)
    }
    return [
        Piece(shard, [found[lease.pk] for lease in shard.leases.all()])
        for shard in page.object_list
    ]


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


def title_of(job: Job) -> str:
    """The state first, so that a row of tabs can be read."""
    return f"{look_of(job.state, job.outcome).word.capitalize()}: {job.name}"


def milestone_of(job: Job, found: list[Step]) -> str:
    """What a polite live region says when it changes; not the running numbers."""
    if job.state == JobState.ENDED:
        was = "was " if job.outcome in (Outcome.CANCELLED, Outcome.LOST) else ""
        return f"The job {was}{look_of(job.state, job.outcome).word}."
    now = next((step for step in found if step.mark == "current"), None)
    return f"Now: {now.title}." if now else ""

"""The account page: finished jobs with what they held, and the record behind each row."""

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from django.conf import settings
from django.core.paginator import Paginator
from django.db.models import Count, F, QuerySet, Sum
from django.db.models.functions import TruncMonth
from django.http import StreamingHttpResponse

from jobs.models import Job
from portal.base.crypto import record_public_key
from portal.base.errors import DomainError, NotFound
from portal.base.icons import look_of
from portal.base.words import hms_column, hours_column, in_hms_exact
from portal.pages.retention import retention
from portal.teams.models import Team

PER_PAGE = 50
LEDGER = "shards__leases__ledger__"
SLICES = ("launch_ms", "run_ms", "output_ms", "release_ms", "held_ms", "counted_ms")
COLUMNS = [
    "job", "name", "submitted", "ended", "outcome", "pieces", "gpus_per_piece", "held_h_mm_ss",
    "held_hours", "gpu_hours", "counted_gpu_hours", "data", "output", "output_deleted_at",
]  # fmt: skip
# A spreadsheet takes a cell that begins with one of these for a formula.
FORMULA = re.compile(r"^\s*[=+\-@\t\r\n＝＋－＠|%]")


def month_of(text: str) -> datetime | None:
    """ "2026-11" -> its first moment; nothing -> None. Raises DomainError for anything else."""
    if not text:
        return None
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", text, re.ASCII):
        raise DomainError("A month is written like 2026-11.")
    return datetime(int(text[:4]), int(text[5:]), 1, tzinfo=UTC)


def finished(team: Team, month: datetime | None = None) -> QuerySet[Job]:
    """Ended jobs of the team, of one month or all, newest first."""
    jobs = Job.objects.of_team(team).ended()
    if month:
        following = datetime(month.year + month.month // 12, month.month % 12 + 1, 1, tzinfo=UTC)
        jobs = jobs.filter(ended_at__gte=month, ended_at__lt=following)
    return jobs.order_by("-ended_at", "-id")


def sums() -> dict[str, Sum]:
    """Held, GPU and counted GPU time of jobs in milliseconds, from the ledger."""
    gpus = F(f"{LEDGER}gpus")
    return {
        "held_ms": Sum(f"{LEDGER}held_ms", default=0),
        "gpu_ms": Sum(F(f"{LEDGER}held_ms") * gpus, default=0),
        "counted_gpu_ms": Sum(F(f"{LEDGER}counted_ms") * gpus, default=0),
    }


def rows(team: Team, month: datetime | None) -> QuerySet[Job]:
    """The finished jobs with their sums and datasets, in a fixed number of queries."""
    return (
        finished(team, month)
        .annotate(**sums())
        .select_related("output")
        .prefetch_related("inputs__dataset")
    )


COLUMNS_OF = {"held_ms": hms_column, "gpu_ms": hours_column, "counted_gpu_ms": hours_column}


def _in_texts(found: list[dict], totals: dict | None = None) -> None:
    """Put the texts of held, GPU and counted time on the rows, and on the totals below them.

    Rows are those of a whole column where they come with its totals: then they add up.
    """
    for key, column in COLUMNS_OF.items():
        name = key.removesuffix("_ms")
        texts = column([row[key] for row in found], totals[key] if totals else None)
        for row, text in zip(found, texts, strict=False):
            row[name] = text
        if totals:
            totals[name] = texts[-1]


def _with_retention(job: Job) -> Job:
    job.data_retention = [retention(row.dataset) for row in job.inputs.all()]  # type: ignore[attr-defined]
    job.output_retention = retention(job.output)  # type: ignore[attr-defined]
    return job


def page_context(team: Team, month_text: str, page: str | None) -> dict:
    """Raises DomainError when the month is not one."""
    month = month_of(month_text)
    found = Paginator(rows(team, month), PER_PAGE).get_page(page)
    found.object_list = [_with_retention(job) for job in found.object_list]
    months = (
        finished(team)
        .order_by()
        .annotate(month=TruncMonth("ended_at", tzinfo=UTC))
        .values("month")
        .annotate(jobs=Count("pk", distinct=True), **sums())
        .order_by("-month")
    )
    totals = finished(team, month).aggregate(jobs=Count("pk", distinct=True), **sums())
    by_month = [dict(row) for row in months]
    _in_texts(by_month)
    all_on_this_page = found.paginator.num_pages == 1
    _in_texts([vars(job) for job in found.object_list], totals if all_on_this_page else None)
    if not all_on_this_page:
        _in_texts([], totals)
    return {
        "page": found,
        "rate_text": settings.RATE_TEXT,
        "month": month,
        "months": by_month,
        "totals": totals,
    }


def safe_cell(value: object) -> str:
    """A cell that no spreadsheet takes for a formula, on one line."""
    text = str(value).replace("\x00", "")
    return f"'{text}" if FORMULA.match(text) else text


def _cells(job: Job) -> list[str]:
    data = sorted({retention(row.dataset).word for row in job.inputs.all()}) or ["none"]
    output = retention(job.output)
    held, gpu, counted = job.held_ms, job.gpu_ms, job.counted_gpu_ms  # type: ignore[attr-defined]
    values = [
        job.code, job.name, _iso(job.submitted_at), _iso(job.ended_at),
        look_of(job.state, job.outcome).word, job.shard_count, job.gpus, in_hms_exact(held),
        _hours(held), _hours(gpu), _hours(counted), "; ".join(data), output.word,
        _iso(output.at),
    ]  # fmt: skip
    return [safe_cell(value) for value in values]


def _hours(milliseconds: int) -> str:
    """Hours to the millisecond and as programs read them: what is summed here gives the ledger."""
    return f"{milliseconds / 3_600_000:.7f}"


def _iso(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""


class _Line:
    """A file that hands back what csv writes, so that a response can stream it."""

    def write(self, line: str) -> str:
        return line


def csv_lines(team: Team, month: datetime | None) -> Iterator[str]:
    writer = csv.writer(_Line(), lineterminator="\r\n")
    yield writer.writerow(COLUMNS)
    for job in rows(team, month).iterator(chunk_size=500):
        yield writer.writerow(_cells(job))


def csv_response(team: Team, month_text: str) -> StreamingHttpResponse:
    """Raises DomainError when the month is not one, before anything is sent."""
    month = month_of(month_text)
    response = StreamingHttpResponse(csv_lines(team, month), content_type="text/csv; charset=utf-8")
    name = f"records-{month_text}.csv" if month else "records.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def with_record() -> QuerySet[Job]:
    return Job.objects.ended().select_related("team", "output", "record")


def signed(job: Job) -> dict:
    """The record with what checks it. Raises NotFound while it is not written."""
    if not hasattr(job, "record"):
        raise NotFound("The record of this job is not written yet.")
    return {
        "record": job.record.body,
        "signature": job.record.signature,
        "algorithm": "Ed25519",
        "public_key": record_public_key(),
    }


def _lease_rows(body: dict) -> list[dict]:
    """Every attempt in the record as one flat row, GPU time added."""
    found = []
    for shard in body.get("shards", []):
        for lease in shard.get("leases", []):
            gpus = lease.get("gpus") or []
            found.append({**lease, "shard": shard, "gpu_count": len(gpus), "times": _times(lease)})
    return found


def _times(lease: dict) -> list[datetime | None]:
    texts = (lease.get("allocated_at"), lease.get("released_at"))
    return [datetime.fromisoformat(text) if text else None for text in texts]


def record_context(job: Job) -> dict:
    if not hasattr(job, "record"):
        return {"job": job, "body": None}
    body = job.record.body
    leases = _lease_rows(body)
    return {
        "job": job,
        "body": body,
        "leases": leases,
        "totals": {key: sum(lease.get(key) or 0 for lease in leases) for key in SLICES},
        "signature": job.record.signature,
        "public_key": record_public_key(),
        "simulated": any(lease.get("simulated") for lease in leases),
    }

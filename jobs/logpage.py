"""What the log page shows: which attempt's log, which lines of it, and what stands beside them."""

from dataclasses import dataclass

from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobs.ansi import PLAIN, line_html
from jobs.logs import LinePage, line_page
from jobs.models import Job, Shard
from jobs.states import JobState, ShardKind
from portal.base.errors import NotFound

LINES_A_PAGE = 500
LONGEST_LINE = 8192
FINISH = "finish"


@dataclass(frozen=True)
class Line:
    number: int
    html: SafeString
    cut: bool


def shard_of(job: Job, name: str) -> Shard:
    """The piece with this index, or the finish step."""
    if name == FINISH:
        shard = job.shards.filter(kind=ShardKind.FINISH).first()
    elif name.isascii() and name.isdigit() and len(name) <= 9:
        shard = job.shards.filter(kind=ShardKind.MAIN, index=int(name)).first()
    else:
        shard = None
    if shard is None:
        raise NotFound("This job has no such piece.")
    return shard


def attempts(shard: Shard) -> list:
    """The leases of a piece that ever started, oldest first. `nodes` owns them; this only reads."""
    return list(shard.leases.exclude(allocated_at=None).order_by("number"))


def chosen_attempt(shard: Shard, leases: list, number: str | None):
    """The attempt asked for, else the kept one, else the latest; None when none started."""
    if number is not None:
        found = next((lease for lease in leases if str(lease.number) == number), None)
        if found is None:
            raise NotFound("This piece has no such attempt.")
        return found
    kept = next((lease for lease in leases if lease.code == shard.kept_lease), None)
    return kept or (leases[-1] if leases else None)


def rendered(page: LinePage) -> list[Line]:
    """The lines of a page as HTML; a color goes on over line ends, as in a terminal."""
    look, lines = PLAIN, []
    for offset, raw in enumerate(page.lines):
        html, look = line_html(raw[:LONGEST_LINE], look)
        lines.append(Line(page.first + offset, html, len(raw) > LONGEST_LINE))
    return lines


def log_context(request: HttpRequest, job: Job, name: str) -> dict[str, object]:
    """Everything the page and its live part need. Raises NotFound."""
    shard = shard_of(job, name)
    leases = attempts(shard)
    lease = chosen_attempt(shard, leases, request.GET.get("attempt"))
    page = line_page(lease.code, asked_page(request), LINES_A_PAGE, LONGEST_LINE) if lease else None
    return {
        "job": job,
        "shard": shard,
        "name": name,
        "lease": lease,
        "leases": leases,
        "page": page,
        "lines": rendered(page) if page else [],
        "wrap": request.GET.get("wrap") != "0",
        "live": job.state != JobState.ENDED and (lease is None or lease.ended_at is None),
        "attempt": request.GET.get("attempt", ""),
        "on_last": page is None or page.number == page.pages,
        "last_line": page.first + len(page.lines) - 1 if page else 0,
        "previous_page": page.number - 1 if page else 0,
        "next_page": page.number + 1 if page else 0,
    }


def asked_page(request: HttpRequest) -> int | None:
    """The page asked for by number or by a line in it; None is the last."""
    line = _number(request.GET.get("line"))
    if line is not None:
        return (max(1, line) - 1) // LINES_A_PAGE + 1
    return _number(request.GET.get("page"))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 9 else None

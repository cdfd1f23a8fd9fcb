"""What is known of all attempts of a job, in a few queries however many there are.

Attempts whose fate is known never change: the database adds them up. Those that still live, and
the few that have ended and have no ledger row yet, are read as rows.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, Count, F, Max, Min, Q, QuerySet, Sum, When

from jobs.models import Job
from nodes.meter import JobMeter, declared_cap, job_meter, slices
from nodes.models import Lease, LedgerRow
from nodes.states import METERED, TERMINAL, LeaseState
from portal.base.epoch import EpochMs
from portal.pages.steps import Marks
from portal.pages.timeline import METERED as SLICES
from portal.pages.timeline import PHASES, Held

METER_COLUMNS = [
    "shard_id", "node_id", "number", "state", "reason", "gpu_count", "time_limit",
    "output_window", "placed_at", "ready_at", "granted_at", "allocated_at", "running_at",
    "returning_at", "releasing_at", "released_at", "ended_at", "last_report_at",
    "output_verified_at", "output_state", "evidence", "fetched_bytes",
]  # fmt: skip
MARKS = ("allocated_at", "running_at", "returning_at", "releasing_at")


@dataclass(frozen=True)
class Left:
    """What is left of a job on the nodes, from the evidence of its attempts."""

    released: int = 0
    proved: int = 0
    holding: int = 0
    gpus_clear: int = 0
    gpus_simulated: int = 0
    gpus_busy: int = 0
    gpus_not_checked: int = 0
    scratch_wiped: int = 0
    sealed: int = 0
    fetched_bytes: int = 0
    moved_bytes: int = 0

    @property
    def cached_bytes(self) -> int:
        """What the nodes had already when their attempts were placed."""
        return max(0, self.fetched_bytes - self.moved_bytes)


def of_job(job: Job) -> QuerySet[Lease]:
    return Lease.objects.filter(shard__job=job).order_by()


def leases_of(job: Job) -> list[Lease]:
    """All attempts, with only the columns that times are derived from."""
    return list(of_job(job).only(*METER_COLUMNS))


def live_of(job: Job) -> list[Lease]:
    """The attempts that have not ended."""
    return list(of_job(job).filter(ended_at=None).only(*METER_COLUMNS))


def marks_of(job: Job, live: list[Lease]) -> Marks:
    """When the attempts that held compute came to each step, and how many pieces did."""
    returned, released = Q(returning_at__isnull=False), Q(releasing_at__isnull=False)
    found = (
        of_job(job)
        .filter(allocated_at__isnull=False)
        .aggregate(
            **{f"first_{column}": Min(column) for column in MARKS},
            last_returning_at=Max("returning_at"),
            last_output_verified_at=Max("output_verified_at", filter=returned),
            last_releasing_at=Max("releasing_at", filter=returned),
            last_released_at=Max("released_at", filter=released),
            **{
                f"reached_{column}": Count(
                    "shard", distinct=True, filter=Q(**{f"{column}__isnull": False})
                )
                for column in MARKS[1:]
            },
        )
    )
    return Marks(
        first={column: found[f"first_{column}"] for column in MARKS},
        last={key.removeprefix("last_"): at for key, at in found.items() if key[:5] == "last_"},
        reached={column: found[f"reached_{column}"] for column in MARKS[1:]},
        states=frozenset(LeaseState(lease.state) for lease in live),
    )


def held_of(job: Job, live: list[Lease], at: datetime) -> Held:
    """The ledger's rows, and the time of the attempts that have none yet up to `at`."""
    columns = {f"{name}_ms": Sum(f"{name}_ms", default=0) for name in SLICES}
    past = LedgerRow.objects.filter(lease__shard__job=job).aggregate(
        held=Sum("held_ms", default=0),
        counted=Sum("counted_ms", default=0),
        gpu=Sum(F("held_ms") * F("gpus"), default=0),
        counted_gpu=Sum(F("counted_ms") * F("gpus"), default=0),
        **columns,
    )
    unsettled = of_job(job).filter(pk__in=Lease.objects.unsettled(), ended_at__isnull=False)
    open_rows = [*live, *unsettled.only(*METER_COLUMNS)]
    now = job_meter(open_rows, declared_cap(job), at)
    parts = [slices(lease, at) for lease in open_rows]
    meter = JobMeter(
        held_ms=past["held"] + now.held_ms,
        gpu_ms=past["gpu"] + now.gpu_ms,
        counted_ms=past["counted"] + now.counted_ms,
        counted_gpu_ms=past["counted_gpu"] + now.counted_gpu_ms,
        cap_gpu_ms=now.cap_gpu_ms,
        running=now.running,
    )
    by_slice = {
        name: past[f"{name}_ms"] + sum(getattr(part, f"{name}_ms") for part in parts)
        for name in SLICES
    }
    early = of_job(job).filter(ready_at__gt=F("allocated_at"))
    waited = early.aggregate(ms=Sum(EpochMs("ready_at") - EpochMs("allocated_at"), default=0))
    return Held(meter, by_slice, waited["ms"])


def ended_marks(job: Job) -> list[tuple[int | None, ...]]:
    """For each ended attempt when it came to each of PHASES and when its hold, or it, ended; ms."""
    columns = [EpochMs(f"{step}_at") for step in PHASES.values()]
    lost = Case(
        When(last_report_at__gt=F("allocated_at"), then="last_report_at"), default="allocated_at"
    )
    over = Case(
        When(released_at__isnull=False, then="released_at"),
        When(state=LeaseState.LOST, allocated_at__isnull=False, then=lost),
        default="ended_at",
    )
    rows = of_job(job).filter(ended_at__isnull=False)
    return list(rows.values_list(*columns, EpochMs(over)))


def left_of(job: Job) -> Left:
    """Counts over the attempts that held compute. Equal evidence is looked at once."""
    leases = of_job(job)
    fetched = leases.aggregate(
        fetched_bytes=Sum("fetched_bytes", default=0), moved_bytes=Sum("moved_bytes", default=0)
    )
    had = leases.filter(allocated_at__isnull=False).values_list("state", "output_state", "evidence")
    counts = dict.fromkeys(Left.__dataclass_fields__, 0) | fetched
    for state, output, evidence, number in had.annotate(number=Count("pk")):
        counts["released"] += number * (state == LeaseState.RELEASED)
        counts["holding"] += number * (state in METERED)
        counts["proved"] += number * _is_proved(evidence)
        counts["scratch_wiped"] += number * (evidence.get("scratch") == "wiped")
        counts["sealed"] += number * (output == "sealed" and state in TERMINAL)
        for found in (evidence.get("gpus") or {}).values():
            counts[f"gpus_{str(found).replace(' ', '_')}"] += number
    return Left(**counts)


def _is_proved(evidence: dict) -> bool:
    """Whether the node showed that nothing is left; the portal may have stopped the meter alone."""
    return evidence.get("processes") == "none" and evidence.get("scratch") == "wiped"

"""When the steps of a lease happened, on the portal's clock, by the ages of one report.

A report may wait for long before it is received: in a socket while the portal starts, in a worker
that stands still. So `received - age` is never too early and may be far too late. But all ages of
one report are of one moment and one clock: the length between two of its steps is exact. A step is
therefore placed by an earlier one whose time is recorded and whose age the same report carries,
and only what has no such step before it by the receipt.
"""

from datetime import datetime, timedelta

from nodes.models import Lease
from nodes.report import PHASES, Report
from nodes.states import METERED
from portal.base.clock import at_age

STEPS = PHASES[1:]


def step_at(
    *, lease: Lease, report: Report, step: str, at: datetime, not_before: datetime
) -> datetime:
    """When `step` of a report that was received `at` happened, within [not_before, at].

    Where its age is not known: when it was received.
    """
    age = report.ages.get(step) or 0
    by_receipt = at_age(at, age, not_before)
    anchor = _anchor(lease, report, STEPS[: STEPS.index(step)])
    if anchor is None or report.ages.get(step) is None:
        return by_receipt
    began, anchor_age = anchor
    placed = began + timedelta(milliseconds=max(0, anchor_age - age))
    # The time from `ready` on is not metered: there the earlier of two that cannot be too early
    # is the truer one. Afterwards the length counts, and the receipt is only the last it can be.
    most = by_receipt if step == "allocated" else at
    return max(not_before, min(placed, most))


def said_at(*, lease: Lease, report: Report, at: datetime) -> datetime:
    """When the node made a report that was received `at`; the receipt where no step tells.

    Of a metered lease never before an earlier report: what was seen to be held stays held, also
    where a node's lengths have shrunk.
    """
    anchor = _anchor(lease, report, STEPS)
    said = min(at, anchor[0] + timedelta(milliseconds=anchor[1])) if anchor else at
    known = lease.last_report_at if lease.state in METERED else None
    return max(said, known) if known else said


def _anchor(lease: Lease, report: Report, steps: list[str]) -> tuple[datetime, int] | None:
    """The last of `steps` with a time in the row and an age in the report: both of these."""
    for step in reversed(steps):
        began, age = getattr(lease, f"{step}_at"), report.ages.get(step)
        if began is not None and age is not None:
            return began, age
    return None

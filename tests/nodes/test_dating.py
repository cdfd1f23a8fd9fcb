"""When steps happened, by reports that were received late: no slice is longer than the node's."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.dating import STEPS, said_at, step_at
from nodes.models import Lease
from nodes.report import Report
from nodes.states import LeaseState

START = datetime(2026, 11, 30, tzinfo=UTC)
SLICES = STEPS[1:]


def after(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


def report(made: int, stamps: dict[str, int]) -> Report:
    """A report made at `made`, with the age of every step that had come by then."""
    ages = {step: made - at for step, at in stamps.items() if at <= made}
    return Report(phase=max(ages, key=STEPS.index), ages=ages)


def placed(**times: datetime) -> Lease:
    return Lease(placed_at=START, granted_at=START, **times)


def record(lease: Lease, said: Report, received: datetime) -> None:
    """What a report tells for the first time, as nodes/progress.py writes it."""
    for step in STEPS:
        if not said.reached(step) or getattr(lease, f"{step}_at") is not None:
            continue
        earlier = [getattr(lease, f"{s}_at") for s in STEPS[: STEPS.index(step)]]
        least = max([START, *(at for at in earlier if at)])
        when = step_at(lease=lease, report=said, step=step, at=received, not_before=least)
        setattr(lease, f"{step}_at", when)


def lengths(times: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(times)]


waits = st.integers(0, 10**7)


@given(
    st.lists(waits, min_size=6, max_size=6),
    st.lists(st.tuples(waits, waits), min_size=1, max_size=8),
)
def test_no_slice_is_longer_than_the_nodes_own(gaps, polls):
    """Reports made at any time and received late by any time, one after the other."""
    stamps, now = {}, 0
    for step, gap in zip(STEPS, gaps, strict=True):
        now += gap
        stamps[step] = now
    lease, at = placed(), 0
    polls = [*polls, (now, 0)]  # the last one tells of everything
    for pause, late in polls:
        made = at + pause
        at = made + late
        if made >= stamps["ready"]:
            record(lease, report(made, stamps), after(at))
    recorded = [
        (getattr(lease, f"{step}_at") - START) // timedelta(milliseconds=1) for step in STEPS
    ]
    assert recorded == sorted(recorded)
    assert recorded[-1] <= at
    own = lengths([stamps[step] for step in SLICES])
    found = lengths(recorded[1:])
    assert all(a <= b for a, b in zip(found, own, strict=True))


def test_lengths_are_exact_once_the_begin_is_recorded():
    stamps = dict(zip(STEPS, (0, 1000, 1100, 15100, 16000, 16200), strict=True))
    lease = placed()
    record(lease, report(1010, stamps), after(1020))
    for made, late in ((1200, 300), (15110, 17000), (40000, 10)):
        record(lease, report(made, stamps), after(made + late))
    times = [getattr(lease, f"{step}_at") for step in SLICES]
    own = [timedelta(milliseconds=ms) for ms in (100, 14000, 900, 200)]
    assert [b - a for a, b in pairwise(times)] == own


def test_a_late_acknowledgement_begins_later_and_nothing_lies_after_its_receipt():
    stamps = dict(zip(STEPS, (0, 1000, 1100, 15100, 16000, 16200), strict=True))
    lease = placed(ready_at=after(9000))  # heard of late, too
    record(lease, report(1100, stamps), after(13000))
    assert lease.allocated_at == after(9000 + 1000)
    assert lease.running_at == lease.allocated_at + timedelta(milliseconds=100)
    record(lease, report(16200, stamps), after(16250))
    assert lease.released_at == after(16250)
    assert lease.released_at - lease.allocated_at <= timedelta(milliseconds=15200)


@pytest.mark.parametrize("ages", [{}, {"allocated": None}, {"releasing": 50}])
def test_without_an_anchor_the_receipt_tells(ages):
    lease = placed(allocated_at=after(0))
    said = Report(phase="releasing", ages=ages)
    found = step_at(lease=lease, report=said, step="releasing", at=after(500), not_before=START)
    assert found == after(500 - ages.get("releasing", 0))
    assert said_at(lease=lease, report=said, at=after(500)) == after(500)


def test_the_nodes_last_word_is_of_when_it_was_said():
    lease = placed(allocated_at=after(0), running_at=after(100))
    said = Report(phase="running", ages={"allocated": 1100, "running": 1000})
    assert said_at(lease=lease, report=said, at=after(30_000)) == after(1100)
    assert said_at(lease=lease, report=said, at=after(1050)) == after(1050)


def test_the_nodes_last_word_never_goes_back_while_it_holds():
    known = {"allocated_at": after(0), "last_report_at": after(5000)}
    shrunk = Report(phase="running", ages={"allocated": 900})
    held = placed(state=LeaseState.RUNNING, **known)
    assert said_at(lease=held, report=shrunk, at=after(30_000)) == after(5000)
    longer = Report(phase="running", ages={"allocated": 6000})
    assert said_at(lease=held, report=longer, at=after(30_000)) == after(6000)
    # Before a hold the receipt dated it, which may be too late: a truer word counts.
    named = placed(state=LeaseState.READY, ready_at=after(0), last_report_at=after(5000))
    early = Report(phase="ready", ages={"ready": 900})
    assert said_at(lease=named, report=early, at=after(30_000)) == after(900)

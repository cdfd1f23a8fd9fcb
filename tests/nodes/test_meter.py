"""The meter is a pure function of a lease's timestamps."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.meter import Slices, counted, held_until, slices
from nodes.models import Lease
from portal.base.clock import at_age

START = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)  # a night on which clocks are changed
MINUTE = timedelta(minutes=1)


def lease(**steps) -> Lease:
    values = {
        "state": "released",
        "reason": "exited",
        "time_limit": timedelta(hours=1),
        "output_window": 2 * MINUTE,
        "placed_at": START - MINUTE,
        "allocated_at": START,
    }
    return Lease(**(values | steps))


def test_slices_are_the_steps_between():
    done = lease(
        running_at=START + MINUTE,
        returning_at=START + 11 * MINUTE,
        releasing_at=START + 12 * MINUTE,
        released_at=START + 12.5 * MINUTE,
    )
    assert slices(done, START + 60 * MINUTE) == Slices(60_000, 600_000, 60_000, 30_000)
    assert counted(done, START) == (750_000, "")


def test_nothing_is_metered_before_allocation():
    waiting = lease(allocated_at=None, state="granted", granted_at=START)
    assert slices(waiting, START + 60 * MINUTE).held_ms == 0
    assert counted(waiting, START + 60 * MINUTE) == (0, "")


def test_everything_in_the_same_millisecond_is_zero_and_not_negative():
    done = lease(running_at=START, returning_at=START, releasing_at=START, released_at=START)
    assert slices(done, START) == Slices()


def test_a_live_lease_is_metered_to_now():
    live = lease(state="running", running_at=START + MINUTE)
    assert slices(live, START + 3 * MINUTE) == Slices(60_000, 120_000)


def test_a_lost_lease_ends_at_its_last_report():
    lost = lease(state="lost", reason="silent", last_report_at=START + 5 * MINUTE)
    assert held_until(lost, START + 60 * MINUTE) == START + 5 * MINUTE
    assert counted(lost, START + 60 * MINUTE) == (0, "silent")


@pytest.mark.parametrize(
    "reason", ["launch_failed", "supervisor_died", "node_rebooted", "gpu_fault", "silent"]
)
def test_a_fault_of_the_node_is_held_and_not_counted(reason):
    faulty = lease(reason=reason, releasing_at=START + MINUTE, released_at=START + 2 * MINUTE)
    assert slices(faulty, START).held_ms == 120_000
    assert counted(faulty, START) == (0, reason)


def test_counting_ends_with_the_output_window():
    """O4: the store is away as the work ends; the node takes hours to release."""
    slow = lease(
        running_at=START,
        returning_at=START + 10 * MINUTE,
        releasing_at=START + 200 * MINUTE,
        released_at=START + 300 * MINUTE,
    )
    assert counted(slow, START) == (12 * 60_000, "past_the_window")


def test_at_most_declared_hours_and_output_window_are_counted():
    over = lease(running_at=START + 30 * MINUTE, state="running")
    assert counted(over, START + 500 * MINUTE) == (62 * 60_000, "past_the_window")


def test_a_step_that_never_came_takes_no_time():
    failed = lease(releasing_at=START + MINUTE, released_at=START + 2 * MINUTE)
    assert slices(failed, START) == Slices(60_000, 0, 0, 60_000)


moments = st.none() | st.integers(-5000, 5000)


@given(st.lists(moments, min_size=4, max_size=4), st.integers(0, 10_000))
def test_slices_add_up_in_every_order(offsets, later):
    """Whatever the columns hold, slices are whole, not negative and add up to held time."""
    names = ["running_at", "returning_at", "releasing_at", "released_at"]
    steps = {
        name: None if ms is None else START + timedelta(milliseconds=ms)
        for name, ms in zip(names, offsets, strict=True)
    }
    at = START + timedelta(milliseconds=later)
    row = lease(state="released" if steps["released_at"] else "running", **steps)
    cut = slices(row, at)
    assert min(cut.launch_ms, cut.run_ms, cut.output_ms, cut.release_ms) >= 0
    end = held_until(row, at)
    assert cut.held_ms == max(0, (end - START) // timedelta(milliseconds=1))
    assert 0 <= counted(row, at)[0] <= cut.held_ms


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6))
def test_an_age_is_placed_between_the_step_before_and_now(age, since):
    received = START + timedelta(milliseconds=since)
    assert START <= at_age(received, age, START) <= received

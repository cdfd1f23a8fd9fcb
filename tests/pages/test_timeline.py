"""The bar, the steps and the grid: pure functions of rows."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.models import Job
from nodes.meter import job_meter, slices
from nodes.models import Lease
from portal.base.clock import db_now
from portal.pages import attempts, pieces
from portal.pages.steps import Marks, Step, steps
from portal.pages.timeline import BAR_WIDTH, Timeline, rough_timeline, spans, timeline
from tests.factories import make_job, make_node
from tests.pages import scenes

pytestmark = pytest.mark.django_db


@pytest.fixture
def node():
    return make_node("sim-1", gpus=24)


def marks(job: Job) -> Marks:
    return attempts.marks_of(job, attempts.live_of(job))


def drawn(job: Job, at: datetime | None = None) -> Timeline:
    at = at or db_now()
    held = attempts.held_of(job, attempts.live_of(job), at)
    return timeline(job, attempts.leases_of(job), held, at)


def stepped(job: Job, **said) -> list[Step]:
    return steps(job, marks(job), db_now(), lengths=drawn(job).lengths, **said)


def shown(job: Job) -> dict[str, str]:
    found = stepped(
        job,
        pieces=1,
        delivering=False,
        sentence="Because.",
    )
    return {step.key: step.mark for step in found}


def test_the_bar_covers_the_whole_time_to_scale(team, node):
    job = scenes.succeeded_job(team, node)
    line = drawn(job)
    assert line.start == job.submitted_at
    assert line.end == job.ended_at
    assert sum(part.ms for part in line.stretches) == line.wall_ms
    assert line.stretches[0].x == 0
    last = line.stretches[-1]
    assert last.x + last.width == pytest.approx(BAR_WIDTH, abs=0.1)


def test_metered_parts_of_one_piece_are_its_held_time(team, node):
    job = scenes.succeeded_job(team, node)
    line = drawn(job)
    metered = sum(part.ms for part in line.stretches if part.metered)
    held = job.shards.get().leases.get().ledger.held_ms
    assert metered == held
    assert sum(row.held_ms or 0 for row in line.rows) == held
    assert line.waiting_for_data_ms == 0


def test_a_job_that_never_held_compute_is_all_hollow(team):
    job = scenes.cancelled_in_queue(team)
    line = drawn(job)
    assert not any(part.metered for part in line.stretches)
    assert [part.phase for part in line.stretches] == ["staging", "queue"]


def test_a_metered_phase_wins_where_pieces_overlap(team, node):
    job = scenes.running_job(team, node)
    line = drawn(job)
    assert line.stretches[-1].phase == "run"
    ends = [(part.start, part.end) for part in line.stretches]
    assert all(first[1] == then[0] for first, then in pairwise(ends))


@settings(deadline=None)
@given(
    gaps=st.lists(st.integers(0, 10_000), min_size=8, max_size=8),
    reached=st.integers(1, 8),
)
def test_the_phases_of_an_attempt_never_overlap(gaps, reached):
    now = db_now()
    at = now - timedelta(seconds=100_000)
    lease = Lease(state=scenes.STEPS[reached - 1])
    for step, gap in list(zip(scenes.STEPS, gaps, strict=True))[:reached]:
        at += timedelta(milliseconds=gap)
        setattr(lease, f"{step}_at", at)
    lease.ended_at = lease.released_at
    found = spans(lease, now)
    assert all(begun < ended for _, begun, ended in found)
    assert all(a[2] == b[1] for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("reached", "current"),
    [
        (1, "waiting"),
        (2, "waiting"),
        (3, "rent"),
        (4, "rent"),
        (5, "run"),
        (6, "output"),
        (7, "release"),
    ],
)
def test_the_present_step_follows_the_attempt(team, node, reached, current):
    marks = shown(scenes.state_job(team, node, reached))
    assert [key for key, mark in marks.items() if mark == "current"] == [current]
    before = list(marks)[: list(marks).index(current)]
    assert all(marks[key] == "done" for key in before)


def test_a_finished_job_has_every_step_done(team, node):
    assert set(shown(scenes.succeeded_job(team, node)).values()) == {"done"}


@pytest.mark.parametrize(
    ("reason", "failing"), [("exit_code", "run"), ("output_missing", "output")]
)
def test_the_failing_step_is_marked(team, node, reason, failing):
    marks = shown(scenes.failed_job(team, node, "failed", reason))
    assert [key for key, mark in marks.items() if mark == "failed"] == [failing]


def test_what_was_not_reached_is_not_done(team):
    marks = shown(scenes.cancelled_in_queue(team))
    assert marks["waiting"] == "failed"
    assert [marks[key] for key in ("rent", "run", "output", "release")] == ["todo"] * 4


def test_a_job_still_staging_is_in_staging(team):
    marks = shown(scenes.staging_job(team))
    assert marks["staging"] == "current"
    assert marks["waiting"] == "todo"


def test_ten_thousand_pieces_are_few_shapes():
    states = [("ended", "failed" if n % 170 == 5 else "succeeded") for n in range(6200)]
    states += [("queued", "")] * 3800
    grid = pieces.grid(states)
    assert grid.columns * grid.rows >= 10_000
    assert len(grid.runs) < 250
    assert sum(run.width for run in grid.runs) == 10_000 * pieces.CELL


def test_the_legend_counts_and_puts_trouble_first():
    entries = pieces.legend([("ended", "succeeded")] * 3 + [("ended", "failed"), ("queued", "")])
    assert [(entry.key, entry.count) for entry in entries] == [
        ("failed", 1),
        ("queued", 1),
        ("succeeded", 3),
    ]


def test_a_steps_length_leaves_out_the_time_between_pieces(team, node):
    job = make_job(team, shards=3, submitted_at=scenes.ago(500), queued_at=scenes.ago(490))
    first, second, third = job.shards.order_by("index")
    for shard, run, returning in ((first, 400, 350), (second, 390, 340), (third, 200, 180)):
        ages = (480, 470, 460, run + 1, run, returning, returning - 2, returning - 3)
        scenes.make_lease(shard, node, *ages, reason="exited", exit_code=0)
    scenes.set_states(job, "ended", "succeeded", ended_at=scenes.ago(170))
    found = stepped(
        job,
        pieces=3,
        delivering=False,
        sentence="",
    )
    length = {step.key: round((step.ms or 0) / 1000) for step in found}
    assert length["run"] == (400 - 340) + (200 - 180)
    assert length["output"] == 2 + 2 + 2


def test_steps_of_a_job_in_pieces_say_how_many_came_so_far(team, node):
    job = scenes.running_job(team, node)
    found = stepped(
        job,
        pieces=5,
        delivering=False,
        sentence="",
    )
    notes = {step.key: step.note for step in found}
    assert notes["output"] == "2 of 5 pieces"


def test_output_on_its_way_after_release_is_the_present_step(team, node):
    job = make_job(team)
    scenes.make_lease(job.shards.get(), node, *range(80, 0, -10))
    scenes.set_states(job, "active")
    found = stepped(
        job,
        pieces=1,
        delivering=True,
        released=True,
        sentence="On its way.",
    )
    assert next(step.key for step in found if step.mark == "current") == "output"
    took = {step.key: (step.mark, round((step.ms or 0) / 1000)) for step in found}
    assert took["output"] == ("current", 10)  # what was metered of it
    assert took["release"] == ("done", 10)
    waits = stepped(job, pieces=2, delivering=True, sentence="Another piece waits.")
    assert next(step.mark for step in waits if step.key == "release") == "todo"


@pytest.mark.parametrize("make", [scenes.running_job, scenes.succeeded_job, scenes.failed_job])
def test_the_rough_bar_is_the_exact_one_to_a_unit(team, node, make):
    """What many attempts are drawn by gives what a few are drawn by, a unit more or less."""
    job, at = make(team, node), db_now()
    exact = drawn(job, at)
    live = attempts.live_of(job)
    held = attempts.held_of(job, live, at)
    rough = rough_timeline(job, attempts.ended_marks(job), live, held, at)
    assert (rough.start, rough.end, rough.waiting_for_data_ms) == (exact.start, exact.end, 0)
    assert sum(part.ms for part in rough.stretches) == rough.wall_ms
    assert {r.phase: r.held_ms for r in rough.rows if r.metered} == {
        r.phase: r.held_ms for r in exact.rows if r.metered
    }
    unit = timedelta(milliseconds=-(-exact.wall_ms // BAR_WIDTH))
    shown_exact = [part for part in exact.stretches if part.end - part.start > 2 * unit]
    shown_rough = [part for part in rough.stretches if part.end - part.start > 2 * unit]
    for one, other in zip(shown_exact, shown_rough, strict=True):
        assert one.phase == other.phase
        assert abs(one.start - other.start) <= 2 * unit
        assert abs(one.end - other.end) <= 2 * unit


def test_the_sums_in_the_database_are_those_of_the_rows(team, node):
    """What the page adds up in queries is what the meter says of each attempt."""
    for make in (scenes.running_job, scenes.succeeded_job, scenes.failed_job):
        job, at = make(team, node), db_now()
        leases = attempts.leases_of(job)
        held = attempts.held_of(job, attempts.live_of(job), at)
        assert held.meter == job_meter(leases, held.meter.cap_gpu_ms, at)
        for phase, ms in held.phases.items():
            assert ms == sum(getattr(slices(lease, at), f"{phase}_ms") for lease in leases)
        assert marks(job).first["allocated_at"] == min(
            (lease.allocated_at for lease in leases if lease.allocated_at), default=None
        )

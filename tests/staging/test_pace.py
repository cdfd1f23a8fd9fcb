"""The mathematics of estimates: properties, and whole histories of links in simulated time."""

import json
import math
import random
from collections.abc import Iterator
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.estimates import pace
from staging.estimates.pace import Errors, Fit, Forecast, Track, Work

TICK_S = 1.0
STEP_S = 0.1
MB = 1e6

positive = st.floats(1e-3, 1e3)
works = st.builds(Work, st.integers(0, 10**5).map(float), st.integers(1, 10**12).map(float))


def dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311


class TestFit:
    @given(st.floats(1e4, 1e10), st.floats(1e-5, 1.0), st.integers(0, 2**16))
    def test_both_costs_are_found_where_stretches_differ(self, rate, file_s, seed):
        chance, fit = dice(seed), Fit()
        for _ in range(300):
            share = chance.random()
            work = Work(share / file_s, (1 - share) * rate)  # one second in all
            fit.learn(work, 1.0)
        work = Work(1 / file_s, rate)  # two seconds
        assert fit.cost.of(work) == pytest.approx(2, rel=0.05)
        assert fit.cost.byte == pytest.approx(1 / rate, rel=0.1)
        assert fit.cost.file == pytest.approx(file_s, rel=0.1)

    @given(works, positive)
    def test_one_mix_is_foreseen_as_it_was(self, work, seconds):
        fit = Fit()
        for _ in range(20):
            fit.learn(work, seconds)
        assert fit.cost.of(work) == pytest.approx(seconds, rel=0.02)

    @given(st.lists(st.tuples(works, positive), min_size=1, max_size=30))
    def test_no_cost_is_negative_or_endless(self, stretches):
        fit = Fit()
        for work, seconds in stretches:
            fit.learn(work, seconds)
        assert 0 < fit.cost.byte < math.inf
        assert 0 < fit.cost.file < math.inf

    @given(st.lists(st.floats(0.1, 10), min_size=2, max_size=20))
    def test_it_does_not_matter_how_a_time_is_cut(self, seconds):
        """With bytes alone: total time over total bytes, but for what fades in between."""
        whole, cut = Fit(), Fit()
        whole.learn(Work(0, 100 * MB), sum(seconds))
        for some in seconds:
            cut.learn(Work(0, 100 * MB * some / sum(seconds)), some)
        assert cut.cost.byte == pytest.approx(whole.cost.byte, rel=0.02)

    def test_nothing_is_known_before_something_was_seen(self):
        assert not Fit().known


class TestQuantiles:
    @given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.01, 10)), max_size=50))
    def test_they_rise_and_lie_within(self, found):
        low, middle, high = (pace.quantile(found, share) for share in (0.1, 0.5, 0.9))
        assert low <= middle <= high
        assert high <= max([*pace.MADE_UP, *(error for error, _ in found)])

    def test_errors_outweigh_what_was_made_up(self):
        found = [(0.01 * n, 1.0) for n in range(100)]
        assert pace.quantile(found, 0.9) == pytest.approx(0.9, abs=0.02)

    def test_errors_of_other_lengths_weigh_less(self):
        errors = Errors()
        errors.add(1.0, 3.0, 1.0)
        errors.add(64.0, 32.0, 64.0)
        assert list(errors.near(64.0)) == [(pytest.approx(math.log(0.5), abs=0.001), 1.0)]
        assert list(errors.near(4.0)) == [(pytest.approx(math.log(3), abs=0.001), pace.NEAR**2)]


class TestTrack:
    def test_a_new_link_says_nothing_at_first(self):
        track, fit = Track.on(Fit()), Fit()
        track.step(fit, Work(1, MB), 1.0)
        assert track.forecast(fit, Errors(), Work(1, MB)) is None
        track.step(fit, Work(1, MB), 2.5)
        assert track.forecast(fit, Errors(), Work(1, MB)) is not None

    def test_a_known_link_says_something_at_once(self):
        fit = Fit()
        for _ in range(10):
            fit.learn(Work(1, 10 * MB), 1.0)
        found = Track.on(fit).forecast(fit, Errors(), Work(60, 600 * MB))
        assert found is not None
        assert found.p50 == pytest.approx(60, rel=0.05)
        assert found.p50 < found.p90

    @given(
        st.lists(st.tuples(works, positive), min_size=3, max_size=40),
        works,
        st.floats(0, 1e5),
    )
    def test_forecasts_are_numbers_in_order(self, stretches, left, waited):
        fit = Fit()
        track = Track.on(fit)
        for work, seconds in stretches:
            track.step(fit, work, seconds)
        found = track.forecast(fit, Errors(), left, waited)
        if found is not None:
            assert 0 <= found.p50 <= found.p90 < math.inf
            assert 0 <= found.rate < math.inf

    @given(st.lists(st.tuples(works, positive), max_size=60))
    def test_what_is_remembered_is_bounded_and_survives_json(self, stretches):
        fit, errors = Fit(), Errors()
        track = Track.on(fit)
        for work, seconds in stretches:
            track.step(fit, work, seconds)
        again = Track.from_json(json.loads(json.dumps(track.as_json())))
        left = Work(1, MB)
        one, other = track.forecast(fit, errors, left), again.forecast(fit, errors, left)
        assert (one is None) == (other is None)
        if one and other:
            assert one.p90 == pytest.approx(other.p90, rel=0.01)
        track.finish(errors)
        kept = pace.errors_from_json(json.loads(json.dumps(pace.errors_as_json(errors))))
        assert kept == errors
        assert len(track.said) < 120

    def test_a_day_is_remembered_in_few_forecasts(self):
        fit = Fit()
        track = Track.on(fit)
        for _ in range(3000):
            track.step(fit, Work(1, 30 * MB), 30.0)
        assert len(track.said) < 60
        assert len(json.dumps(track.as_json())) < 60_000

    def test_a_standstill_makes_it_later(self):
        fit = Fit()
        track = Track.on(fit)
        for _ in range(20):
            track.step(fit, Work(1, 10 * MB), 1.0)
        left = Work(30, 300 * MB)
        usual, still = (track.forecast(fit, Errors(), left, waited) for waited in (1.0, 60.0))
        assert usual is not None
        assert still is not None
        assert still.p50 > 3 * usual.p50

    def test_what_is_counted_at_the_end_alone_comes_nearer(self):
        """Before the first count of a transfer on a known link the time that has passed is over."""
        fit = Fit()
        for _ in range(10):
            fit.learn(Work(1, 10 * MB), 1.0)
        track = Track.on(fit)
        left = Work(60, 600 * MB)
        found = [track.forecast(fit, Errors(), left, waited) for waited in (0.0, 20.0, 40.0)]
        times = [one.p50 for one in found if one]
        assert times == [pytest.approx(times[0] - waited) for waited in (0, 20, 40)]


# -- whole histories


def regimes(chance: random.Random, rates: list[float], mean_s: float) -> Iterator[float]:
    """A link that changes between rates, at times that nobody can foresee."""
    rate = chance.choice(rates)
    while True:
        for _ in range(max(1, int(chance.expovariate(1 / mean_s) / STEP_S))):
            yield rate
        rate = chance.choice([other for other in rates if other != rate])


def noisy(chance: random.Random, rate: float, spread: float) -> Iterator[float]:
    while True:
        yield rate * math.exp(chance.gauss(0, spread))


type Run = tuple[float, list[tuple[float, Forecast | None]]]


def transfer(fit: Fit, errors: Errors, rates: Iterator[float], size: float) -> Run:
    """Files of 10 MB over a link; how long it took, and what was forecast each second."""
    track, whole = Track.on(fit), Work(size / 10e6, size)
    at = done = seen_at = 0.0
    seen, said = Work(), []
    while done < size:
        done, at = min(size, done + next(rates) * STEP_S), at + STEP_S
        if at - seen_at >= TICK_S - 1e-9 or done >= size:
            now = Work(done // 10e6, done)
            track.step(fit, now - seen, at - seen_at)
            seen, seen_at = now, at
            said.append((at, track.forecast(fit, errors, whole - now)))
    track.finish(errors)
    return at, said


def history(rates: Iterator[float], chance: random.Random, count: int = 60) -> list[Run]:
    fit, errors = Fit(), Errors()
    sizes = [math.exp(chance.uniform(math.log(200e6), math.log(800e6))) for _ in range(count)]
    return [transfer(fit, errors, rates, size) for size in sizes]


def cover(runs: list[Run]) -> float:
    """Share of the moments at which the truth was within P90."""
    hits = [took - at <= said.p90 for took, rows in runs for at, said in rows if said and at < took]
    return sum(hits) / len(hits)


def half_way(runs: list[Run]) -> float:
    """Median error of P50 at half time, as a share of the time then left."""
    errors = []
    for took, rows in runs:
        at, said = min(rows, key=lambda row: abs(row[0] - took / 2))
        if said is not None:
            errors.append(abs(said.p50 - (took - at)) / (took - at))
    return median(errors)


@pytest.mark.parametrize("seed", range(3))
class TestHistories:
    @pytest.mark.parametrize("mean_s", [5, 15, 60])
    def test_nine_in_ten_on_a_link_that_changes(self, seed, mean_s):
        chance = dice(seed)
        runs = history(regimes(chance, [8e6, 16e6, 32e6], mean_s), chance)
        assert 0.85 <= cover(runs[10:]) <= 0.97

    @pytest.mark.parametrize("spread", [0.0, 0.5])
    def test_a_steady_link_is_known_well(self, seed, spread):
        chance = dice(seed)
        runs = history(noisy(chance, 20e6, spread), chance, 30)
        assert half_way(runs) <= 0.2
        assert cover(runs[10:]) >= 0.85


@pytest.mark.parametrize(("before", "after"), [(20e6, 5e6), (5e6, 20e6)])
def test_thirty_seconds_after_a_step_it_has_followed(before, after):
    def rates() -> Iterator[float]:
        yield from [before] * 600
        while True:
            yield after

    took, said = transfer(Fit(), Errors(), rates(), before * 60 + after * 120)
    late = [(at, found) for at, found in said if at >= 90 and took - at > 10]
    for at, found in late:
        assert found.p50 == pytest.approx(took - at, rel=0.2)

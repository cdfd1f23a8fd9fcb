"""How long a transfer still takes, from what its link has shown. Pure: numbers in, numbers out.

*Cost.* A stretch of a transfer takes `bytes x a + files x b` seconds. A link learns a and b from
every stretch that was observed, by least squares whose weights halve in ten minutes of moving time
(`Fit`). A stretch weighs as one over the time expected of it: for one of the two alone that is
total time over total work, so it does not matter into how many stretches a time is cut. Where every
stretch had the same mix, a and b cannot be told apart: a ridge of one part in a hundred decides.

*Pace.* The same sums with a half-life of six seconds say how fast the link is now, as one factor on
the cost (`Pace`). Two memories, because how bytes and files compare takes many transfers to learn
and changes seldom, while the speed may change at any moment. A transfer on a link with history
begins at the factor one, which counts as three seconds of observation and fades as they do.

*Spread.* P50 and P90 are quantiles of what such forecasts were wrong by, as the logarithm of true
over forecast time, kept by the length of the forecast in powers of two (`Errors`): a link that
changes its speed every minute is foreseen well for seconds and badly for hours. A transfer that
ends says how wrong each of its forecasts was, weighed by how long it stood: so a quantile is one of
the moments at which somebody may have looked. For P90 a transfer looks back at its own forecasts of
stretches that are over now, too: not for P50, which would lean to the side of the latest change of
speed long after the pace has followed it. A few made-up errors stand in until there are real ones,
and weigh less with every real one. Quantiles of errors and no formula for a variance: they
need no assumption on how a link misbehaves, and correct a bias of the forecast, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log, log2
from typing import Any

LEARN_HALF_S = 600.0
PACE_HALF_S = 6.0
PACE_HALF_STEPS = 2.0  # for work that is counted seldom: a large file, a part of a turn
FAITH_S = 3.0
KNOWN_S = 3.0  # of a link without history, before which nothing is said
KNOWN_STEPS = 2
HISTORY_S = 5.0  # moving time from which on a link counts as known
# What a link is taken for before it has shown anything: only the comparison of both matters.
START_BYTE, START_FILE = 1 / 20e6, 0.001  # seconds
RIDGE = 0.01
# Errors of one transfer are alike, so there are fewer than it seems, and a high quantile of few is
# too low: simulated, this one holds nine times in ten (tests/staging/test_pace.py).
P50_AT, P90_AT = 0.5, 0.92
KEPT = 128  # errors of one length
NEAR = 0.25  # weight of errors of half and of twice the length
FARTHEST = 3
LONGEST = 24  # 2**24 s, half a year
MADE_UP = tuple(0.5 * z for z in (-1.28, -0.84, -0.52, -0.25, 0.0, 0.25, 0.52, 0.84, 1.28))
MADE_UP_WEIGHT = 4.0
MOST_FACTOR = 20.0  # between forecast and quantile
SPACING = 1.25  # between the ages of two forecasts that a transfer remembers


@dataclass(frozen=True)
class Work:
    files: float = 0.0
    bytes: float = 0.0

    def __sub__(self, other: "Work") -> "Work":
        return Work(self.files - other.files, self.bytes - other.bytes)

    def __bool__(self) -> bool:
        return self.files > 0 or self.bytes > 0


@dataclass(frozen=True)
class Cost:
    """Seconds that a byte and a file take."""

    byte: float = START_BYTE
    file: float = START_FILE

    def of(self, work: Work) -> float:
        return self.byte * work.bytes + self.file * work.files


@dataclass
class Fit:
    """The cost of a link. Sums are in the units of the start: 20 MB and 1,000 files a second."""

    bb: float = 0.0
    bf: float = 0.0
    ff: float = 0.0
    bt: float = 0.0
    ft: float = 0.0
    seconds: float = 0.0  # moving time it has seen, faded

    @property
    def known(self) -> bool:
        return self.seconds >= HISTORY_S

    def learn(self, work: Work, seconds: float) -> None:
        b, f = work.bytes * START_BYTE, work.files * START_FILE
        keep = 0.5 ** (seconds / LEARN_HALF_S)
        weight = 1 / max(self.cost.of(work), seconds / 10)
        more = (b * b, b * f, f * f, b * seconds, f * seconds)
        self.bb, self.bf, self.ff, self.bt, self.ft = (
            old * keep + weight * new
            for old, new in zip((self.bb, self.bf, self.ff, self.bt, self.ft), more, strict=True)
        )
        self.seconds = self.seconds * keep + seconds

    @property
    def cost(self) -> Cost:
        """Least squares, neither negative; the start where nothing was seen."""
        whole = self.bb + 2 * self.bf + self.ff
        if not whole:
            return Cost()
        pull = (self.bt + self.ft) / whole  # the one factor that fits best for both
        # Of files on a link that is slow with bytes nothing is known: they are not slow with it.
        bb, ff = self.bb * (1 + RIDGE) or 1.0, self.ff * (1 + RIDGE) or 1.0
        bt = self.bt + (self.bb * RIDGE or 1.0) * pull
        ft = self.ft + (self.ff * RIDGE or 1.0) * min(pull, 1.0)
        det = bb * ff - self.bf * self.bf
        byte, file = (bt * ff - ft * self.bf) / det, (ft * bb - bt * self.bf) / det
        if byte <= 0:
            byte, file = 0.0, ft / ff
        elif file <= 0:
            byte, file = bt / bb, 0.0
        least = 1e-6 * pull
        return Cost(max(byte, least) * START_BYTE, max(file, least) * START_FILE)


@dataclass
class Pace:
    """What was seen lately: work and the time it took, faded. `gap`: usual time of a step."""

    files: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    faith: float = 0.0
    gap: float = 0.0

    def step(self, work: Work, seconds: float) -> None:
        keep = max(0.5 ** (seconds / PACE_HALF_S), 0.5 ** (1 / PACE_HALF_STEPS))
        self.files = self.files * keep + work.files
        self.bytes = self.bytes * keep + work.bytes
        self.seconds = self.seconds * keep + seconds
        self.faith *= keep
        self.gap = 0.7 * self.gap + 0.3 * seconds if self.gap else seconds

    def factor(self, cost: Cost, over: float = 0.0) -> float:
        """How much slower than the cost it is now; `over`: seconds in which nothing came."""
        expected = cost.of(Work(self.files, self.bytes)) + self.faith
        return (self.seconds + self.faith + over) / expected if expected else 1.0

    @property
    def rate(self) -> float:
        """Bytes a second; 0 where nothing was seen."""
        return self.bytes / self.seconds if self.seconds else 0.0


def length_of(seconds: float) -> int:
    """The power of two that a length of time is nearest to."""
    return min(LONGEST, max(0, round(log2(max(seconds, 1.0)))))


@dataclass
class Errors:
    """Logarithms of true over forecast time, the latest of each length of forecast."""

    rings: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, forecast: float, truth: float, stood: float) -> None:
        """`stood`: for how many seconds this was the forecast."""
        if forecast <= 0 or truth <= 0:
            return
        length = length_of(forecast)
        error = min(5.0, max(-5.0, log(truth / forecast)))
        ring = self.rings.setdefault(length, [])
        ring.append((round(error, 3), round(stood / 2**length, 3)))
        del ring[:-KEPT]

    def near(self, seconds: float) -> Iterable[tuple[float, float]]:
        """(error, weight) of forecasts of about that length."""
        here = length_of(seconds)
        for length, ring in self.rings.items():
            away = abs(length - here)
            if away <= FARTHEST:
                yield from ((error, weight * NEAR**away) for error, weight in ring)


def quantile(found: Iterable[tuple[float, float]], share: float) -> float:
    """The weighted quantile of errors, the made-up ones among them."""
    each = MADE_UP_WEIGHT / len(MADE_UP)
    rows = sorted([*found, *((error, each) for error in MADE_UP)])
    left = share * sum(weight for _, weight in rows)
    for error, weight in rows:
        left -= weight
        if left <= 0:
            return error
    return rows[-1][0]


@dataclass(frozen=True)
class Forecast:
    """Bytes a second now, and the seconds left: as likely more as less, and nine times in ten."""

    rate: float
    p50: float
    p90: float


@dataclass(frozen=True)
class Said:
    """A forecast that a transfer remembers: when (moving seconds), what was done, at which cost."""

    clock: float
    done: Work
    cost: Cost


@dataclass
class Track:
    """One transfer, stretch by stretch. Its clock stands still while nothing is to move."""

    history: bool = False  # the link was known when it began
    clock: float = 0.0
    steps: int = 0
    done: Work = field(default_factory=Work)
    pace: Pace = field(default_factory=Pace)
    said: list[Said] = field(default_factory=list)
    errors: Errors = field(default_factory=Errors)
    looked: dict[int, float] = field(default_factory=dict)

    @classmethod
    def on(cls, fit: Fit) -> "Track":
        """A new transfer on a link."""
        track = cls(history=fit.known, pace=Pace(faith=FAITH_S if fit.known else 0.0))
        track._remember(fit)
        return track

    @property
    def known(self) -> bool:
        return self.history or (self.clock >= KNOWN_S and self.steps >= KNOWN_STEPS)

    def step(self, fit: Fit, work: Work, seconds: float) -> None:
        """Some work was seen to be done in some moving seconds; the link learns from it, too."""
        if seconds <= 0 or not work or min(work.files, work.bytes) < 0:
            return
        self.clock, self.steps = self.clock + seconds, self.steps + 1
        self.done = Work(self.done.files + work.files, self.done.bytes + work.bytes)
        self._look_back()
        self.pace.step(work, seconds)
        fit.learn(work, seconds)
        self._remember(fit)

    def _remember(self, fit: Fit) -> None:
        if not self.known:
            return
        cost = fit.cost
        factor = self.pace.factor(cost)
        self.said.append(Said(self.clock, self.done, Cost(cost.byte * factor, cost.file * factor)))
        kept = [self.said[-1]]
        for said in reversed(self.said[:-1]):
            age, last = self.clock - said.clock, self.clock - kept[-1].clock
            if age >= last * SPACING + 0.2:
                kept.append(said)
        self.said = kept[::-1]

    def _look_back(self) -> None:
        """Compare what was forecast one, two, four, ... seconds ago for the work done since."""
        for length in range(length_of(self.clock) + 1):
            span = 2.0**length
            if self.clock - self.looked.get(length, 0.0) < span / 2:
                continue
            ages = [
                (abs(log2((self.clock - s.clock) / span)), s)
                for s in self.said
                if self.clock > s.clock
            ]
            if not ages:
                continue
            off, said = min(ages, key=lambda pair: pair[0])
            if off <= 0.5:
                self.looked[length] = self.clock
                self.errors.add(
                    said.cost.of(self.done - said.done), self.clock - said.clock, span / 2
                )

    def finish(self, errors: Errors) -> None:
        """It has ended: the link's errors learn how wrong each remembered forecast was."""
        for said, after in pairwise(self.said):
            left = self.done - said.done
            errors.add(said.cost.of(left), self.clock - said.clock, after.clock - said.clock)

    def forecast(
        self, fit: Fit, errors: Errors, left: Work, waited: float = 0.0
    ) -> Forecast | None:
        """None while too little has moved to say. `waited`: moving seconds since the last step."""
        if not self.known:
            return None
        cost = fit.cost
        # Work is counted some time after it was done. What was usual is no standstill, and over.
        usual = 2 * max(self.pace.gap, 1.0) if self.steps else max(cost.of(left), 2.0)
        spent = min(waited, usual)
        raw = cost.of(left) * self.pace.factor(cost, waited - spent)
        rate = self.pace.rate or (left.bytes / raw if raw else 0.0)
        near = list(errors.near(raw))
        p50 = raw * min(MOST_FACTOR, exp(quantile(near, P50_AT)))
        p90 = raw * min(MOST_FACTOR, exp(quantile([*near, *self.errors.near(raw)], P90_AT)))
        return Forecast(rate, max(0.0, p50 - spent), max(0.0, p50 - spent, p90 - spent))

    # -- kept as JSON

    def as_json(self) -> dict[str, Any]:
        said = [
            [round(s.clock, 2), s.done.files, s.done.bytes, s.cost.byte, s.cost.file]
            for s in self.said
        ]
        pace = self.pace
        return {
            "history": self.history,
            "clock": self.clock,
            "steps": self.steps,
            "done": [self.done.files, self.done.bytes],
            "pace": [pace.files, pace.bytes, pace.seconds, pace.faith, pace.gap],
            "said": said,
            "errors": errors_as_json(self.errors),
            "looked": {str(length): round(at, 2) for length, at in self.looked.items()},
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Track":
        return cls(
            history=found["history"],
            clock=found["clock"],
            steps=found["steps"],
            done=Work(*found["done"]),
            pace=Pace(*found["pace"]),
            said=[Said(at, Work(f, b), Cost(x, y)) for at, f, b, x, y in found["said"]],
            errors=errors_from_json(found["errors"]),
            looked={int(length): at for length, at in found["looked"].items()},
        )


def errors_as_json(errors: Errors) -> dict[str, list[list[float]]]:
    return {str(length): [list(pair) for pair in ring] for length, ring in errors.rings.items()}


def errors_from_json(found: dict[str, list[list[float]]]) -> Errors:
    return Errors(
        {int(length): [(error, weight) for error, weight in ring] for length, ring in found.items()}
    )


def fit_as_json(fit: Fit) -> list[float]:
    return [fit.bb, fit.bf, fit.ff, fit.bt, fit.ft, fit.seconds]


def fit_from_json(found: list[float]) -> Fit:
    return Fit(*found)

"""The pieces of a job as one grid that stays readable at 10,000. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from portal.base.icons import Look, look_of

LINKED = 240  # up to here each piece is a link of its own; beyond it the grid is one drawing
CELL = 8


@dataclass(frozen=True)
class Run:
    """Cells of one row that look alike, drawn as one rectangle."""

    x: int
    y: int
    width: int
    tone: str


@dataclass(frozen=True)
class Legend:
    key: str
    look: Look
    count: int


@dataclass(frozen=True)
class Grid:
    columns: int
    rows: int
    runs: list[Run]

    @property
    def width(self) -> int:
        return self.columns * CELL

    @property
    def height(self) -> int:
        return self.rows * CELL

    @property
    def mesh(self) -> str:
        """The path of the lines that part the cells again after equal ones were joined."""
        across = "".join(f"M0 {y}H{self.width}" for y in range(0, self.height + 1, CELL))
        return across + "".join(f"M{x} 0V{self.height}" for x in range(0, self.width + 1, CELL))


def key_of(state: str, outcome: str) -> str:
    """What the filter of the pieces' table calls this: the outcome once there is one."""
    return outcome if state == "ended" else state


def legend(states: Sequence[tuple[str, str]]) -> list[Legend]:
    """How many pieces are in each state, what needs a look first."""
    order = ("failed", "lost", "timed_out", "active", "delivering", "queued", "succeeded")
    counts = Counter(key_of(state, outcome) for state, outcome in states)
    rank = {key: number for number, key in enumerate(order)}
    keys = sorted(counts, key=lambda key: (rank.get(key, len(order)), key))
    return [Legend(key, look_of(key), counts[key]) for key in keys]


def grid(states: Sequence[tuple[str, str]]) -> Grid:
    """A drawing of all pieces in order, row by row; about three times as wide as high."""
    columns = max(20, min(200, round((len(states) * 3) ** 0.5)))
    tone_of = {pair: look_of(*pair).tone for pair in set(states)}
    tones = [tone_of[pair] for pair in states]
    runs: list[Run] = []
    for number, tone in enumerate(tones):
        column, row = number % columns, number // columns
        last = runs[-1] if runs else None
        if last and column and last.tone == tone:
            runs[-1] = Run(last.x, last.y, last.width + CELL, tone)
        else:
            runs.append(Run(column * CELL, row * CELL, CELL, tone))
    return Grid(columns, -(-len(states) // columns), runs)

"""`make bench-eta`: how right the times are that the portal says of a transfer.

Syncs from SeaweedFS over a proxy of the benchmark's own: over a link whose speed changes, over a
steady one, and over one with a single step. What is judged are the rows that the portal keeps.
Values go to var/bench/eta.json. Not a test: the machine itself may be slow for a while.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.eta import judge
from tests.bench.eta.judge import Run
from tests.bench.eta.link import Link
from tests.bench.uploads import figures
from tests.staging.sync.place import Place
from tests.staging.sync.stores import KEY, SECRET, Weed

TARGET = figures.ROOT / Path("var/bench/eta.json")
BUCKET = "eta"
MB = 10**6
SETS = {"a": 4, "b": 7, "c": 10, "d": 13}  # objects of 24 MB in a set; each has 60 small ones, too
LARGE, SMALL, SMALLS = 24 * MB, 64 * 2**10, 60
CHANGING = [8.0 * MB, 16.0 * MB, 32.0 * MB]
STAYS_S = 15.0  # mean time between two changes of speed
STEADY = 16.0 * MB
STEPS = [(24.0 * MB, 8.0 * MB), (6.0 * MB, 18.0 * MB)]
STEP_AFTER_S = 15.0
LIMIT_S = 600
BARS: dict[str, tuple[float, float]] = {
    "p90_cover": (0.85, 0.97),
    "half_way_error": (0.0, 0.20),
    "step_follow_s": (0.0, 30.0),
}


def say(line: str) -> None:
    print(line, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-eta ARGS=...", description=__doc__)
    parser.add_argument(
        "--changing", type=int, default=40, help="syncs over the changing link (40)"
    )
    parser.add_argument("--warm", type=int, default=8, help="of those that only teach it (8)")
    parser.add_argument("--steady", type=int, default=9, help="syncs over the steady link (9)")
    parser.add_argument("--steps", type=int, default=2, help="syncs of each step (2)")
    parser.add_argument("--seed", type=int, default=4, help="of the times of changes (4)")
    parser.add_argument("--verbose", action="store_true", help="each estimate of each step")
    return parser.parse_args()


def fill(store: Weed) -> None:
    chance = random.Random(4)  # noqa: S311  the same objects in each run
    store.client.create_bucket(Bucket=BUCKET)
    for name, larges in SETS.items():
        store.put(BUCKET, {f"{name}/large {n}": chance.randbytes(LARGE) for n in range(larges)})
        store.put(BUCKET, {f"{name}/small {n}": chance.randbytes(SMALL) for n in range(SMALLS)})


class Bench:
    """An installation with a broker, two workers that copy, and the beat; this process looks on."""

    def __init__(self, place: Place, store: Weed, asked: argparse.Namespace) -> None:
        self.place, self.store, self.asked = place, store, asked
        self.count = 0

    def link(self, rate: float) -> tuple[Link, Any]:
        """A new link, and a connection over it."""
        from portal.teams.models import Team
        from staging.sync import connections

        link = Link(self.store.port, rate)
        connection = connections.create_connection(
            team=Team.objects.get(),
            name=link.endpoint,
            endpoint=link.endpoint,
            bucket=BUCKET,
            key_id=KEY,
            secret=SECRET,
            actor="owner@climate.example",
        )
        return link, connection

    def sync(
        self, connection: Any, prefix: str, during: Callable[[Any], None] | None = None
    ) -> Run:
        """One sync to its end; its data is deleted again, so that the next one moves as much."""
        from staging import services
        from staging.models import Transfer
        from staging.states import DatasetReason
        from staging.sync import sources
        from staging.sync.states import SourceKind

        self.count += 1
        actor = "owner@climate.example"
        dataset = services.create_dataset(
            team=connection.team, name=f"Run {self.count}", actor=actor
        )
        choice = sources.Choice(SourceKind.S3, connection, prefix=prefix)
        sources.create_source(dataset=dataset, choice=choice, actor=actor)
        rows = Transfer.objects.filter(subject=f"dataset:{dataset.code}")
        if during is not None:
            wait(lambda: rows.exists(), "the sync begins")
            during(rows.get())
        wait(lambda: rows.filter(complete=True).exists(), "the sync ends")
        wait(lambda: self._staged(dataset), "it is staged")
        run = Run.of(rows.get())
        services.delete_dataset(
            dataset=dataset, actor=actor, reason=DatasetReason.DELETED_BY_PERSON
        )
        services.purge_dataset(dataset=dataset)
        return run

    def _staged(self, dataset: Any) -> bool:
        dataset.refresh_from_db()
        return dataset.state == "staged"

    def changing(self) -> tuple[dict[str, float], dict[str, object]]:
        link, connection = self.link(CHANGING[1])
        chance = random.Random(self.asked.seed)  # noqa: S311
        runs = []
        with link.changing(CHANGING, STAYS_S, self.asked.seed):
            for number in range(self.asked.changing):
                run = self.sync(connection, f"{chance.choice(list(SETS))}/")
                runs.append(run)
                say(f"changing {number + 1:3}: {run.took:5.1f} s, in P90 {judge.cover([run]):.0%}")
        link.close()
        judged = runs[self.asked.warm :]
        about = {
            "runs": len(judged),
            "estimates": sum(len(run.told) for run in judged),
            "median error": judge.errors(judged),
            "cover of each run": [round(judge.cover([run]), 2) for run in judged],
        }
        return {"p90_cover": judge.cover(judged)}, {"changing link": about}

    def steady(self) -> tuple[dict[str, float], dict[str, object]]:
        link, connection = self.link(STEADY)
        runs = [self.sync(connection, "c/") for _ in range(self.asked.steady)]
        link.close()
        found = judge.errors(runs)
        say(f"steady: median errors {found}, within P90 {judge.cover(runs):.0%}")
        first = runs[0].told[0].at if runs[0].told else None
        again = [run.told[0].at if run.told else None for run in runs[1:]]
        about = {
            "runs": len(runs),
            "median error": found,
            "p90_cover": round(judge.cover(runs), 3),
            "first estimate of a new link, s": first,
            "first estimates of a known one, s": again,
        }
        return {"half_way_error": found["50%"]}, {"steady link": about}

    def step(self) -> tuple[dict[str, float], dict[str, object]]:
        from portal.base.clock import db_now

        followed: dict[str, list[float]] = {}
        for before, after in STEPS * self.asked.steps:
            link, connection = self.link(before)
            stepped: list[datetime] = []

            def jump(row: Any, link: Link = link, after: float = after, at: list = stepped) -> None:
                time.sleep(STEP_AFTER_S)
                link.rate = after
                at.append(db_now())

            run = self.sync(connection, "", jump)
            link.close()
            if self.asked.verbose:
                for told in run.told:
                    say(f"  {told.at:5.1f} s: {told.p50:5.1f} to {told.p90:5.1f}, {told.left:5.1f}")
            name = f"{before / MB:.0f} to {after / MB:.0f} MB/s"
            followed.setdefault(name, []).append(round(run.followed_after(stepped[0]), 1))
            say(f"step {name}: followed after {followed[name][-1]} s of {run.took:.0f} s")
        worst = max(max(times) for times in followed.values())
        return {"step_follow_s": worst}, {"steps, s": followed}


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"Not within {LIMIT_S} s: {what}.")
        time.sleep(0.25)


def run_in(folder: Path, asked: argparse.Namespace) -> tuple[dict[str, float], dict[str, object]]:
    (folder / "weed").mkdir()
    store = Weed(folder / "weed")
    place = Place(folder)
    os.environ |= place.env
    values: dict[str, float] = {}
    about: dict[str, object] = {}
    try:
        store.start()
        fill(store)
        place.start()
        place.beat()
        for _ in range(2):
            place.worker()
        control = ("--pool", "solo", "--queues", "control", "-n", "control@%h")
        place.celery("worker", *control, "--loglevel", "WARNING", "--without-mingle")
        import django

        django.setup()
        bench = Bench(place, store, asked)
        for part in (bench.steady, bench.step, bench.changing):
            found, more = part()
            values |= found
            about |= more
            figures.write(values, about, TARGET)
        return values, about
    finally:
        place.stop()
        store.stop()


def main() -> int:
    os.chdir(figures.ROOT)
    asked = options()
    context = figures.context()
    with tempfile.TemporaryDirectory(prefix="eta-") as folder:
        values, about = run_in(Path(folder), asked)
    figures.write(values, context | about, TARGET)
    say("")
    for name, (least, most) in BARS.items():
        holds = "holds" if least <= values[name] <= most else "IS NOT MET"
        say(f"{name:<16} {values[name]:8.3f}   the bar {least:g} to {most:g} {holds}")
    say(f"written to {TARGET.relative_to(figures.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

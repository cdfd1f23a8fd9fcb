"""`make bench-pages`: how long the live part of a job page takes to build with 10,000 pieces.

Values go to var/bench/pages.json: wall and processor time, medians of all runs. Not a test.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import tests.environment  # noqa: F401  the data of the installation beside it stays untouched


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-pages ARGS=...", description=__doc__)
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=15)
    return parser.parse_args()


def main() -> None:
    asked = options()
    with tempfile.TemporaryDirectory(prefix="e31-bench-") as folder:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/bench.sqlite3"
        os.environ["DJANGO_SETTINGS_MODULE"] = "portal.settings"
        import django

        django.setup()
        measure(asked.pieces, asked.runs)


def measure(pieces: int, runs: int) -> None:
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client

    from portal.teams.models import Membership, Team
    from tests.bench.uploads import figures
    from tests.factories import make_node
    from tests.pages import scenes

    call_command("migrate", verbosity=0)
    settings.ALLOWED_HOSTS = ["*"]
    team = Team.objects.create(name="Bench")
    user = get_user_model().objects.create(email="bench@example.org")
    Membership.objects.create(team=team, user=user)
    nodes = [make_node(f"n{n}", gpus=8) for n in range(5)]
    job = scenes.with_attempts(scenes.huge_job(team, pieces), nodes)
    client = Client()
    client.force_login(user)
    wall, cpu = [], []
    for _ in range(runs + 1):  # the first one loads templates
        begun, used = time.perf_counter(), time.process_time()
        answer = client.get(f"/jobs/{job.code}/live")
        wall.append((time.perf_counter() - begun) * 1000)
        cpu.append((time.process_time() - used) * 1000)
        if answer.status_code != 200:
            raise SystemExit(f"The page answered {answer.status_code}.")
    values = {"job_live_wall_ms": wall[1:], "job_live_cpu_ms": cpu[1:]}
    for name, runs_of_it in values.items():
        print(f"{name:<20} {figures.spread(runs_of_it)} ms, {pieces:,} pieces")
    about = figures.context() | {"pieces": pieces, "bytes": len(answer.content)}
    about |= {name: figures.summary(v) for name, v in values.items()}
    medians = {name: figures.median(v) for name, v in values.items()}
    figures.write(medians, about, figures.ROOT / Path("var/bench/pages.json"))


if __name__ == "__main__":
    main()

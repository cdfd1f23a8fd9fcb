"""The history of a job speaks the page's words, for every verb that the code writes."""

import ast
from pathlib import Path

import pytest

from jobs import services as jobs
from jobs.models import Job
from portal.base.clock import db_now
from portal.pages.history import WORDS, history
from tests.factories import make_job

JOBS = Path(__file__).parents[2] / "jobs"


def verbs_written() -> set[str]:
    """String verbs of `move(job, …)` and `….note(…)` in the jobs app, shards' left out."""
    found = set()
    for path in JOBS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            place = {"note": 0, "move": 2}.get(name)
            if place is None or len(node.args) <= place:
                continue
            first, verb = node.args[0], node.args[place]
            if name == "move" and getattr(first, "id", "") != "job":
                continue
            if isinstance(verb, ast.Constant):
                found.add(verb.value)
    return found


def test_every_verb_has_words():
    written = verbs_written()
    assert {"submit", "queue", "end", "cancel_asked", "saved"} <= written
    assert written <= set(WORDS)


@pytest.mark.django_db
def test_who_did_what_and_why(team):
    job = make_job(team)
    jobs.cancel(job=job, actor="owner@climate.example")
    latest, asked = history(Job.objects.get(), 10)[:2]
    assert (latest.what, latest.by) == ("Ended: cancelled", "the portal")
    assert latest.why == "Cancelled by a member of the team."
    assert (asked.what, asked.by) == ("Asked to be cancelled", "owner@climate.example")
    job.note("end", at=db_now(), actor="system", detail={"outcome": "timed_out"})
    assert history(job, 1)[0].what == "Ended: timed out"

"""What happened to a job, in the words of the page."""

from dataclasses import dataclass
from datetime import datetime

from jobs.models import Job, JobEvent
from jobs.states import Reason

WORDS = {
    "saved": "Draft saved",
    "copied": "Copied from another job",
    "submit": "Submitted",
    "queue": "Every input is staged; queued",
    "activate": "Compute was granted to the first piece",
    "wait": "No piece holds compute; it waits again",
    "cancel_asked": "Asked to be cancelled",
    "end": "Ended",
    "clear": "Inputs, code and logs deleted; the output stays",
}
PORTAL = {"system": "the portal", "scheduler": "the portal"}


@dataclass(frozen=True)
class Happening:
    at: datetime
    what: str
    by: str
    why: str = ""


def history(job: Job, most: int) -> list[Happening]:
    """The latest `most` events of a job, newest first."""
    return [_happening(event) for event in job.events.order_by("-at", "-id")[:most]]


def _happening(event: JobEvent) -> Happening:
    what = WORDS.get(event.verb, event.verb)
    outcome = event.detail.get("outcome", "")
    if event.verb == "end" and outcome:
        what = f"{what}: {str(outcome).replace('_', ' ')}"
    why = str(dict(Reason.choices).get(event.reason, event.reason))
    return Happening(event.at, what, PORTAL.get(event.actor, event.actor), why)

"""What happened to a dataset, in the words of the page."""

from dataclasses import dataclass
from datetime import datetime

from staging.models import Dataset, DatasetEvent
from staging.states import DatasetReason

WORDS = {
    "declare": "Created",
    "list": "First files listed",
    "retry": "Taken up again",
    "seal": "Finished: no more files",
    "check": "Every file had arrived; the check began",
    "verify": "Every file was read back and matches: staged",
    "fail": "Failed",
    "stale": "The source changed",
    "sync": "A sync began to fill it",
    "change": "The source changed after it was listed",
    "terminate": "An upload was given up",
    "mismatch": "What its parts made was not the file that was declared; send it again",
    "remove": "A file was removed",
    "keep": "The date of deletion was set",
    "notify": "Deletion announced",
    "delete": "Deletion decided",
    "purge": "The last byte left the store: deleted",
}
PORTAL = {"system", "retention policy", "sync"}


@dataclass(frozen=True)
class Happening:
    at: datetime
    what: str
    by: str


def history(dataset: Dataset, most: int) -> list[Happening]:
    """The latest `most` events, newest first."""
    return [_happening(event) for event in dataset.events.order_by("-at", "-id")[:most]]


def _happening(event: DatasetEvent) -> Happening:
    what = WORDS.get(event.verb, event.verb)
    if more := _more(event):
        what = f"{what}: {more}"
    return Happening(event.at, what, who(event.actor))


def who(actor: str) -> str:
    """A person's address, or the part of the installation that acted."""
    if actor.startswith("lease:"):
        return "the node"
    return "the portal" if actor in PORTAL else actor


def _more(event: DatasetEvent) -> str:
    detail = event.detail
    match event.verb:
        case "remove" | "mismatch":
            return str(detail.get("path", ""))
        case "keep":
            days = detail.get("days")
            return f"{days} day{'' if days == 1 else 's'} from then" if days else "none"
        case "notify":
            ahead = "a week" if detail.get("ahead") == 7 else "a day"
            return f"{ahead} ahead, told {detail.get('to')} by mail"
        case "fail" | "delete" if event.reason != DatasetReason.DELETED_BY_PERSON:
            return str(dict(DatasetReason.choices).get(event.reason, "")).rstrip(".")
    return ""

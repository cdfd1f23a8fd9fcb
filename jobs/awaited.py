"""What jobs in staging wait for: which dataset, how far it is, and when it will be there."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from jobs.models import Job, JobInput
from staging.estimates.shown import Shown, all_shown
from staging.estimates.subjects import of_dataset
from staging.models import Dataset
from staging.states import DatasetState

NEVER = timedelta(days=36500)
CHECK = "all has arrived and is being checked"
OF_STATE = {
    DatasetState.DECLARED: "no file has been listed yet",
    DatasetState.VERIFYING: CHECK,
    DatasetState.STALE: "its source has changed; list it again",
    DatasetState.FAILED: "it failed; its page says why",
    DatasetState.EXPIRING: "it is being deleted",
    DatasetState.PURGED: "it was deleted",
}


def awaited(jobs: Iterable[Job], now: datetime) -> dict[int, str]:
    """One sentence a job by its primary key, in three queries for all of them."""
    missing = _missing([job.pk for job in jobs])
    codes = {row.code for rows in missing.values() for row in rows}
    going = all_shown([of_dataset(code) for code in codes], now)
    return {pk: _sentence(rows, going) for pk, rows in missing.items()}


def _missing(jobs: list[int]) -> dict[int, list[Dataset]]:
    """The datasets of each job that are not staged."""
    found: dict[int, list[Dataset]] = defaultdict(list)
    rows = JobInput.objects.filter(job__in=jobs).exclude(dataset__state=DatasetState.STAGED)
    for row in rows.select_related("dataset").order_by("pk"):
        found[row.job_id].append(row.dataset)
    code = Job.objects.filter(pk__in=jobs, code_dataset__isnull=False)
    code = code.exclude(code_dataset__state=DatasetState.STAGED)
    for job in code.select_related("code_dataset"):
        found[job.pk] += [job.code_dataset] if job.code_dataset else []
    return found


def how_far(dataset: Dataset, going: Shown | None) -> str:
    """How far a dataset is that is not staged, and when all of it will have come."""
    if dataset.state in OF_STATE:
        return OF_STATE[DatasetState(dataset.state)]
    if going is None:
        return "on its way; how far and until when is not known yet"
    if going.files and going.percent == 100:
        return CHECK if dataset.sealed_at else "what was listed has arrived; it is not finished"
    return going.sentence


def _sentence(rows: list[Dataset], going: dict[str, Shown]) -> str:
    """Of several datasets the one that will be there last; one of unknown end comes after all."""

    def end(dataset: Dataset) -> timedelta:
        found = going.get(of_dataset(dataset.code))
        return NEVER if found is None or found.p50 is None else found.p50

    last = max(rows, key=end)
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"Waits for {last.name}{more}: {how_far(last, going.get(of_dataset(last.code)))}."

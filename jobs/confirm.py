"""What the confirm pages of a job say will happen."""

from django.urls import reverse

from jobs.models import Job
from jobs.states import JobState, ShardState


def confirm_cancel(job: Job) -> dict[str, str]:
    return {
        "title": f"Cancel {job.name}?",
        "consequence": cancel_consequence(job),
        "action": reverse("job_cancel", args=[job.code]),
        "button": "Cancel the job",
        "back": reverse("job", args=[job.code]),
        "back_label": "Leave it running" if job.state == JobState.ACTIVE else "Leave it as it is",
    }


def cancel_consequence(job: Job) -> str:
    """What cancelling ends now, what it waits for, and what stays."""
    if job.state == JobState.STAGING:
        return (
            "The job ends at once. No compute is held, and nothing was metered. "
            "Its datasets stay; an input declared to be deleted after the job is deleted."
        )
    holding = job.shards.filter(state__in=[ShardState.ACTIVE, ShardState.DELIVERING]).count()
    waiting = job.shards.filter(state=ShardState.QUEUED).count()
    sentences = []
    if waiting:
        sentences.append(
            f"{_pieces(waiting)} that {'waits ends' if waiting == 1 else 'wait end'} at once."
        )
    if holding:
        sentences.append(
            f"{_pieces(holding)} under way {'is' if holding == 1 else 'are'} asked to stop: the "
            "work gets SIGTERM, then is killed. The meter runs until the node proves that its "
            "compute is released."
        )
        sentences.append("Output that has not come back is discarded; the log stays.")
    else:
        sentences.append("No compute is held now.")
    sentences.append(
        "This cannot be undone. An input declared to be deleted after the job is deleted."
    )
    return " ".join(sentences)


def _pieces(count: int) -> str:
    return "One piece" if count == 1 else f"{count:,} pieces"


def confirm_delete(job: Job) -> dict[str, str]:
    code = " and the code that was sent with it" if job.code_dataset else ""
    return {
        "title": f"Delete the draft {job.name}?",
        "consequence": f"The draft{code} is deleted for your whole team. "
        "Nothing was submitted; datasets stay. This cannot be undone.",
        "action": reverse("job_delete", args=[job.code]),
        "button": "Delete the draft",
        "back": reverse("job_edit", args=[job.code]),
    }

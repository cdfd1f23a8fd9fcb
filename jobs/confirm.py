"""What the confirm pages of a job say will happen."""

from django.urls import reverse

from jobs.clearing import Leftovers
from jobs.models import After, Job
from jobs.states import JobState, ShardState
from jobs.summary import number_word


def confirm_cancel(job: Job) -> dict[str, str]:
    return {
        "title": f"Cancel “{job.name}”?",
        "consequence": cancel_consequence(job),
        "action": reverse("job_cancel", args=[job.code]),
        "button": "Cancel the job",
        "back": reverse("job", args=[job.code]),
        "back_label": "Leave it running" if job.state == JobState.ACTIVE else "Leave it as it is",
    }


def cancel_consequence(job: Job) -> str:
    """What cancelling ends now, what it waits for, and what stays."""
    if job.state == JobState.STAGING:
        return f"The job ends at once. No compute is held, nothing was metered. {_deletions(job)}"
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
    sentences.append(_deletions(job) + " This cannot be undone.")
    return " ".join(sentences)


def _deletions(job: Job) -> str:
    names = [row.dataset.name for row in job.inputs.filter(after=After.DELETE)]
    if not names:
        return "Its datasets stay."
    return f"As declared, {', '.join(names)} will be deleted, unless another job needs it."


def _pieces(count: int) -> str:
    return f"{number_word(count).capitalize()} piece{'' if count == 1 else 's'}"


def confirm_delete(job: Job) -> dict[str, str]:
    code = " and the code that was sent with it" if job.code_dataset else ""
    return {
        "title": f"Delete the draft “{job.name}”?",
        "consequence": f"The draft{code} is deleted for your whole team. "
        "Nothing was submitted; datasets stay. This cannot be undone.",
        "action": reverse("job_delete", args=[job.code]),
        "button": "Delete the draft",
        "back": reverse("job_edit", args=[job.code]),
    }


def confirm_clear(job: Job, rest: Leftovers) -> dict[str, object]:
    return {
        "title": f"Delete what “{job.name}” leaves?",
        "rest": rest,
        "job": job,
        "action": reverse("job_clear", args=[job.code]),
        "button": "Delete these",
        "back": reverse("job", args=[job.code]),
        "back_label": "Keep everything",
    }

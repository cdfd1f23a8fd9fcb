"""The states of jobs and shards, how they end, and why."""

from django.db import models

from portal.base.moves import MoveTable


class JobState(models.TextChoices):
    DRAFT = "draft"  # being declared; nobody waits for it
    STAGING = "staging"  # submitted; its inputs are not all in the store yet
    QUEUED = "queued"  # every input is staged; no shard holds compute
    ACTIVE = "active"  # at least one shard has been granted compute
    ENDED = "ended"  # every shard has ended; `outcome` says how


class ShardState(models.TextChoices):
    QUEUED = "queued"  # waits for compute, or for a node to fetch its data
    ACTIVE = "active"  # a lease of it was granted
    DELIVERING = "delivering"  # compute is released; its output is on its way, unmetered
    ENDED = "ended"  # `outcome` says how


class ShardKind(models.TextChoices):
    MAIN = "main"  # runs the work on its part of the inputs
    FINISH = "finish"  # runs once, after all others succeeded, on their outputs


class Outcome(models.TextChoices):
    NONE = "", ""
    SUCCEEDED = "succeeded"  # exit 0 and the declared output is verified in the store
    FAILED = "failed"  # the work, or everything that was tried for it, failed
    TIMED_OUT = "timed_out"  # its declared hours ended it
    CANCELLED = "cancelled"  # a member of the team ended it
    LOST = "lost"  # its node fell silent and the attempts were used up


class Reason(models.TextChoices):
    """Why a job or shard waits or ended; the label is the one sentence on the page."""

    NONE = "", ""
    EXIT_CODE = "exit_code", "The work ended with an exit code other than 0."
    KILLED = "killed", "The work was ended by a signal."
    TIME_LIMIT = "time_limit", "The work reached its declared hours and was stopped."
    TOLD_TO_STOP = (
        "told_to_stop",
        "The work was told to stop before its declared hours ran out, and ended.",
    )
    MEMORY_LIMIT = "memory_limit", "The work used more memory than it declared and was stopped."
    DISK_LIMIT = "disk_limit", "The work wrote more than its scratch and output allow."
    PROCESS_LIMIT = "process_limit", "The work started more processes than allowed."
    OUTPUT_MISSING = "output_missing", "A declared output path was not there after exit 0."
    OUTPUT_LIMIT = "output_limit", "The output is larger than this job may return."
    OUTPUT_REFUSED = "output_refused", "The output holds names or kinds of files that are refused."
    COULD_NOT_START = "could_not_start", "The start command could not be run."
    CANCELLED = "cancelled", "Cancelled by a member of the team."
    NODE_FAULT = "node_fault", "Every attempt ended by a fault of its node."
    BREAKS_NODES = "breaks_nodes", "Two attempts ended with their node in quarantine."
    PREDECESSOR_FAILED = "predecessor_failed", "A piece that this one needs did not succeed."
    NO_NODE_FITS = "no_node_fits", "No node has the disk for the data of one piece."


J, S = JobState, ShardState
JOB_MOVES: MoveTable = {
    J.DRAFT: frozenset({J.STAGING}),
    J.STAGING: frozenset({J.QUEUED, J.ENDED}),
    J.QUEUED: frozenset({J.ACTIVE, J.ENDED}),
    J.ACTIVE: frozenset({J.QUEUED, J.ENDED}),
    J.ENDED: frozenset(),
}
SHARD_MOVES: MoveTable = {
    # queued -> delivering: an attempt whose output still waits on its node is kept after all.
    S.QUEUED: frozenset({S.ACTIVE, S.DELIVERING, S.ENDED}),
    S.ACTIVE: frozenset({S.QUEUED, S.DELIVERING, S.ENDED}),
    S.DELIVERING: frozenset({S.QUEUED, S.ENDED}),
    S.ENDED: frozenset(),
}

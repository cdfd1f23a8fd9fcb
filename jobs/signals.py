"""What others may listen to. Sent inside the transaction, so a listener's rows land with it."""

from django.dispatch import Signal

job_ended = Signal()  # job, at
shard_ended = Signal()  # shard, at: before its job is settled
shard_queued = Signal()  # job: something can be scheduled
cancel_asked = Signal()  # job, at

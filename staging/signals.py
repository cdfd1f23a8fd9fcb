"""What staging tells the layers above it."""

from django.dispatch import Signal

# Sent after commit with dataset=<Dataset> when one became staged, failed or stale.
dataset_settled = Signal()

"""The most GPU time that a request can be counted with, whatever happens."""

from datetime import timedelta

from django.conf import settings


def most_gpu_time(
    *, gpus: int, shards: int, hours: timedelta, finish_gpus: int = 0, retries: int = 0
) -> timedelta:
    """GPUs x (declared hours + output window) over all shards, once for each try of the work."""
    return (hours + settings.OUTPUT_WINDOW) * (gpus * shards + finish_gpus) * (1 + retries)

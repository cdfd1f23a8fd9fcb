"""The most GPU time that a request can be counted with, whatever happens."""

from datetime import timedelta

from django.conf import settings

from portal.base.clock import milliseconds


def most_gpu_ms(
    *, gpus: int, shards: int, hours: timedelta, finish_gpus: int = 0, retries: int = 0
) -> int:
    """GPUs x (declared hours + output window) over all shards, once for each try of the work.

    Milliseconds of GPU time, as an int: the largest request there is does not fit a timedelta.
    """
    return (
        milliseconds(hours + settings.OUTPUT_WINDOW) * (gpus * shards + finish_gpus) * (1 + retries)
    )

"""The end of a pump's turn: by time, and by the end of its worker."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.base import turns

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:
    yield
    turns.go_on()


def test_a_turn_ends_with_its_time():
    assert not turns.is_over(time.monotonic() + 3600)
    assert turns.is_over(time.monotonic())


def test_a_worker_that_is_to_end_tells_the_processes_that_it_forked():
    """In a process of its own: this one has threads, and must not fork."""
    program = """
import os, time
from celery.signals import worker_shutting_down
from portal import celery
from portal.base import turns

(told, tell), (said, say) = os.pipe(), os.pipe()
if not os.fork():
    os.close(tell)
    os.read(told, 1)
    os.write(say, str(turns.is_over(time.monotonic() + 3600)).encode())
    os._exit(0)
worker_shutting_down.send(sender="transfers@here", sig="SIGTERM", how="Warm", exitcode=0)
os.write(tell, b".")
print(os.read(said, 10).decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_the_flag_is_above_the_time():
    turns.ask_to_end()
    assert turns.is_over(time.monotonic() + 3600)
    turns.go_on()
    assert not turns.is_over(time.monotonic() + 3600)

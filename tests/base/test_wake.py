"""A broker that is away costs a request one look at it, and never its answer."""

import socket
import threading

import pytest
from celery import Celery

from portal.base import wake
from portal.celery import app


@pytest.fixture
def gate():
    """A place where each who connects is hung up on at once; and how many came."""
    callers: list[object] = []
    server = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        while True:
            try:
                caller, address = server.accept()
            except OSError:
                return  # the test has ended
            callers.append(address)
            caller.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    yield server.getsockname()[1], callers
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(60)


def test_one_look_at_a_broker_that_hangs_up(gate, django_capture_on_commit_callbacks, db):
    port, callers = gate
    away = Celery("away", broker=f"redis://127.0.0.1:{port}/0", set_as_current=False)
    away.conf.broker_transport_options = app.conf.broker_transport_options

    @away.task
    def nothing() -> None:
        """Never runs: there is no worker."""

    with django_capture_on_commit_callbacks(execute=True):
        wake.wake(nothing)
    # The client of Redis itself opens its connection a second time; that is all.
    assert 1 <= len(callers) <= 2

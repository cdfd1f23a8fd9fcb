"""gunicorn's settings: `gunicorn --config python:portal.server portal.wsgi:application`.

gunicorn's own workers let clients take the few threads that answer requests: a thread waits for the
rest of a head or body, for room to send, and at the end for the client to hang up. A few clients
that just stay connected would hold up everybody, and a body that is cut counts as whole. Here

- `worker` has one thread that waits for all connections, and a few that answer;
- `connection` collects a head and a small body beside the others: a thread takes whole ones;
- `pace` tells clients that are slow to send or to take bytes, so that their connections are cut;
- `bodies` raises where a body ends before the end that was announced;
- `lingering` ends connections, all at once;
- `shares` spreads connections over the processes;
- `limits` has the numbers.
"""

import select
from typing import Any

from portal.server.shares import NOBODY, shares

# Elsewhere than on Linux, where one develops, gunicorn's own worker has to do.
worker_class = "portal.server.worker.Worker" if hasattr(select, "epoll") else "gthread"
workers = 2
threads = 8
worker_connections = 400  # of a process; with those that end, below the usual 1,024 open files
keepalive = 75
timeout = 120
graceful_timeout = 8
loglevel = "warning"
limit_request_field_size = 16384  # an Upload-Metadata that is too long gets a reason
control_socket_disable = True


def child_exit(server: object, worker: Any) -> None:
    """gunicorn calls this in its first process, however the other one ended."""
    shares.put(worker.age, NOBODY)

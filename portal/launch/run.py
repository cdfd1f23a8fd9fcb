"""`python -m portal.launch run|demo`: the whole product in one foreground process.

The order is: port, folder and lock; broker; set-up (migrations, static files, accounts, nodes);
portal, worker, agents; the main job. The end is the reverse of it.
"""

import http.client
import os
import socket
import sys
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal.env import MAY_BE_LEFT, Env
from portal.launch.crew import Crew, Part
from portal.launch.errors import Asked, CannotStart
from portal.launch.output import Printer
from portal.launch.place import (
    broker_binary,
    check_database,
    check_socket_path,
    check_writable,
    leave_settings,
    lock_folder,
    open_port,
    take_settings_away,
)
from portal.launch.process import ROOT, adopt_orphans

NODES = {"this-machine": [], "simulated": ["--simulate-gpus", "8"]}
START_S = 60.0
SETUP_S = 300.0
# Celery's farewell, and its warning for root: the tasks of this portal take only numbers.
WORKER_MUTE = "^$|Warm shutdown|SecurityWarning|not recommended|--uid|^User info|_warn_or_raise"


class Place(NamedTuple):
    """Where this run lives: what is open and held until its end."""

    data: Path
    host: str
    port: int
    listener: socket.socket
    locks: list[IO[str]]
    broker_socket: Path | None

    @property
    def url(self) -> str:
        return local_url(self.host, self.port)


def local_url(host: str, port: int) -> str:
    """How a program on this machine reaches the portal; "every address" is no address."""
    every = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104
    name = every.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


def take_place() -> Place:
    """Open the port, lock the folder, read the settings. Raises CannotStart with a sentence."""
    env = Env()
    try:
        data = env.folder("E31_DATA_DIR", ROOT / "var")
        host = env.text("E31_HOST", "127.0.0.1")
        port = env.number("E31_PORT", 8000, most=65535)
        if not env.text("REDIS_URL"):
            check_socket_path(data / "broker" / "broker.sock")
        check_writable(data)
        check_database(data / "portal.sqlite3")
        locks = [lock_folder(data)]
        listener = open_port(host, port)
        port = listener.getsockname()[1]
        take_settings_away(data)
        if not env.text("PUBLIC_URL"):
            os.environ["PUBLIC_URL"] = local_url(host, port)
        # One machine and one person: without user namespaces the agent falls back to plain
        # processes, and every page that shows it says so. Installations leave this off.
        if not env.text("ALLOW_PROCESS_ISOLATION"):
            os.environ["ALLOW_PROCESS_ISOLATION"] = "true"
        from portal import settings

        locks.append(leave_settings(data, {name: os.environ[name] for name in MAY_BE_LEFT}))
    except ImproperlyConfigured as error:
        raise CannotStart(str(error)) from error
    broker = settings.BROKER_SOCKET if settings.EMBEDDED_BROKER else None
    if broker:
        broker.parent.mkdir(mode=0o700, exist_ok=True)
    return Place(data, host, port, listener, locks, broker)


def base_env(place: Place) -> dict[str, str]:
    return os.environ | {
        "E31_DATA_DIR": str(place.data),
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "PYTHONUNBUFFERED": "1",
        # A person watches: what is well is not said. LOG_LEVEL=INFO tells every move.
        "LOG_LEVEL": os.environ.get("LOG_LEVEL") or "WARNING",
    }


def agent_env(state: Path) -> dict[str, str]:
    """An agent gets none of the portal's settings: it knows an address and its credential."""
    names = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "TZ")
    env = {name: os.environ[name] for name in names if name in os.environ}
    token = state / "enrolment-token"
    if token.exists():
        env["E31_ENROL_TOKEN"] = token.read_text().strip()
    return env | {"PYTHONUNBUFFERED": "1"}


def broker_part(place: Place) -> Part:
    assert place.broker_socket is not None  # noqa: S101
    argv = [broker_binary(), "--port", "0", "--unixsocket", str(place.broker_socket)]
    argv += ["--unixsocketperm", "700", "--dir", str(place.broker_socket.parent)]
    argv += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    argv += ["--daemonize", "no", "--loglevel", "warning"]
    mute = "overcommit|scheduling shutdown|ready to exit"
    return Part("broker", argv, dict(os.environ), restarts=True, mute=mute)


def python(*args: str) -> list[str]:
    return [sys.executable, "-m", *args]


def portal_part(place: Place) -> Part:
    argv = python("gunicorn", "portal.wsgi:application")
    argv += ["--config", "python:portal.server", "--bind", f"fd://{place.listener.fileno()}"]
    fds = (place.listener.fileno(),)
    # Threads share heaps: each with its own would keep what its largest request needed.
    env = base_env(place) | {"MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX") or "2"}
    return Part("portal", argv, env, pass_fds=fds, restarts=True)


def worker_parts(place: Place) -> list[Part]:
    """One worker for passes and sweeps, one for bytes: a slow source delays no pass.

    Of the three processes for bytes SYNC_WORKERS (two) copy at most; one is left for the checks
    of what people upload.
    """
    folder = place.data / "celery"
    folder.mkdir(exist_ok=True)
    celery = python("celery", "-A", "portal.celery", "--quiet", "worker", "--loglevel", "WARNING")
    celery += ["--without-gossip", "--without-mingle"]
    beat = ["--beat", "--schedule", str(folder / "beat")]
    parts = [
        ("worker", ["--queues", "control", "--concurrency", "1", *beat]),
        ("transfers", ["--queues", "transfer", "--concurrency", "3", "-n", "transfers@%h"]),
    ]
    return [
        Part(name, celery + more, base_env(place), restarts=True, mute=WORKER_MUTE)
        for name, more in parts
    ]


def agent_part(place: Place, name: str) -> Part:
    state = place.data / "nodes" / name
    argv = python("nodes.agent", "--portal", place.url, "--state-dir", str(state), "--name", name)
    argv += ["--end-work-on-exit", *NODES[name]]
    return Part(name, argv, agent_env(state), restarts=True)


def main_job_part(place: Place, again: bool) -> Part:
    argv = python("portal.launch.demo", "--portal", place.url, *(["--again"] if again else []))
    return Part("main job", argv, base_env(place))


def answers(socket_path: Path) -> bool:
    """Whether the broker behind this socket answers a PING."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(socket_path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def is_up(url: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def start_crew(crew: Crew, place: Place) -> None:
    """Broker, set-up, portal, worker and agents, each when the one before is ready."""
    socket_path = place.broker_socket
    if socket_path:
        crew.start(broker_part(place))
        crew.wait_for(lambda: answers(socket_path), START_S, "The embedded broker did not start.")
    setup = Part("set-up", python("portal.launch.prepare", *NODES), base_env(place))
    if crew.finish(crew.start(setup), SETUP_S):
        raise CannotStart("The set-up failed; the lines above say why.")
    crew.start(portal_part(place))
    crew.wait_for(lambda: is_up(place.url), START_S, "The portal did not answer /healthz.")
    for part in worker_parts(place):
        crew.start(part)
    for name in NODES:
        crew.start(agent_part(place, name))
    crew.say(f"the portal is at {place.url}")


def follow(crew: Crew, place: Place, *, stay: bool) -> int:
    """Run the main job; stay up afterwards if asked. The exit code."""
    code = crew.finish(crew.start(main_job_part(place, again=not stay)))
    if not stay:
        return code
    if code:
        crew.say("the main job did not succeed; the portal stays up so that you can look")
    crew.say(f"{place.url} stays up; press Ctrl-C to stop everything")
    while True:
        crew.pump(1)


def launch(command: str) -> int:
    printer = Printer()
    try:
        place = take_place()
    except CannotStart as problem:
        printer.line("run", str(problem))
        return 1
    adopt_orphans()
    crew = Crew(printer)
    try:
        start_crew(crew, place)
        return follow(crew, place, stay=command == "run")
    except CannotStart as problem:
        crew.say(str(problem))
        return 1
    except Asked:
        crew.say("stopping everything")
        return 0 if command == "run" else 130
    finally:
        crew.stop()
        take_settings_away(place.data)
        crew.say("everything has stopped")

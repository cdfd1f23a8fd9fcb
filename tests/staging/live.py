"""A real server for tests of what only a real server shows: gunicorn on a free port."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIMIT_S = 60
PATCH_TYPE = "application/offset+octet-stream"


def until(condition: Callable[[], object], what: str, limit: float = LIMIT_S) -> object:
    """Wait for a condition; its value. Fails by name when it does not come."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {limit} s: {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The portal under gunicorn with a database and store of its own."""

    config = "portal.server"
    log: Path | None = None  # where what it says is kept

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen | None = None
        self.env = os.environ | {
            "E31_DATA_DIR": str(folder),
            "DATABASE_URL": "",
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "PUBLIC_URL": f"http://127.0.0.1:{self.port}",
            "DISK_FLOOR_BYTES": "0",
            "REDIS_URL": "",
            "MALLOC_ARENA_MAX": "2",
        }

    def manage(self, *arguments: str, feed: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            env=self.env,
            input=feed,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shell(self, code: str) -> str:
        """Run code inside the portal; what it printed last."""
        return self.manage("shell", "--verbosity", "0", "-c", code).strip()

    def start(self) -> None:
        said = None if self.log is None else self.log.open("ab")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "portal.wsgi:application"),
                *("--config", f"python:{self.config}", "--bind", f"127.0.0.1:{self.port}"),
            ],
            env=self.env,
            stderr=said,
            start_new_session=True,
        )
        until(self._answers, "the server answers", 180)  # it imports all of Django

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return self.request("OPTIONS", "/tus/").status == 204
        return False

    def kill(self) -> None:
        """SIGKILL to the server's whole session, as a power button would."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
        self.process = None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> "Answer":
        """One request on a connection of its own. Header names have _ for -."""
        with self.connect() as sock:
            sock.sendall(head(method, path, {"Content-Length": str(len(body)), **named(headers)}))
            with contextlib.suppress(ConnectionError):
                sock.sendall(body)
            return Answer.read(sock, method)

    def tus(self, method: str, path: str, body: bytes = b"", **headers: str) -> "Answer":
        return self.request(method, path, body, **{"Tus_Resumable": "1.0.0", **headers})

    def offset(self, path: str) -> int:
        return int(self.tus("HEAD", path).headers["upload-offset"])

    def patch(self, path: str, offset: int, body: bytes, **headers: str) -> "Answer":
        return self.tus(
            "PATCH",
            path,
            body,
            **{"Upload_Offset": str(offset), "Content_Type": PATCH_TYPE, **headers},
        )


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def patch_head(path: str, offset: int, length: int | None) -> bytes:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Offset": str(offset), "Content-Type": PATCH_TYPE}
    frame = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    return head("PATCH", path, headers | frame)


class Answer:
    """A response read from a raw socket."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> dict:
        return json.loads(self.body)

    @classmethod
    def read(cls, sock: socket.socket, method: str = "") -> "Answer":
        """One answer and no byte of the next, which may be there already."""
        top = b""
        while not top.endswith(b"\r\n\r\n"):
            top += _more(sock, top, 1)
        first, *lines = top[:-4].decode("latin-1").split("\r\n")
        headers = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}
        status = int(first.split()[1])
        expected = 0 if method == "HEAD" else int(headers.get("content-length", 0))
        body = b""
        while len(body) < expected:
            body += _more(sock, top + body, expected - len(body))
        return cls(status, headers, body)


def _more(sock: socket.socket, so_far: bytes, most: int) -> bytes:
    piece = sock.recv(most)
    assert piece, f"the server closed after {so_far[:200]!r}"
    return piece


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    server.manage("migrate", "--verbosity", "0")
    try:
        server.start()
        yield server
    finally:
        server.kill()

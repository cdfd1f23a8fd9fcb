"""The two servers of the benchmark: this portal as `make run` starts it, and @tus/server."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from portal.launch.browser import Browser
from portal.launch.prepare import SUBMITTER
from portal.launch.process import ROOT
from portal.launch.run import Place, is_up, portal_part

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
START_S = 60


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name: state is [0], parent [1]; [] when gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def tree(pid: int) -> list[int]:
    """`pid` and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat_of(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, at = [pid], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a tree of processes, those that it has reaped included."""
    spent = [stat_of(one)[11:15] for one in tree(pid)]
    return sum(int(ticks) for fields in spent for ticks in fields) / TICKS


def resident_bytes(pid: int) -> dict[int, int]:
    """Anonymous resident memory of each process of a tree; shared libraries do not grow."""
    found = {}
    for one in tree(pid):
        with contextlib.suppress(OSError, ValueError):
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
            sizes = {n: v for n, _, v in (line.partition(":") for line in lines)}
            found[one] = int(sizes["RssAnon"].split()[0]) * 1024
    return found


def wait_for(condition: Callable[[], object], process: subprocess.Popen, what: str) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{what} did not start.")
        time.sleep(0.05)


def end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Ours:
    """The portal with a database, a store and one signed-in person of its own."""

    name = "portal"

    def __init__(self, folder: Path) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        port = self.listener.getsockname()[1]
        self.place = Place(folder, "127.0.0.1", port, self.listener, [], None)
        self.part = portal_part(self.place)
        # The broker is not up here; what would wake a check says so in the log and goes on.
        own = {"PUBLIC_URL": self.place.url, "DATABASE_URL": "", "STORAGE_URL": "", "REDIS_URL": ""}
        self.env = self.part.env | own
        self.folder, self.url = folder, self.place.url
        self._python("portal.launch.prepare")

    def _python(self, module: str, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", module, *args],
            env=self.env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            raise SystemExit(f"The portal's set-up failed: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def start(self) -> None:
        with (self.folder / "portal.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.part.argv,
                env=self.env,
                cwd=ROOT,
                stderr=log,
                pass_fds=self.part.pass_fds,
                start_new_session=True,
            )
        wait_for(lambda: is_up(self.url), self.process, "The portal")
        self.browser = Browser(self.url)
        link = self._python("django", "signin_link", SUBMITTER)
        path = "/sign-in/" + link.rstrip("/").rpartition("/")[2]
        self.browser.submit(path, self.browser.page(path), {}, "csrfmiddlewaretoken")

    @property
    def endpoint(self) -> str:
        return f"{self.url}/tus/"

    @property
    def headers(self) -> dict[str, str]:
        cookies = self.browser.cookies
        held = "; ".join(f"{name}={value}" for name, value in cookies.items())
        return {"Cookie": held, "X-CSRFToken": cookies["csrftoken"]}

    def new_target(self) -> dict[str, str]:
        """Metadata of the next uploads: a fresh dataset."""
        return {"dataset": self.new_dataset()}

    def new_dataset(self) -> str:
        page = self.browser.page("/staging/new")
        answer = self.browser.submit("/staging/new", page, {"name": "Benchmark"}, "name")
        return answer.path.strip("/").split("/")[1]

    def forget_bytes(self) -> None:
        """The benchmark's own store must not fill disk and memory; nothing reads it again."""
        for path in (self.folder / "store").glob("*/*"):
            path.unlink()

    def stop(self) -> None:
        end(self.process)
        self.listener.close()


class Other:
    """A server that is no portal: a command that listens on a port and knows no accounts."""

    name: str

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.endpoint = f"{self.url}/files"
        self.headers: dict[str, str] = {}

    def _run(self, argv: list[str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            argv, cwd=cwd, stdout=subprocess.DEVNULL, start_new_session=True
        )
        wait_for(self._listens, self.process, self.name)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def new_target(self) -> dict[str, str]:
        return {}

    def forget_bytes(self) -> None:
        """It keeps none."""

    def stop(self) -> None:
        end(self.process)


class Peer(Other):
    """@tus/server with its file store, as its README starts it."""

    name = "@tus/server"

    def __init__(self, folder: Path, npm: Path) -> None:
        super().__init__()
        self.folder, self.npm = folder / "files", npm

    def start(self) -> None:
        self._run(["node", "peer.mjs", str(self.folder), str(self.port)], self.npm)

    def forget_bytes(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()


class Sink(Other):
    """What the client can do with a server that does nothing (tests.bench.uploads.sink)."""

    name = "nothing"

    def start(self) -> None:
        self._run([sys.executable, "-m", "tests.bench.uploads.sink", str(self.port)], ROOT)


type Side = Ours | Peer
type Server = Ours | Peer | Sink


@contextlib.contextmanager
def running(*sides: Server) -> Iterator[None]:
    """The servers are up inside, and gone afterwards."""
    with contextlib.ExitStack() as stack:
        for side in sides:
            side.start()
            stack.callback(side.stop)
        yield

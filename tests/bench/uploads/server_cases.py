"""What one raw client shows of the portal alone: takeover, and memory that does not grow."""

import hashlib
import http.client
import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

from tests.bench.uploads.figures import spread, summary
from tests.bench.uploads.servers import Ours, resident_bytes, running

MIB = 2**20
HUNG_BYTES = 300_000
PATCH = "PATCH {path} HTTP/1.1\r\nHost: {host}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
PATCH += "Content-Type: application/offset+octet-stream\r\nContent-Length: {length}\r\n\r\n"
SAMPLE_S = 0.2
MANY_BATCH = 1000

type Say = Callable[[str], None]
type Found = tuple[dict[str, float], dict[str, object]]


def declare(ours: Ours, dataset: str, files: list[dict[str, object]]) -> list[dict]:
    return ours.browser.post_json(f"/staging/{dataset}/manifest", {"files": files})["files"]


def take_over(ours: Ours, dataset: str, number: int) -> float:
    """Seconds until HEAD has the offset of an upload whose PATCH hangs after some bytes."""
    length = 10 * HUNG_BYTES
    (plan,) = declare(ours, dataset, [{"path": f"hung-{number}", "size": length}])
    host = urlsplit(ours.url).netloc
    name, _, port = host.partition(":")
    head = PATCH.format(path=plan["upload"], host=host, length=length).encode()
    with socket.create_connection((name, int(port))) as hung:
        hung.sendall(head + bytes(HUNG_BYTES))
        time.sleep(0.5)  # it hangs now, in the middle of its body
        connection = http.client.HTTPConnection(host, timeout=30)
        began = time.monotonic()
        connection.request("HEAD", plan["upload"], headers={"Tus-Resumable": "1.0.0"})
        answer = connection.getresponse()
        answer.read()
        seconds = time.monotonic() - began
        connection.close()
    if answer.headers.get("Upload-Offset") != str(HUNG_BYTES):
        found = answer.headers.get("Upload-Offset")
        raise SystemExit(f"After a takeover the offset is {found}, not {HUNG_BYTES}.")
    return seconds


def takeover(folder: Path, tries: int, say: Say) -> Found:
    """The value is the slowest try, since the bar is one for every takeover."""
    ours = Ours(folder / "portal")
    with running(ours):
        dataset = ours.new_dataset()
        seconds = [take_over(ours, dataset, number) for number in range(tries)]
    say(f"{'takeover of a hung PATCH':<34} {spread(seconds)} s")
    return {"takeover_s": max(seconds)}, {"takeover, s": summary(seconds)}


class Memory:
    """The most that each worker's anonymous memory has grown to while it runs."""

    def __init__(self, ours: Ours) -> None:
        self.pid = ours.process.pid
        self.before = resident_bytes(self.pid)
        self.most = dict(self.before)
        self.ended = Event()
        self.thread = Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            for pid, size in resident_bytes(self.pid).items():
                self.most[pid] = max(self.most.get(pid, 0), size)

    @property
    def growth_mib(self) -> float:
        return max(self.most[pid] - size for pid, size in self.before.items()) / MIB


@contextmanager
def watching(ours: Ours) -> Iterator[Memory]:
    memory = Memory(ours)
    memory.thread.start()
    yield memory
    memory.ended.set()
    memory.thread.join()


def send_big(ours: Ours, dataset: str, number: int, size: int) -> None:
    """One PATCH of `size` bytes that never lie in memory or on disk on this side."""
    (plan,) = declare(ours, dataset, [{"path": f"big-{number}", "size": size}])
    piece = random.Random(number).randbytes(4 * MIB)  # noqa: S311  data, not a secret
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(size),
    }
    body = (piece[: min(len(piece), size - at)] for at in range(0, size, len(piece)))
    connection = http.client.HTTPConnection(urlsplit(ours.url).netloc, timeout=300)
    connection.request("PATCH", plan["upload"], body=body, headers=headers)
    answer = connection.getresponse()
    if answer.status != 204:
        raise SystemExit(f"The big upload ended with {answer.status}: {answer.read()[:300]!r}")
    connection.close()


def frames(start: int, count: int, size: int) -> Iterator[tuple[dict[str, object], bytes]]:
    """Small files, each with other bytes; their digests as the manifest wants them."""
    for index in range(start, start + count):
        content = random.Random(index).randbytes(size)  # noqa: S311
        path = f"{index // 1000:03}/{index // 100 % 10}/{index:06}.bin"
        digest = hashlib.sha256(content).hexdigest()
        yield {"path": path, "size": size, "digest": digest}, content


def send_pack(ours: Ours, dataset: str, files: list[tuple[dict[str, object], bytes]]) -> None:
    """Many files in one request."""
    body = b"".join(
        len(head := json.dumps(entry).encode()).to_bytes(4, "big") + head + content
        for entry, content in files
    )
    headers = {
        "Content-Type": "application/x-e31-pack",
        "Accept": "application/json",
        "X-CSRFToken": ours.browser.cookies["csrftoken"],
    }
    answer = ours.browser.request("POST", f"/staging/{dataset}/pack", body, headers)
    if answer.status != 200 or '"failed"' in answer.text:
        raise SystemExit(f"A pack was refused ({answer.status}): {answer.text[:300]}")


def rss(folder: Path, big: int, many: int, say: Say) -> Found:
    """Growth of the worker that grew most, in each of the two; the value is the larger.

    Both workers have served uploads before, so that what is loaded once does not count as growth.
    """
    ours = Ours(folder / "portal")
    grown: dict[str, float] = {}
    with running(ours):
        dataset = ours.new_dataset()
        for number in range(4):
            send_big(ours, dataset, number, 64 * MIB)
        send_pack(ours, dataset, list(frames(0, MANY_BATCH, 1024)))
        with watching(ours) as memory:
            send_big(ours, dataset, 9, big)
        ours.forget_bytes()
        grown[f"one upload of {big // MIB} MiB"] = memory.growth_mib
        with watching(ours) as memory:
            for start in range(MANY_BATCH, MANY_BATCH + many, MANY_BATCH):
                batch = list(frames(start, min(MANY_BATCH, MANY_BATCH + many - start), 1024))
                declare(ours, dataset, [entry for entry, _ in batch])
                send_pack(ours, dataset, batch)
        grown[f"{many} small files"] = memory.growth_mib
    for what, growth in grown.items():
        say(f"{'growth of a worker, ' + what:<52} {growth:.1f} MiB")
    return {"rss_growth_mib": max(grown.values())}, {"rss growth, MiB": grown}

"""Getting a lease's spec and files onto this node, before any GPU is held."""

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from nodes.agent import disk
from nodes.agent.cache import PART, Cache, give, read_into
from nodes.agent.client import Away, Portal, Stopped, patiently
from nodes.agent.digests import BLOCK, FileHash
from nodes.agent.journal import PUBLIC, Lease

CONNECTIONS = 4
TRIES = 3


class NodeFault(Exception):
    """The node cannot do it. `code` is a fault of docs/agent-protocol.md."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.fault = {"code": code, "detail": detail[:500]}


class Fetcher:
    """Fetches leases into their folders. `reserve` refuses with NodeFault what has no room."""

    def __init__(
        self, portal: Portal, cache: Cache, reserve: Callable[[Lease], None], links: bool
    ) -> None:
        self.portal, self.cache, self.reserve, self.links = portal, cache, reserve, links

    def fetch(self, lease: Lease) -> None:
        """Spec, room, files. Raises NodeFault, Refused or Stopped."""
        spec = self._spec(lease)
        self.reserve(lease)
        for name in ("data", "work", "output", "scratch", "etc"):
            (lease.folder / name).mkdir(exist_ok=True)
        try:
            counted = self._files(lease, str(spec.get("team") or lease.code))
        except OSError as error:
            raise _disk_fault(error) from error
        if counted != (spec["files"], spec["bytes"]):
            raise NodeFault(
                "fetch_failed",
                f"The portal promised {spec['files']} files of {spec['bytes']} bytes and listed "
                f"{counted[0]} of {counted[1]}.",
            )

    def _spec(self, lease: Lease) -> dict[str, Any]:
        spec = patiently(
            lambda: self.portal.call("GET", f"leases/{lease.code}/spec", lease=lease.key),
            lease.errand,
        )
        disk.write_json(lease.folder / "spec.json", spec)
        lease.change(spec={name: spec[name] for name in PUBLIC if name in spec})
        return spec

    def _files(self, lease: Lease, team: str) -> tuple[int, int]:
        """Fetch every file over a few connections; (files, bytes)."""
        files = size = 0
        lease.note(moved_bytes=0)
        failed = threading.Event()
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix=f"fetch-{lease.code}") as pool:
            going: set[Future[tuple[int, int]]] = set()
            try:
                for entry in self._listing(lease):
                    going.add(pool.submit(self._file, lease, team, entry, failed))
                    if len(going) >= CONNECTIONS * 8:
                        done, going = wait(going, return_when=FIRST_COMPLETED)
                        files, size = _count(lease, done, files, size)
                return _count(lease, going, files, size)
            except BaseException:
                failed.set()
                raise

    def _listing(self, lease: Lease) -> Iterator[dict[str, Any]]:
        cursor = ""
        while cursor is not None:
            path = f"leases/{lease.code}/files?after={cursor}"
            page = patiently(
                lambda path=path: self.portal.call("GET", path, lease=lease.key),  # type: ignore[misc]
                lease.errand,
            )
            yield from page["files"]
            cursor = page["next"]

    def _file(
        self, lease: Lease, team: str, entry: dict[str, Any], failed: threading.Event
    ) -> tuple[int, int]:
        """The file's bytes, and how many of them were not here already."""
        if failed.is_set() or lease.errand.stopped.is_set():
            raise Stopped
        target = target_of(lease.folder, entry["path"])
        place = self.cache.place(team, entry["digest"], bool(entry["executable"]))
        target.parent.mkdir(parents=True, exist_ok=True)
        moved = 0
        with self.cache.alone(place):
            if not self.cache.has(place, entry["size"], entry["digest"]):
                moved = self._download(lease, entry, place)
            code = entry["path"].startswith("code/")
            give(place, target, link=self.links and not code)
        if code:
            target.chmod(0o755 if entry["executable"] else 0o644)
        return int(entry["size"]), moved

    def _download(self, lease: Lease, entry: dict[str, Any], place: Path) -> int:
        """Fetch into `place`, going on from what an earlier try has left; the bytes that came.
        Raises NodeFault."""
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(place.name + PART)
        moved = 0
        for _ in range(TRIES):
            before = part.stat().st_size if part.exists() else 0
            patiently(lambda: self._read(lease, entry, part), lease.errand)
            moved += max(0, part.stat().st_size - before)
            with part.open("rb") as got:
                total = FileHash(entry["size"])
                read_into(got, total)
            if total.seen == entry["size"] and total.digest() == entry["digest"]:
                part.chmod(0o555 if entry["executable"] else 0o444)
                part.replace(place)
                return moved
            part.unlink()
        raise NodeFault("fetch_failed", f"{entry['path']} arrived corrupt {TRIES} times.")

    def _read(self, lease: Lease, entry: dict[str, Any], part: Path) -> None:
        size = entry["size"]
        have = part.stat().st_size if part.exists() else 0
        if have >= size:  # whole already, or an empty file: an empty range is no request
            part.touch()
            return
        answer = self.portal.get(
            f"leases/{lease.code}/files/{entry['id']}", lease=lease.key, start=have
        )
        with part.open("ab" if answer.status == 206 else "wb") as out:
            while block := self.portal.read(answer, BLOCK):
                out.write(block)
                if lease.errand.stopped.is_set():
                    self.portal.hang_up()
                    raise Stopped
            if out.tell() < size:
                raise Away("The connection ended in the middle of a file.")


def _count(
    lease: Lease, done: set[Future[tuple[int, int]]], files: int, size: int
) -> tuple[int, int]:
    moved = lease.record.moved_bytes
    for future in done:
        whole, came = future.result()
        size, moved, files = size + whole, moved + came, files + 1
    lease.note(fetched_files=files, fetched_bytes=size, moved_bytes=moved)
    return files, size


def target_of(folder: Path, path: str) -> Path:
    """Where a file of the listing goes. Raises NodeFault for a path that leads elsewhere."""
    top, *parts = path.split("/")
    hostile = any(part in ("", ".", "..") or "\0" in part for part in parts)
    if top not in ("data", "code") or not parts or hostile:
        raise NodeFault("fetch_failed", f"The portal named a path that is not allowed: {path!r}.")
    return folder.joinpath("data" if top == "data" else "work", *parts)


def _disk_fault(error: OSError) -> NodeFault:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return NodeFault("node_disk_full" if full else "fetch_failed", f"{error.strerror}: {error}")

"""Bringing a lease's output back: collect, declare, send by tus, confirm; and its log."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from nodes.agent import collect, disk
from nodes.agent.client import Away, Portal, Refused, Stopped, patiently
from nodes.agent.collect import Found, Harvest
from nodes.agent.digests import manifest_digest
from nodes.agent.journal import Lease
from nodes.agent.worklog import MARK

BATCH = 500
MOST_ROUNDS = 20
MOST_NAMED = 50
LOG_BLOCK = 1024 * 1024
TUS = {"Tus-Resumable": "1.0.0"}


class Courier:
    """Delivers one lease's output from its outbox. Everything may be repeated."""

    def __init__(self, portal: Portal, lease: Lease) -> None:
        self.portal, self.lease = portal, lease
        self.digests: dict[str, str] = {}

    def run(self) -> str:
        """Until the portal has verified the output (`delivered`; it may hold no file), or has
        `refused` it. Raises Stopped."""
        files = {found.path: found for found in self._harvest().files}
        self._hash(files)
        self._send_all(files, list(files.values()))
        for turn in range(MOST_ROUNDS):
            missing = self._complete(files)
            if missing is None:
                return "delivered"
            self.lease.errand.stopped.wait(min(5.0, 0.2 * 2**turn))
            self._send_all(files, missing)
        self._problem("The portal still misses files after many tries.")
        return "refused"

    # -- collect

    def _harvest(self) -> Harvest:
        """What is declared and fit to be returned; what is not is named in the log."""
        spec = self.lease.record.spec
        harvest = collect.harvest(
            self.lease.outbox, spec["outputs"], spec["limits"]["output_bytes"]
        )
        problem = harvest.problem
        end = self.lease.record.exit or {}
        if problem and problem["code"] == "output_missing" and end.get("code") != 0:
            problem = None  # the work failed: that is the reason, not what it did not write
        self.lease.change(output_problem=problem)
        self._name_skipped(harvest)
        return harvest

    def _name_skipped(self, harvest: Harvest) -> None:
        """Once: a restarted agent collects again."""
        marker = self.lease.folder / "skipped.json"
        if not harvest.skipped or marker.exists():
            return
        lines = [
            f"{MARK}Not returned: {path!a} {why}." for path, why in harvest.skipped[:MOST_NAMED]
        ]
        if harvest.left_out > MOST_NAMED:
            lines.append(f"{MARK}Not returned: {harvest.left_out - MOST_NAMED} more.")
        self.lease.say("\n".join(lines) + "\n")
        disk.write_json(marker, [[ascii(path), why] for path, why in harvest.skipped])

    def _hash(self, files: dict[str, Found]) -> None:
        for path, found in list(files.items()):
            try:
                self.digests[path] = collect.hash_found(self.lease.outbox, found, self._pause)
            except collect.Changed:
                self._drop(files, path, "changed while it was read")

    def _drop(self, files: dict[str, Found], path: str, why: str) -> None:
        del files[path]
        self._problem(f"{path!a} {why}.")

    def _problem(self, detail: str) -> None:
        self.lease.change(output_problem={"code": "output_refused", "detail": detail[:500]})

    def _pause(self) -> None:
        if self.lease.errand.stopped.is_set():
            raise Stopped

    # -- send

    def _send_all(self, files: dict[str, Found], wanted: list[Found]) -> None:
        for batch in _batches(wanted):
            for answer in self._declare(files, batch):
                found = files.get(answer["path"])
                if found and answer["state"] == "send":
                    patiently(lambda f=found, a=answer: self._send(f, a), self.lease.errand)  # type: ignore[misc]

    def _declare(self, files: dict[str, Found], batch: list[Found]) -> list[dict[str, Any]]:
        """Tell the portal of files; the ones that it refuses are left out and said so."""
        entries = [self._entry(found) for found in batch]
        try:
            answer: list[dict[str, Any]] = self._call("output", {"files": entries})["files"]
        except Refused as error:
            if error.code == "conflict":
                return []  # complete already, before this agent was started: `complete` says so
            if error.code != "output_refused":
                raise
            return self._without_refused(files, batch, error)
        return answer

    def _without_refused(
        self, files: dict[str, Found], batch: list[Found], error: Refused
    ) -> list[dict[str, Any]]:
        """Leave out the refused path; where the portal does not name it, halve to find it."""
        paths = [found.path for found in batch]
        path = paths[0] if len(batch) == 1 else error.body.get("path")
        if path in paths:
            self._drop(files, str(path), f"was refused: {error.body.get('message', '')}")
            rest = [found for found in batch if found.path != path]
            return self._declare(files, rest) if rest else []
        half = len(batch) // 2
        return self._declare(files, batch[:half]) + self._declare(files, batch[half:])

    def _entry(self, found: Found) -> dict[str, Any]:
        return {
            "path": found.path,
            "size": found.size,
            "digest": self.digests[found.path],
            "executable": found.executable,
        }

    def _call(self, path: str, body: Any) -> dict[str, Any]:
        return patiently(
            lambda: self.portal.call(
                "POST", f"leases/{self.lease.code}/{path}", body, lease=self.lease.key
            ),
            self.lease.errand,
        )

    def _send(self, found: Found, answer: dict[str, Any]) -> None:
        """The bytes from the portal's offset on. An address that is gone is asked for anew in the
        next round: `complete` names what is missing."""
        try:
            for _ in range(MOST_ROUNDS):
                if answer["offset"] >= found.size:
                    return
                try:
                    answer["offset"] = self._patch(found, answer["upload"], answer["offset"])
                except Refused as error:
                    if error.status != 409:
                        raise
                    answer["offset"] = self._offset(answer["upload"])
                except Away:
                    with contextlib.suppress(Away):  # the first one says why
                        answer["offset"] = self._offset(answer["upload"])
                    raise
        except Refused:
            return

    def _patch(self, found: Found, address: str, offset: int) -> int:
        fd = collect.open_found(self.lease.outbox, found)
        with os.fdopen(fd, "rb") as source:
            source.seek(offset)
            headers = {**TUS, "Upload-Offset": str(offset)}
            headers["Content-Type"] = "application/offset+octet-stream"
            headers["Content-Length"] = str(found.size - offset)
            answer = self.portal.open("PATCH", address, source, headers)
            self.portal.read(answer)
        return int(answer.headers.get("Upload-Offset") or 0)

    def _offset(self, address: str) -> int:
        answer = self.portal.open("HEAD", address, None, dict(TUS))
        self.portal.read(answer)
        return int(answer.headers.get("Upload-Offset") or 0)

    # -- confirm

    def _complete(self, files: dict[str, Found]) -> list[Found] | None:
        """Ask the portal to accept the whole; the files that it misses, or None when it has all."""
        rows = [(self.digests[f.path], f.size, f.executable, f.path) for f in files.values()]
        body = {"files": len(rows), "bytes": sum(row[1] for row in rows)}
        try:
            self._call("output/complete", {**body, "manifest_digest": manifest_digest(rows)})
        except Refused as error:
            if error.code != "output_incomplete":
                raise
            missing = set(error.body.get("send") or files)
            return [found for found in files.values() if found.path in missing]
        return None


def _batches(files: list[Found]) -> Iterator[list[Found]]:
    for start in range(0, len(files), BATCH):
        yield files[start : start + BATCH]


def send_log(portal: Portal, lease: Lease) -> bool:
    """Send what the log has more than the portal; True when nothing is left. Raises Away."""
    size = lease.log_size()
    while lease.record.log_sent < size:
        with lease.log.open("rb") as log:
            log.seek(lease.record.log_sent)
            block = log.read(min(LOG_BLOCK, size - lease.record.log_sent))
        address = f"leases/{lease.code}/log?offset={lease.record.log_sent}"
        try:
            answer = portal.call("POST", address, block, lease=lease.key)
        except Refused as error:
            if error.code != "offset":
                raise
            answer = error.body
        if answer["offset"] == lease.record.log_sent:
            lease.log_closed = True  # the portal takes no more of it: its own limit
        if lease.log_closed:
            return True
        lease.note(log_sent=int(answer["offset"]))
    return True

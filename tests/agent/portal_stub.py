"""A stub of the portal for tests of the agent: docs/agent-protocol.md over a plain HTTP server.

It keeps one node's leases in memory and wants of each what a scheduler would: fetch, then run as
soon as it is ready. Tests change `wanted`, make it answer 503, or corrupt what arrives.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nodes.agent.digests import FileHash, chunk_size, manifest_digest

CREDENTIAL = "credential-of-the-node"
TOKEN = "one-time-token"
GIB = 2**30


def digest_of(content: bytes) -> str:
    total = FileHash(len(content))
    total.update(content)
    return total.digest()


@dataclass
class Output:
    size: int
    digest: str
    executable: bool = False
    content: bytes = b""

    @property
    def whole(self) -> bool:
        return len(self.content) == self.size and digest_of(self.content) == self.digest


@dataclass
class StubLease:
    """One lease: its spec, its input files and what the agent said and sent."""

    code: str
    spec: dict[str, Any]
    inputs: dict[str, bytes]
    token: str = "1.1"
    gpus: list[str] = field(default_factory=list)
    order: str = ""  # overrides what is wanted
    report: dict[str, Any] = field(default_factory=dict)
    phases: list[str] = field(default_factory=list)
    ages: dict[str, int | None] = field(default_factory=dict)
    log: bytes = b""
    outputs: dict[str, Output] = field(default_factory=dict)
    completed: dict[str, Any] | None = None
    completions: int = 0
    served: int = 0  # bytes of inputs

    @property
    def phase(self) -> str:
        return str(self.report.get("phase", ""))

    def wanted(self) -> str:
        if self.order:
            return self.order
        if self.phase in ("", "fetching"):
            return "fetch"
        if self.phase == "released":
            return "release" if self.report["output"] in ("sealed", "delivering") else "keep"
        return "run"


def spec_of(code: str, **changes: Any) -> dict[str, Any]:
    """A spec as the portal makes it, small; `limits` are merged."""
    limits = {"seconds": 60, "term_margin_seconds": 2, "output_window_seconds": 60, "cpus": 1}
    limits |= {"memory_bytes": GIB, "scratch_bytes": GIB, "output_bytes": GIB}
    limits |= {"log_bytes": 2**20, "processes": 64, **changes.pop("limits", {})}
    spec: dict[str, Any] = {"lease": code, "token": "1.1", "job": "job1", "team": "team1"}
    spec |= {"kind": "main", "index": 0, "count": 1, "attempt": 1, "variables": {}}
    spec |= {"gpus": 0, "disk_bytes": 10 * 2**20, "outputs": [{"pattern": "**", "optional": False}]}
    return {**spec, **changes, "limits": limits}


def script(text: str, language: str = "bash") -> dict[str, str]:
    return {"kind": "script", "language": language, "script": text, "command": ""}


def command(text: str, kind: str = "command") -> dict[str, str]:
    return {"kind": kind, "language": "bash", "script": "", "command": text}


class PortalStub:
    """The server; `with PortalStub() as portal` runs it on a free port of the loopback."""

    def __init__(self) -> None:
        self.leases: dict[str, StubLease] = {}
        self.polls: list[dict[str, Any]] = []
        self.failures: list[str] = []  # what the agent did against the protocol
        self.poll_error: tuple[int, str] | None = None
        self.away = False  # answers 503 to everything
        self.store_away = False  # answers `store_error` to uploads only
        self.logs_away = False  # answers 503 to logs only
        self.store_error = (503, "store_away")
        self.corrupt_uploads = 0  # flip a byte of the next n uploads
        self.cut_files = 0  # break the connection in the middle of the next n files
        self.refused_paths: set[str] = set()
        self.next_poll_ms = 200
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "PortalStub":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def place(self, code: str, inputs: dict[str, bytes] | None = None, **spec: Any) -> StubLease:
        """Place a lease on the node. `inputs` are paths as the agent's listing names them."""
        files = inputs or {}
        body = spec_of(code, **spec)
        body |= {"files": len(files), "bytes": sum(len(content) for content in files.values())}
        lease = StubLease(code, body, files)
        lease.gpus = [f"GPU-SIM-node-{n}" for n in range(body["gpus"])]
        self.leases[code] = lease
        return lease

    def changed(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
        """The condition's value as soon as it is true; fails with `what` after `seconds`."""
        until = time.monotonic() + seconds
        with self._changed:
            while not (value := condition()):
                left = until - time.monotonic()
                assert left > 0, f"not in {seconds} s: {what}; {self._state()}"
                self._changed.wait(min(left, 0.1))
        return value

    def _state(self) -> list[Any]:
        return [(one.code, one.report, one.log[-500:]) for one in self.leases.values()]

    def wait_phase(self, lease: StubLease, phase: str, seconds: float = 60) -> dict[str, Any]:
        self.wait(lambda: lease.phase == phase, f"{lease.code} {phase}", seconds)
        return lease.report


class ProtocolError(Exception):
    def __init__(self, status: int, code: str, **data: Any) -> None:
        super().__init__(code)
        self.status, self.body = status, {"error": code, "message": f"{code}.", **data}


def _handler(portal: PortalStub) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        stub = portal

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: PortalStub

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def setup(self) -> None:
        super().setup()
        self.wfile = self.connection.makefile("wb", 65536)  # one packet an answer

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # tests kill agents
            super().handle()

    def _serve(self) -> None:
        try:
            self._answer()
        except ProtocolError as error:
            if error.body["error"].startswith("bad"):
                self.stub.failures.append(f"{self.command} {self.path}: {error}")
            self._json(error.status, error.body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        self.stub.changed()

    do_GET = do_POST = do_PATCH = do_HEAD = _serve

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        if self.stub.away:
            self._drain()
            raise ProtocolError(503, "away")
        if path.startswith("/tus/"):
            return self._tus(path)
        if path == "/agent/v1/enrol":
            return self._enrol()
        if self.headers.get("Authorization") != f"Bearer {CREDENTIAL}":
            raise ProtocolError(401, "unknown_credential")
        if path == "/agent/v1/poll":
            return self._poll()
        _, _, _, _, code, *rest = path.split("/")
        lease = self.stub.leases.get(code)
        if lease is None:
            raise ProtocolError(404, "unknown_lease")
        if self.headers.get("X-Lease-Token") != lease.token:
            self._drain()
            raise ProtocolError(409, "stale_lease")
        return self._lease(lease, rest)

    def _lease(self, lease: StubLease, rest: list[str]) -> None:
        match (self.command, rest):
            case ("GET", ["spec"]):
                self._json(200, lease.spec)
            case ("GET", ["files"]):
                self._files(lease)
            case ("GET", ["files", number]):
                self._file(lease, int(number))
            case ("POST", ["log"]):
                self._log(lease)
            case ("POST", ["output"]):
                self._output(lease)
            case ("POST", ["output", "complete"]):
                self._complete(lease)
            case _:
                raise ProtocolError(400, "bad_address")

    # -- bodies

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _drain(self) -> None:
        self._body()

    def _json(self, status: int, body: Any) -> None:
        self._send(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    # -- the node

    def _enrol(self) -> None:
        body = json.loads(self._body())
        if body["token"] != TOKEN:
            raise ProtocolError(400, "refused")
        answer = {"node": "n1", "name": "node", "credential": CREDENTIAL, "epoch": 1}
        self._json(201, answer)

    def _poll(self) -> None:
        body = json.loads(self._body())
        if self.stub.poll_error:
            raise ProtocolError(*self.stub.poll_error)
        self.stub.polls.append(body)
        orders, reported = [], {}
        for item in body["leases"]:
            reported[item["lease"]] = item
            orders.append(self._reported(item))
        for lease in self.stub.leases.values():
            if lease.code not in reported and lease.wanted() == "fetch":
                orders.append(self._order(lease))
            elif lease.code not in reported and lease.report:
                lease.report = {"phase": "gone", "output": lease.report.get("output")}
        answer = {"epoch": 1, "next_poll_ms": self.stub.next_poll_ms, "leases": orders}
        self._json(200, answer)

    def _reported(self, item: dict[str, Any]) -> dict[str, Any]:
        lease = self.stub.leases.get(item["lease"])
        if lease is None:
            return {"lease": item["lease"], "token": item["token"], "wanted": "keep", "gpus": []}
        if item["token"] != lease.token:
            return {"lease": item["lease"], "token": item["token"], "wanted": "drop", "gpus": []}
        lease.report = item
        lease.ages.update({k: v for k, v in item["ages"].items() if v is not None})
        if not lease.phases or lease.phases[-1] != item["phase"]:
            lease.phases.append(item["phase"])
        return self._order(lease)

    def _order(self, lease: StubLease) -> dict[str, Any]:
        wanted = lease.wanted()
        gpus = lease.gpus if wanted == "run" else []
        return {"lease": lease.code, "token": lease.token, "wanted": wanted, "gpus": gpus}

    # -- files

    def _files(self, lease: StubLease) -> None:
        after = int(parse_qs(urlsplit(self.path).query).get("after", ["0"])[0] or 0)
        page = 1000
        listing = [
            {"id": n, "path": path, "size": len(content), "digest": digest_of(content),
             "chunk_size": chunk_size(len(content)), "executable": path.endswith(".sh")}
            for n, (path, content) in enumerate(lease.inputs.items(), 1)
        ]  # fmt: skip
        chosen = listing[after : after + page]
        following = str(after + page) if len(listing) > after + page else None
        self._json(200, {"files": chosen, "next": following})

    def _file(self, lease: StubLease, number: int) -> None:
        content = list(lease.inputs.values())[number - 1]
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        content = content[start:]
        if self.stub.cut_files and len(content) > 1:
            self.stub.cut_files -= 1
            lease.served += len(content) // 2
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        lease.served += len(content)
        self._send(206 if start else 200, content, {})

    def _log(self, lease: StubLease) -> None:
        offset = int(parse_qs(urlsplit(self.path).query)["offset"][0])
        body = self._body()
        if self.stub.logs_away:
            raise ProtocolError(503, "away")
        if len(body) > 2**20:
            raise ProtocolError(413, "bad_log")
        if offset != len(lease.log):
            raise ProtocolError(409, "offset", offset=len(lease.log))
        told = lease.report.get("log_bytes")
        if told is not None and offset + len(body) > told:
            raise ProtocolError(409, "bad_log_after_its_end")
        lease.log += body
        self._json(200, {"offset": len(lease.log)})

    # -- output

    def _output(self, lease: StubLease) -> None:
        files = json.loads(self._body())["files"]
        if not 1 <= len(files) <= 1000:
            raise ProtocolError(400, "bad_request")
        if lease.completed:
            raise ProtocolError(409, "conflict")
        for entry in files:
            if entry["path"] in self.stub.refused_paths:
                raise ProtocolError(400, "output_refused")
        answers = []
        for entry in files:
            known = lease.outputs.get(entry["path"])
            if known is None or (known.size, known.digest) != (entry["size"], entry["digest"]):
                known = lease.outputs[entry["path"]] = Output(
                    entry["size"], entry["digest"], entry["executable"]
                )
            number = list(lease.outputs).index(entry["path"])
            state = "have" if known.whole else "send"
            address = f"/tus/{lease.code}/{number}"
            answers.append(
                {"path": entry["path"], "state": state, "upload": address,
                 "offset": len(known.content)}
            )  # fmt: skip
        self._json(200, {"files": answers})

    def _tus(self, path: str) -> None:
        _, _, code, number = path.split("/")
        output = list(self.stub.leases[code].outputs.values())[int(number)]
        if self.headers.get("Tus-Resumable") != "1.0.0":
            raise ProtocolError(412, "bad_tus")
        if "Authorization" in self.headers:
            raise ProtocolError(400, "bad_credential_sent_to_the_store")
        if self.stub.store_away:
            self._drain()
            raise ProtocolError(*self.stub.store_error)
        headers = {"Tus-Resumable": "1.0.0", "Upload-Offset": str(len(output.content))}
        if self.command == "HEAD":
            return self._send(200, b"", headers)
        return self._patch(output)

    def _patch(self, output: Output) -> None:
        if self.headers["Content-Type"] != "application/offset+octet-stream":
            raise ProtocolError(415, "bad_content_type")
        body = self._body()
        if int(self.headers["Upload-Offset"]) != len(output.content):
            raise ProtocolError(409, "offset", offset=len(output.content))
        if self.stub.corrupt_uploads and body:
            self.stub.corrupt_uploads -= 1
            body = bytes([body[0] ^ 1]) + body[1:]
        output.content += body
        offset = len(output.content)
        if offset == output.size and not output.whole:
            output.content = b""  # caught by its digest: to be sent again
        self._send(204, b"", {"Tus-Resumable": "1.0.0", "Upload-Offset": str(offset)})

    def _complete(self, lease: StubLease) -> None:
        body = json.loads(self._body())
        missing = [path for path, output in lease.outputs.items() if not output.whole]
        if missing:
            raise ProtocolError(409, "output_incomplete", send=missing)
        rows = [(one.digest, one.size, one.executable, path) for path, one in lease.outputs.items()]
        expected = {"files": len(rows), "bytes": sum(row[1] for row in rows)}
        if body != {**expected, "manifest_digest": manifest_digest(rows)}:
            raise ProtocolError(400, "bad_manifest")
        lease.completions += lease.completed is None
        lease.completed = body
        self._json(200, {"verified": True})

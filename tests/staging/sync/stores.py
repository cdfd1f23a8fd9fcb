"""Real S3 servers for tests: SeaweedFS, which keeps every promise, and rclone, which does not."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

KEY, SECRET = "test-key-of-sync", "test-secret-of-sync"
LIMIT_S = 60


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def low_ports(count: int) -> list[int]:
    """Ports whose number plus 10,000 is one, too: SeaweedFS takes that for gRPC where not told."""
    found = []
    while len(found) < count:
        (port,) = free_ports(1)
        if port < 55000 and port not in found:
            found.append(port)
    return found


class Store:
    """A server process with one S3 endpoint, a folder of its own, and a boto3 client to fill it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen | None = None
        self.port = 0

    def argv(self) -> list[str]:
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"max_attempts": 1},
                connect_timeout=5,
                read_timeout=30,
            ),
        )

    def start(self) -> "Store":
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(self.argv(), stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                self.client.list_buckets()
                return self
            except (BotoCoreError, ClientError):
                assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.1)
        raise AssertionError(
            f"the store did not start: {(self.folder / 'log').read_text()[-2000:]}"
        )

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None

    def put(self, bucket: str, objects: dict[str, bytes]) -> None:
        client = self.client
        for key, body in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=body)


class Weed(Store):
    """SeaweedFS: master, volume server, filer and S3 in one process."""

    def argv(self) -> list[str]:
        if not self.port:
            self.port, *self.others = low_ports(4)
        config = {
            "identities": [
                {
                    "name": "sync",
                    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                },
                {
                    "name": "lister",
                    "credentials": [{"accessKey": "lister-key", "secretKey": SECRET}],
                    "actions": ["List"],
                },
            ]
        }
        (self.folder / "s3.json").write_text(json.dumps(config))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        master, volume, filer = self.others
        weed = Path(sys.executable).with_name("weed")
        # The socket's default place is shared by all that run on a machine.
        (short,) = [tempfile.mkdtemp(prefix="w")]
        return [
            *(str(weed), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *("-master.telemetry=false", f"-master.port={master}", f"-volume.port={volume}"),
            *(f"-filer.port={filer}", "-filer", "-s3", f"-s3.port={self.port}"),
            *(f"-s3.config={self.folder / 's3.json'}", f"-s3.localSocket={short}/s3.sock"),
            *("-volume.max=2000", "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0"),
            *("-s3.port.lance=0",),
        ]


class Rclone(Store):
    """`rclone serve s3` over a folder: it keeps no conditions."""

    def argv(self) -> list[str]:
        if not self.port:
            (self.port,) = free_ports(1)
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        rclone = Path(sys.executable).with_name("rclone")
        return [
            *(str(rclone), "serve", "s3", str(data), "--config", "", "--addr"),
            *(f"127.0.0.1:{self.port}", "--auth-key", f"{KEY},{SECRET}"),
            *("--vfs-cache-mode", "off", "--dir-cache-time", "0s"),
        ]

"""A disk that is full in earnest: nothing that was acknowledged moves, and it goes on later."""

import hashlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.staging.live import serving
from tests.staging.test_tus_live import Portal, content

pytestmark = pytest.mark.xdist_group("disk_live")
MIB = 2**20


class SmallDisk(Portal):
    """A store that takes 4 MiB: a file system of its own, or where none can be mounted a limit on
    the size of a file. Either makes a write come out short, and the next one fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = folder / "store"
        self.store.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(self.store)]
        self.mounted = subprocess.run(mount, capture_output=True).returncode == 0

    def start(self) -> None:
        super().start()
        if not self.mounted:
            self._limit(4 * MIB)

    def _limit(self, size: int) -> None:
        assert self.process is not None
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True
        )
        for pid in children.stdout.split():
            hard = resource.RLIM_INFINITY
            resource.prlimit(int(pid), resource.RLIMIT_FSIZE, (size, hard))

    def make_room(self) -> None:
        if self.mounted:
            again = ["mount", "-o", "remount,size=64m", str(self.store)]
            subprocess.run(again, check=True)
        else:
            self._limit(64 * MIB)

    def unmount(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.store)], check=True)


@pytest.fixture
def server(tmp_path) -> Iterator[SmallDisk]:
    server = SmallDisk(tmp_path)
    try:
        with serving(server):
            server.set_up()
            yield server
    finally:
        server.unmount()


def test_a_full_disk_never_moves_the_offset_beyond_what_is_there(server):
    data = content(6 * MIB + 17)
    upload = (
        "from staging import services; from staging.models import Dataset\n"
        "from staging import usage; usage._check_disk = lambda amount: None\n"
        f"(plan,) = services.declare_files(dataset=Dataset.objects.get(), actor="
        f"'owner@climate.example', entries=[services.Entry('big', {len(data)})])\n"
        "print(plan.address)"
    )
    address = server.shell(upload).splitlines()[-1]
    server.paths[address] = "big"
    answer = server.patch(address, 0, data)
    assert answer.status == 507
    message = answer.json()["message"]
    assert "full" in message and "MB of this file are missing" in message  # noqa: PT018
    at = server.offset(address)
    assert at == int(answer.headers["upload-offset"])
    assert 0 < at <= 4 * MIB
    assert server.patch(address, at, data[at:]).status == 507
    assert server.offset(address) <= 4 * MIB
    server.make_room()
    at = server.offset(address)
    assert server.patch(address, at, data[at:]).status == 204
    digest = hashlib.sha256(data).hexdigest()
    assert server.stored(address) == (digest, digest)

"""The pages of docs/ about uploads say what is true: their curl example and nginx block run."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.staging.live import Server, patch_head, serving, until
from tests.staging.test_tus_live import content
from tests.staging.test_tus_owes import Tus

pytestmark = pytest.mark.xdist_group("docs_live")
DOCS = Path(__file__).parents[2] / "docs"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
CONF = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u;
    scgi_temp_path {folder}/s;
    server {{
        listen 127.0.0.1:{port};
        {block}
    }}
}}
"""


def block(page: str, language: str) -> str:
    """The first fenced block of a language on a page of docs/."""
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Tus]:
    server = Tus(tmp_path_factory.mktemp("docs"))
    with serving(server):
        server.set_up()
        yield server


class Through(Server):
    """The same portal at the address of a proxy in front of it."""

    def __init__(self, folder: Path, behind: Tus) -> None:
        super().__init__(folder)
        location = block("operators-uploads.md", "nginx")
        assert "http://127.0.0.1:8000" in location
        self.conf = folder / "nginx.conf"
        self.conf.write_text(
            CONF.format(
                folder=folder,
                port=self.port,
                block=location.replace("127.0.0.1:8000", f"127.0.0.1:{behind.port}"),
            )
        )

    def start(self) -> None:
        assert NGINX is not None
        argv = [NGINX, "-e", f"{self.folder}/error.log", "-c", str(self.conf)]
        self.process = subprocess.Popen(argv, start_new_session=True)
        until(self._answers, "nginx answers")


@pytest.fixture
def proxy(server, tmp_path) -> Iterator[Through]:
    if NGINX is None:
        pytest.skip("nginx is not installed")
    proxy = Through(tmp_path, server)
    tmp_path.chmod(0o755)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.kill()


class TestNginx:
    def test_a_cut_upload_keeps_its_bytes(self, server, proxy):
        data = content(8_000_011)
        address = server.new(len(data), Upload_Metadata=f"filename {'bmdpbng='}")
        server.paths[address] = "nginx"
        at = 0
        for sent in (300_001, 1, 5_000_000):
            with proxy.connect() as sock:
                sock.sendall(patch_head(address, at, len(data) - at) + data[at : at + sent])
                want = at + sent
                until(lambda want=want: server.offset(address) == want, "bytes pass as they come")
            at = want
        assert proxy.offset(address) == at
        assert proxy.patch(address, at, data[at:]).status == 204
        digest = hashlib.sha256(data).hexdigest()
        assert server.stored(address) == (digest, digest)

    def test_a_taken_over_request_ends_through_it(self, server, proxy):
        address = server.new(1000)
        with proxy.connect() as hanging:
            hanging.sendall(patch_head(address, 0, 1000) + b"x" * 10)
            until(lambda: proxy.offset(address) == 10, "HEAD through nginx shows what arrived")
        assert proxy.patch(address, 10, b"y" * 990).status == 204

    def test_a_body_over_the_default_limit_of_nginx_passes(self, server, proxy):
        data = content(3_000_000)
        assert proxy.patch(server.new(len(data)), 0, data).status == 204


class TestCurl:
    @pytest.fixture
    def run(self, server, tmp_path):
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        script = tmp_path / "upload.sh"
        script.write_text(block("uploads.md", "sh"))

        def run(file: Path) -> subprocess.Popen[str]:
            env = os.environ | {
                "PORTAL": f"http://127.0.0.1:{server.port}",
                "KEY": server.key,
                "FILE": str(file),
            }
            return subprocess.Popen(
                ["sh", str(script)],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

        return run

    def test_the_example_uploads(self, server, tmp_path, run):
        data = content(2_000_003)
        file = tmp_path / "with space é.bin"
        file.write_bytes(data)
        output, _ = run(file).communicate(timeout=60)
        assert "all 2000003 bytes have arrived" in output
        path = f"/staging/{server.dataset}/files/with%20space%20%C3%A9.bin"
        answer = server.request("GET", path, **server.signed_in)
        assert hashlib.sha256(answer.body).hexdigest() == hashlib.sha256(data).hexdigest()

    def test_killed_and_run_again_it_goes_on(self, server, tmp_path, run):
        """The key answers the same upload, so nothing that arrived is sent twice."""
        data = content(40_000_000)
        file = tmp_path / "large.bin"
        file.write_bytes(data)
        address = server.new(len(data), Upload_Metadata=f"filename {'bGFyZ2UuYmlu'}")
        server.patch(address, 0, data[:10_000_000])
        first = run(file)
        until(lambda: first.poll() is not None or server.offset(address) > 10_000_000, "it goes on")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(60)
        at = server.offset(address)
        assert at > 10_000_000
        output, _ = run(file).communicate(timeout=60)
        assert "all 40000000 bytes have arrived" in output
        server.paths[address] = "large.bin"
        assert server.stored(address)[1] == hashlib.sha256(data).hexdigest()


def test_what_is_documented_is_what_is_spoken(server):
    page = (DOCS / "uploads.md").read_text()
    answer = server.request("OPTIONS", "/tus/")
    for word in answer.headers["tus-extension"].split(","):
        assert word in page
    for name in answer.headers["tus-checksum-algorithm"].split(","):
        assert f"`{name}`" in page

"""What the portal connects to, and what not: real sockets, and names that resolve as they like."""

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from staging.sync import guard, web
from staging.sync.errors import AddressRefused, SourceAway, SourceRefuses
from tests.staging.sync.stubs import Stub

INSIDE = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",  # noqa: S104
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
]
OUTSIDE = ["93.184.215.14", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.fixture
def closed(settings) -> None:
    settings.SYNC_ALLOWED_NETWORKS = []


@pytest.mark.parametrize("address", INSIDE)
def test_what_is_inside_is_refused(closed, address):
    assert not guard.is_allowed(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_what_is_public_is_allowed(closed, address):
    assert guard.is_allowed(address)


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "127.1", "0x7f000001", "::1::"])
def test_what_is_no_address_is_refused(closed, text):
    assert not guard.is_allowed(text)


def test_the_operator_may_list_networks(settings):
    settings.SYNC_ALLOWED_NETWORKS = ["10.0.0.0/8", "fd00::/8"]
    assert guard.is_allowed("10.1.2.3")
    assert guard.is_allowed("::ffff:10.1.2.3")
    assert guard.is_allowed("fd00::7")
    assert not guard.is_allowed("192.168.0.1")


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1"])
def test_loopback_is_refused_however_it_is_spelled(closed, listening, host):
    with pytest.raises((AddressRefused, SourceAway)):
        guard.connect(host, listening)


def resolving(monkeypatch, *rounds: list[str]) -> list[str]:
    """Names resolve to other addresses each time they are asked for."""
    answers = list(rounds)
    asked: list[str] = []
    real = socket.getaddrinfo

    def answer(host, port, *args, **options):
        asked.append(host)
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [found for each in addresses for found in real(each, port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return asked


def test_a_name_is_resolved_once_and_that_very_address_is_connected_to(
    settings, monkeypatch, listening
):
    settings.SYNC_ALLOWED_NETWORKS = ["127.0.0.1"]
    asked = resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    with guard.connect("rebinding.example", listening) as sock:
        assert sock.getpeername()[0] == "127.0.0.1"
    assert asked == ["rebinding.example"]


def test_of_several_addresses_only_the_allowed_are_tried(settings, monkeypatch, listening):
    settings.SYNC_ALLOWED_NETWORKS = ["127.0.0.1"]
    resolving(monkeypatch, ["127.0.0.9", "10.0.0.1", "127.0.0.1"])
    with guard.connect("mixed.example", listening) as sock:
        assert sock.getpeername()[0] == "127.0.0.1"


def test_the_refusal_names_the_address_and_the_setting(closed, monkeypatch):
    resolving(monkeypatch, ["169.254.169.254"])
    with pytest.raises(AddressRefused, match=r"169\.254\.169\.254.*SYNC_ALLOWED_NETWORKS"):
        guard.connect("metadata.example", 80)


def test_a_name_that_does_not_resolve_is_told_apart(monkeypatch):
    def fails(*_args, **_options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(SourceAway, match="does not resolve") as caught:
        guard.connect("nowhere.example", 443)
    assert caught.value.data["kind"] == "name"


def test_a_port_where_nobody_listens_is_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SourceAway, match="refuses connections") as caught:
        guard.connect("127.0.0.1", port)
    assert caught.value.data["kind"] == "refused"


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    stub = Stub(lambda path, headers: (200, {}, b"straight"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    try:
        with web.send("GET", f"{stub.endpoint}/x", {}) as answer:
            assert answer.text() == b"straight"
    finally:
        stub.close()


def certificate(name: str, folder) -> tuple[str, str]:
    """(file of a self-signed certificate for a name, file of its key)"""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if name[0].isdigit():
        names = [x509.IPAddress(ipaddress.ip_address(name))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(cert_file), str(key_file)


@pytest.fixture
def tls_stub(tmp_path, monkeypatch):
    """make(name, reply): a server with a certificate for `name`, which is trusted."""
    stubs = []

    def make(name, reply) -> Stub:
        cert, key = certificate(name, tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        trusting = ssl.create_default_context(cafile=cert)
        monkeypatch.setattr(guard, "tls_context", lambda: trusting)
        stubs.append(Stub(reply, tls=context))
        return stubs[-1]

    yield make
    for stub in stubs:
        stub.close()


def test_the_certificate_is_checked_against_the_name(tls_stub, monkeypatch):
    stub = tls_stub("right.example", lambda path, headers: (200, {}, b"hello"))
    resolving(monkeypatch, ["127.0.0.1"])
    with web.send("GET", f"https://right.example:{stub.port}/", {}) as answer:
        assert answer.text() == b"hello"
    with pytest.raises(SourceRefuses, match="certificate of wrong") as caught:
        web.send("GET", f"https://wrong.example:{stub.port}/", {})
    assert caught.value.data["kind"] == "tls"


def test_an_unknown_certificate_is_refused(tls_stub, monkeypatch):
    stub = tls_stub("right.example", lambda path, headers: (200, {}, b"hello"))
    monkeypatch.setattr(guard, "tls_context", ssl.create_default_context)
    resolving(monkeypatch, ["127.0.0.1"])
    with pytest.raises(SourceRefuses, match="certificate"):
        web.send("GET", f"https://right.example:{stub.port}/", {})

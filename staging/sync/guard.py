"""Connections to addresses that users chose. What is inside stays inside.

A name is resolved, every address is judged, and the connection is made to the very address that
was judged, so a name that resolves otherwise a moment later changes nothing. TLS still checks the
certificate against the name. Proxies of the environment are not used. Redirects are followed by
nobody but the caller, who comes through here again.
"""

import ipaddress
import socket
import ssl
import time
from functools import lru_cache

from django.conf import settings

from staging.sync.errors import AddressRefused, SourceAway, SourceRefuses

CONNECT_S = 5.0
NAT64 = ipaddress.ip_network("64:ff9b::/96")

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for (mapped, 6to4, Teredo, NAT64), else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


@lru_cache
def _listed(networks: tuple[str, ...]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(network) for network in networks]


def is_allowed(text: str) -> bool:
    """Whether the portal connects to this address: it is public, or the operator listed it."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    plain = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    for network in _listed(tuple(settings.SYNC_ALLOWED_NETWORKS)):
        if address in network or (plain is not None and plain in network):
            return True
    return all(_is_public(each) for each in {address, embedded(address)})


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (
        address.ipv4_mapped is not None or address in NAT64
    ):
        return True  # it only stands for another, which is judged
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


def _resolve(host: str, port: int) -> list[tuple[int, tuple]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (socket.gaierror, UnicodeError) as error:
        raise SourceAway(f"The name {host} does not resolve.", kind="name") from error
    return [(family, where) for family, _, _, _, where in found]


def connect(host: str, port: int, limit_s: float = CONNECT_S) -> socket.socket:
    """A TCP connection to one of the allowed addresses of `host`, within `limit_s` seconds.

    Raises SourceAway, or AddressRefused where no address of it may be connected to."""
    places = _resolve(host, port)
    allowed = [place for place in places if is_allowed(place[1][0])]
    if not allowed:
        raise AddressRefused(
            f"{host} is at {places[0][1][0] if places else 'no address'}, which is loopback, "
            "private or otherwise not public. An operator may list it in SYNC_ALLOWED_NETWORKS.",
            kind="address",
        )
    until = time.monotonic() + limit_s
    problem, kind = f"{host} did not answer within {limit_s:g} s.", "silent"
    for family, where in allowed:
        left = until - time.monotonic()
        if left <= 0:
            break
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(left)
            sock.connect(where)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except TimeoutError:
            sock.close()
        except ConnectionRefusedError:
            sock.close()
            problem, kind = f"{host} refuses connections at port {port}.", "refused"
        except OSError as error:
            sock.close()
            problem, kind = f"{host} cannot be reached: {error.strerror or error}.", "unreachable"
    raise SourceAway(problem, kind=kind)


@lru_cache
def tls_context() -> ssl.SSLContext:
    """The system's roots, and those that SSL_CERT_FILE names; TLS 1.2 or newer."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def secure(sock: socket.socket, host: str) -> socket.socket:
    """TLS over a connection, with the certificate checked against `host`. Raises SourceRefuses."""
    try:
        return tls_context().wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise SourceRefuses(
            f"The certificate of {host} is not accepted: {error.verify_message}.",
            kind="tls",
        ) from error
    except (ssl.SSLError, OSError) as error:
        sock.close()
        text = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
        raise SourceAway(f"{host} does not speak TLS properly: {text}.", kind="tls") from error

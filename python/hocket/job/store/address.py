"""Addresses as text and for sockets: `HOST:PORT`, `[V6]:PORT`, and the local end of the route to a peer.

A host may be several literal addresses of one machine, such as one of each family: `[10.0.0.1,fd00::1]:29400`.

The protocols are in `store` and `rendezvous`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from hocket.errors import RendezvousError, UsageError

LOOPBACK = "127.0.0.1"
UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104  # to which no peer can come
PORT_MAX = 65535
FAR_AWAY = ("192.0.2.1", "2001:db8::1")
"""Documentation addresses, used by no host (RFC 5737, RFC 3849): routes to them are the default ones."""


class UnknownNameError(RendezvousError):
    """Error: a host name does not resolve, at least not yet."""


def split(address: str, *, variable: str = "address") -> tuple[str, int]:
    """Split `HOST:PORT` or `[V6]:PORT` into host and port; UsageError names `variable`.

    >>> split("[::1]:29400"), split("[10.0.0.1,fd00::1]:29400")
    (('::1', 29400), ('10.0.0.1,fd00::1', 29400))
    """
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    bare_v6 = ":" in host and not address.startswith("[")
    several = "," in host and not is_literal(host)
    if not colon or not host or bare_v6 or several or not port.isascii() or not port.isdigit():
        raise UsageError(f"{variable}: `{address}` is not of the form HOST:PORT (IPv6: [ADDRESS]:PORT)")
    if int(port) > PORT_MAX:
        raise UsageError(f"{variable}: `{address}` has port {port}: the largest is {PORT_MAX}")
    return host, int(port)


def join(host: str, port: int) -> str:
    """Join host and port; the inverse of `split`.

    >>> join("::1", 29400)
    '[::1]:29400'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_literal(host: str) -> bool:
    """Return whether `host` is an IP address, or several, and not a name."""
    try:
        for each in each_of(host):
            ipaddress.ip_address(each.partition("%")[0])
    except ValueError:
        return False
    return True


def each_of(host: str) -> tuple[str, ...]:
    """Return the addresses of a host that has several; otherwise the host.

    >>> each_of("10.0.0.1,fd00::1"), each_of("node0")
    (('10.0.0.1', 'fd00::1'), ('node0',))
    """
    return tuple(host.split(","))


def is_loopback(host: str) -> bool:
    """Return whether `host` is an IP address, or several, that only this machine reaches."""
    return is_literal(host) and all(
        ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in each_of(host)
    )


def leads_here_alone(host: str) -> bool:
    """Return whether `host`, a name or an IP address, leads no other machine to this one."""
    return host == "localhost" or is_loopback(host)


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def resolve(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    """Return (family, socket address) candidates in the resolver's order; UnknownNameError if there are none."""
    try:
        found = [
            each for part in each_of(host) for each in socket.getaddrinfo(part, port, type=socket.SOCK_STREAM)
        ]
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UnknownNameError(
            f"the name `{host}` is not known on {socket.gethostname()}: {reason}\n"
            "hint: give an address instead, in HOCKET_STORE, HOCKET_COORDINATOR or MASTER_ADDR"
        ) from None
    return [(family, where) for family, _, _, _, where in found]  # type: ignore[misc]


def outward(known: Sequence[str]) -> str | None:
    """Return the local address of the default route; without one, the first of `known` that others may reach."""
    found = next(filter(None, map(towards, FAR_AWAY)), None)
    return found or next((each for each in known if not is_loopback(each)), None)


def towards(host: str) -> str | None:
    """Return the local address of packets to `host`; None without a route. Sends nothing."""
    try:
        candidates = resolve(host, 9)
    except UnknownNameError:
        return None
    for family, where in candidates:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(where)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return None

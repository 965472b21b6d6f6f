"""Addresses as text and as sockets want them: `HOST:PORT`, `[V6]:PORT`, interfaces, the route to a peer.

No protocol here: who talks about what is in `store` and `rendezvous`.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from hocket.errors import RendezvousError, UsageError

LOOPBACK = "127.0.0.1"
PORT_MAX = 65535
INTERFACE_NAME_BYTES_MAX = 15
SIOCGIFADDR = 0x8915
"""Linux: the IPv4 address of an interface."""


class UnknownNameError(RendezvousError):
    """A host name means nothing here, so far."""


def split(address: str, *, variable: str = "address") -> tuple[str, int]:
    """`HOST:PORT` or `[V6]:PORT` as host and port; UsageError names `variable`.

    >>> split("[::1]:29400")
    ('::1', 29400)
    """
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    bare_v6 = ":" in host and not address.startswith("[")
    if not colon or not host or bare_v6 or not port.isascii() or not port.isdigit():
        raise UsageError(f"{variable}: `{address}` is not of the form HOST:PORT (IPv6: [ADDRESS]:PORT)")
    if int(port) > PORT_MAX:
        raise UsageError(f"{variable}: `{address}` has port {port}: the largest is {PORT_MAX}")
    return host, int(port)


def join(host: str, port: int) -> str:
    """The inverse of `split`.

    >>> join("::1", 29400)
    '[::1]:29400'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_literal(host: str) -> bool:
    """Whether `host` is an IP address and no name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether `host` is an IP address that only this machine reaches."""
    return is_literal(host) and ipaddress.ip_address(host.partition("%")[0]).is_loopback


def resolve(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    """(family, socket address) candidates in the resolver's order; UnknownNameError when there are none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UnknownNameError(
            f"the name `{host}` is not known on {socket.gethostname()}: {reason}\n"
            "hint: give an address instead, in HOCKET_STORE or MASTER_ADDR"
        ) from None
    return [(family, where) for family, _, _, _, where in found]  # type: ignore[misc]


def towards(host: str) -> str | None:
    """The local address that packets to `host` would leave from; None without a route. Sends nothing."""
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


def of_interface(interface: str) -> str:
    """The address of an interface given by name, or the address itself; UsageError lists what there is."""
    if is_literal(interface):
        return interface
    packed = struct.pack("256s", interface.encode()[:INTERFACE_NAME_BYTES_MAX])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, packed)[20:24])
        except OSError:
            pass
    global_v6 = _v6_of(interface)
    if global_v6 is not None:
        return global_v6
    names = ", ".join(name for _, name in socket.if_nameindex())
    raise UsageError(
        f"HOCKET_INTERFACE: `{interface}` is no address and no interface with one on {socket.gethostname()}\n"
        f"hint: there are {names}"
    )


def _v6_of(interface: str) -> str | None:
    """First global IPv6 address. Columns: address, index, prefix length, scope (0: global), flags, name."""
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else []:
        packed, _, _, scope, _, name = line.split()
        if name == interface and scope == "00":
            return str(ipaddress.IPv6Address(bytes.fromhex(packed)))
    return None

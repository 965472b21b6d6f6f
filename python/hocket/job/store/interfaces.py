"""Resolution of `HOCKET_INTERFACE` to the IP addresses of this host that the wire uses.

`ifaddr` lists the interfaces, the kernel knows their hardware addresses; the rest is pure.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence

import ifaddr

from hocket.errors import UsageError
from hocket.job.store.address import is_literal

ALL = "all"
"""Value for every interface on whose network all hosts are."""


SIOCGIFHWADDR, IFNAMSIZ, SOCKADDR_AT = 0x8927, 15, 18
"""Constants of netdevice(7): request for an interface's hardware address; bytes of a name; offset in the answer, behind the
family."""


def here() -> tuple[tuple[str, str], ...]:
    """Return names and addresses (with prefix length) of this host's interfaces, without link-local addresses."""
    found = []
    for adapter in ifaddr.get_adapters():
        for each in adapter.ips:
            text = each.ip if isinstance(each.ip, str) else each.ip[0]
            if not ipaddress.ip_address(text).is_link_local:
                found.append((adapter.nice_name, f"{text}/{each.network_prefix}"))
    return tuple(
        sorted(found, key=lambda entry: ":" in entry[1])
    )  # IPv4 first: the default where a name has both


def chosen(text: str) -> tuple[str, ...]:
    """Return the addresses that `text` names: interfaces, addresses or subnets (10.0.0.0/8), separated by commas.

    UsageError lists the available ones.
    """
    known = here()
    return tuple(_one(part.strip(), known) for part in text.split(","))


def common(own: Sequence[str], everyone: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return our addresses (with prefixes) on networks where every rank has an address of its own, in the networks' order.

    A network on which two ranks have the same address is private to each host (a container's bridge), and left out.
    """
    networks = {network for network in map(_network, own) if not network.is_loopback}
    found = []
    for network in sorted(networks, key=lambda network: (network.version, int(network.network_address))):
        there = [[each for each in addresses if _network(each) == network] for addresses in everyone]
        firsts = [addresses[0] for addresses in there if addresses]
        if len(firsts) == len(everyone) == len(set(firsts)):
            found.append(next(each for each in own if _network(each) == network).partition("/")[0])
    return tuple(found)


def hardware(address: str) -> str:
    """Return the hardware address of the interface with `address`; empty for loopback, and where the kernel gives none."""
    name = next((name for name, each in here() if each.partition("/")[0] == address), None)
    if name is None:
        return ""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            found = fcntl.ioctl(any_socket, SIOCGIFHWADDR, struct.pack("256s", name.encode()[:IFNAMSIZ]))
    except OSError:
        return ""
    six = found[SOCKADDR_AT : SOCKADDR_AT + 6]
    return six.hex(":") if any(six) else ""


def _one(part: str, known: Sequence[tuple[str, str]]) -> str:
    if is_literal(part):
        return part
    for name, address in known:
        plain = address.partition("/")[0]
        if part == name or ("/" in part and _inside(plain, part)):
            return plain
    there = ", ".join(f"{name} ({address})" for name, address in known)
    raise UsageError(
        f"HOCKET_INTERFACE: `{part}` is no address, no interface with one and no subnet of one on {socket.gethostname()}\n"
        f"hint: there are {there}"
    )


def _inside(address: str, subnet: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(subnet)
    except ValueError as error:
        raise UsageError(f"HOCKET_INTERFACE: `{subnet}` is no subnet: {error}") from None


def _network(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_interface(address).network

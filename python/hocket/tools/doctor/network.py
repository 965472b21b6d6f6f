"""Interfaces: addresses, rate, MTU; those that the wire can use, and the programs that reach other machines."""

from __future__ import annotations

import ipaddress
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

from hocket import _native
from hocket.job.store import interfaces
from hocket.tools.doctor.finding import Finding, Section

_finding = Section("network")
CLASS = Path("/sys/class/net")
BUFFERS = Path("/proc/sys/net/ipv4/tcp_wmem")
BUFFER_OVER_BYTES = 2
"""Ratio of a connection's buffer to the bytes in flight that it allows, with the system's own overhead."""
LONG_ROUND_TRIP_S = 50e-3


def findings() -> Iterable[Finding]:
    """Yield a finding for each interface, then for the programs that start ranks on other machines."""
    addresses: dict[str, list[str]] = {}
    for name, address in interfaces.here():
        addresses.setdefault(name, []).append(address)
    for name, own in addresses.items():
        yield _finding(name, True, ", ".join([*own, *_link(name)]))
    outside = any(
        not ipaddress.ip_interface(each).ip.is_loopback for own in addresses.values() for each in own
    )
    if not outside:
        yield _finding(
            "other machines",
            False,
            "only loopback has an address: jobs are of this machine alone",
            "give an interface an address, or start the container with a network",
        )
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    if control.exists():
        yield _finding("TCP congestion control", True, control.read_text().strip())
    yield _bears_losses()
    if (buffers := _read(BUFFERS).split()) and buffers[-1].isdigit():
        mbit_per_s = int(buffers[-1]) * 8 / BUFFER_OVER_BYTES / LONG_ROUND_TRIP_S / 1e6
        detail = (
            f"up to {int(buffers[-1]) >> 10} KiB: a connection carries at most {mbit_per_s:,.0f} Mbit/s "
            "over a round trip of 50 ms"
        )
        yield _finding("TCP send buffers", True, detail)
    yield from (_finding(*need) for need in _native.transport_needs())
    yield _tool("ssh", "`--hosts` starts ranks over it", "openssh-client")
    yield _tool("fping", "`hocket probe --fping` measures with it", "fping")


def _bears_losses() -> Finding:
    """Return whether connections can change to a congestion control that tolerates losses by chance."""
    name = "TCP over long paths"
    try:
        with socket.socket() as tried:
            tried.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    except OSError as error:
        return _finding(
            name,
            False,
            f"BBR: {error.strerror}: losses by chance slow connections, several of which share a path from 10 ms on",
            "modprobe tcp_bbr; sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'",
        )
    return _finding(name, True, "BBR, from 30 ms on and where packets are lost by chance")


def _link(name: str) -> list[str]:
    """Return rate and MTU, as far as the driver reports them."""
    facts = []
    speed = _read(CLASS / name / "speed")
    if speed.isdigit() and int(speed) > 0:  # virtual interfaces have none, or -1
        facts.append(f"{int(speed):,} Mbit/s")
    mtu = _read(CLASS / name / "mtu")
    if mtu:
        facts.append(f"MTU {mtu}")
    state = _read(CLASS / name / "operstate")
    if state == "down":
        facts.append("down")
    return facts


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # the kernel does not report the speed of an interface that is down
        return ""


def _tool(name: str, what: str, package: str) -> Finding:
    found = shutil.which(name)
    return _finding(name, found is not None, found or f"not found: {what}", f"apt-get install {package}")

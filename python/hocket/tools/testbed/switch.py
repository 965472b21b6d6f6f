"""Process of the switch: it opens a TAP device in the namespace of each host, then becomes the program that carries frames.

Its first line of input is an `Order`. It answers `ready`, and then every byte with a line of counters, until its input ends.
Devices are not persistent: they disappear with this process, however it ends. The program, `hocket-switch`, is built from
`crates/switch`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hocket import typed
from hocket.errors import Error, TestbedError
from hocket.tools.testbed import switch_program
from hocket.tools.testbed.switched import CLONE_DEVICE, INTERFACE, NO_DEVICE, Order, description

# From <linux/if_tun.h>.
TUNSETIFF, TUNSETOFFLOAD = 0x4004_54CA, 0x4004_54D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6 = 0x01, 0x02, 0x04
CLONE_NEWNET = 0x4000_0000

PRIORITY = -15
"""Priority above the programs on the hosts, which share the cores with it: a real switch does not wait for them."""

libc = ctypes.CDLL(None, use_errno=True)


def open_tap(pid: int, *, batches: bool) -> int:
    """Return a descriptor of a new device in a process's network namespace, which this thread has entered."""
    namespace = f"/proc/{pid}/ns/net"
    try:
        entered = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise TestbedError(f"the host's namespace {namespace} is not there: {error.strerror}") from None
    try:
        if libc.setns(entered, CLONE_NEWNET) != 0:
            raise TestbedError(
                f"the host's namespace {namespace} cannot be entered: {os.strerror(ctypes.get_errno())}"
            )
    finally:
        os.close(entered)
    try:
        tap = os.open(CLONE_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TestbedError(
            f"{CLONE_DEVICE} cannot be opened, and latency, jitter and loss need it: {error.strerror}\n"
            "hint: load the kernel's module `tun`, and let this user or container use the device",
            lacks=CLONE_DEVICE,
        ) from None
    try:
        request = struct.pack("16sH22x", INTERFACE.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)
        fcntl.ioctl(tap, TUNSETIFF, request)
        fcntl.ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | (TUN_F_TSO4 | TUN_F_TSO6 if batches else 0))
    except OSError as error:
        os.close(tap)
        raise TestbedError(
            f"{CLONE_DEVICE} gives no network device: {error.strerror}", lacks=CLONE_DEVICE
        ) from None
    return tap


def become(path: Path, order: Order, taps: Sequence[int]) -> NoReturn:
    """Replace this process by the switch.

    Standard input becomes the socket in which the description, the input so far and the devices wait. The program thus
    receives descriptors, not numbers, and needs no unsafe code.
    """
    text = os.memfd_create("switch")
    os.write(text, description(order).encode())
    ours, its = socket.socketpair()
    socket.send_fds(ours, [b"."], [text, sys.stdin.fileno(), *taps])
    ours.close()
    os.dup2(its.fileno(), 0)
    os.execv(path, [str(path)])  # noqa: S606  # no shell is wanted


def main() -> None:
    """Run until the input ends."""
    path = switch_program.find()
    order = typed.of_json(sys.stdin.buffer.readline(), Order)
    taps = [open_tap(pid, batches=order.batches) for pid in order.pids]
    with contextlib.suppress(OSError):  # not permitted in a container: then it has normal priority
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    become(path, order, taps)


if __name__ == "__main__":
    try:
        main()
    except Error as error:
        lacking = isinstance(error, TestbedError) and error.lacks is not None
        sys.stderr.write(str(error))
        sys.exit(NO_DEVICE if lacking else 1)

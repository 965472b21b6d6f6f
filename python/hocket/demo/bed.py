"""Where the demo trains: hosts that programs run on, whose network is that of a cluster file.

`Bed` is the seam: the comparison knows no more of its surroundings than this. Network namespaces carry any
program unmodified.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from hocket.artefacts.cluster import Cluster
from hocket.errors import TestbedError
from hocket.launch.testbed import Testbed

PORT_FIRST = 29_500


class Bed(Protocol):
    """Hosts of an emulated cluster, up for as long as its context is."""

    title: str
    """What it is, for people: the end of "trains in …"."""

    cluster: Cluster

    carries_any_program: bool
    """False: only what Hocket sends is slowed to the cluster's rates, so DDP cannot be compared there."""

    environment: Mapping[str, str]
    """Variables that processes of the hosts need besides those that a rank needs."""

    def address(self, host: str) -> str:
        """IP address of a host, as the other hosts reach it."""

    def port(self) -> int:
        """A port that is free on all hosts, another one at each call."""

    def command(self, host: str, argv: Sequence[str] = ()) -> list[str]:
        """The command that runs `argv` on a host."""

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start `argv` on a host; it ends with the bed at the latest."""

    def trunk_bytes(self) -> int:
        """Bytes that went from one rack to another so far, all racks and both directions."""


class NamespaceBed:
    """The testbed's network namespaces."""

    title = "network namespaces of this machine"
    carries_any_program = True
    # The hosts' names lead nowhere inside a namespace, so Gloo is told the interface.
    environment: Mapping[str, str] = {"GLOO_SOCKET_IFNAME": "eth0"}

    def __init__(self, testbed: Testbed) -> None:
        """A testbed that is up."""
        self.cluster = testbed.cluster
        self.address = testbed.address
        self.command = testbed.command
        self.popen = testbed.popen
        self._testbed = testbed
        self._port = PORT_FIRST

    def port(self) -> int:
        """Nobody else listens in these namespaces, so counting is enough."""
        self._port += 1
        return self._port

    def trunk_bytes(self) -> int:
        """From the kernel's counters of the racks' uplinks, link headers included."""
        return sum(left for left, _ in self._testbed.trunk_bytes().values())


@contextlib.contextmanager
def open_bed(cluster: Cluster) -> Iterator[Bed]:
    """The cluster on this machine, until the context ends.

    Raises TestbedError where network namespaces are not allowed.
    """
    with contextlib.ExitStack() as stack:
        try:
            testbed = stack.enter_context(Testbed(cluster))
        except TestbedError as error:
            raise TestbedError(
                f"the demo's cluster cannot be emulated: {error}\n"
                "hint: on a machine without namespaces, compare with `hocket bench all_reduce --against gloo`"
            ) from None
        yield NamespaceBed(testbed)

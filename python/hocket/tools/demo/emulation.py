"""Surroundings of the demo: hosts that programs run on, with the network of a cluster file.

`Emulation` is the seam: the comparison knows nothing else of its surroundings. Network namespaces carry any program unmodified.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hocket.artefacts.cluster import Cluster, both
from hocket.artefacts.ways import ways
from hocket.errors import TestbedError
from hocket.job import emulated_links
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.testbed import Testbed
from hocket.tools.testbed.wiring import rack_names

PORT_FIRST = 29_500

LAST_WORDS_MAX = 2000
"""Limit of a failed job's output in its error, in characters."""

UNLIMITED_BIT_PER_S = 1e15
"""Rate for a rack without an uplink rate: faster than anything on the machine."""


class Emulation(Protocol):
    """Hosts of an emulated cluster, up for as long as its context is."""

    title: str
    """Description for people."""

    remarks: Sequence[str]
    """Caveats about its numbers, a line each."""

    cluster: Cluster

    carries_any_program: bool
    """True if any program can run. False: only Hocket's traffic is slowed to the cluster's rates, so DDP cannot be compared."""

    environment: Mapping[str, str]
    """Additional variables of the hosts' processes, beyond those of a rank."""

    def address(self, host: str) -> str:
        """Return the IP address of a host, for the other hosts."""

    def port(self) -> int:
        """Return a port that is free on all hosts, a new one at each call."""

    def command(self, host: str, argv: Sequence[str] = ()) -> list[str]:
        """Return the command that runs `argv` on a host."""

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start `argv` on a host; it ends with the emulation at the latest."""

    def trunk_bytes(self) -> int | None:
        """Return the bytes between racks so far, all racks and both directions; None: not counted."""


def ranks(emulation: Emulation, slots: Sequence[str], argv: Sequence[str]) -> list[ProcessSpec]:
    """Return `argv` on each of these hosts, by rank."""
    return [
        ProcessSpec(argv=argv, host=host, prefix=emulation.command(host), environment=emulation.environment)
        for host in slots
    ]


def run_ranks(
    emulation: Emulation, meeting: str, processes: Sequence[ProcessSpec], settings: Settings
) -> None:
    """Run the ranks of one job, which meet on host `meeting`, to the end.

    PeerError with the last output of the failed one.
    """
    output = io.BytesIO()
    outcome = launch(
        processes,
        settings=settings,
        store=addresses.join(emulation.address(meeting), emulation.port()),
        serve=False,
        out=output,
        err=output,
    )
    if outcome.failures:
        last = output.getvalue().decode(errors="replace")[-LAST_WORDS_MAX:]
        first = outcome.failures[0]
        raise first.error(f"{first}\n{last}")


class NamespaceEmulation:
    title = "network namespaces of this machine"
    remarks: Sequence[str] = ()
    carries_any_program = True
    # The hosts' names do not resolve inside a namespace, so Gloo gets the interface.
    environment: Mapping[str, str] = {"GLOO_SOCKET_IFNAME": "eth0"}

    def __init__(self, testbed: Testbed) -> None:
        self.cluster = testbed.cluster
        self.address = testbed.address
        self.command = testbed.command
        self.popen = testbed.popen
        self._testbed = testbed
        self._port = PORT_FIRST

    def port(self) -> int:
        """Return the next port: no other program listens in these namespaces, so counting is enough."""
        self._port += 1
        return self._port

    def cut(self, host: str) -> None:
        """Unplug a host's cable for good, without any notice."""
        self._testbed.cut(hosts=[host])

    def trunk_bytes(self) -> int:
        """Return the bytes from the kernel's counters of the racks' uplinks, link headers included."""
        return sum(left for left, _ in self._testbed.trunk_bytes().values())


class LoopbackEmulation:
    """Emulation of all hosts on loopback; the wire itself keeps the cluster's rates, so only Hocket is slowed to them."""

    title = "loopback, at rates that Hocket's wire keeps by itself"
    carries_any_program = False

    def __init__(self, cluster: Cluster, directory: Path, why: str) -> None:
        """Emulate a cluster. `directory`: holds the ranks' shared state, and must outlive them. `why`: reason for not using
        namespaces."""
        self.cluster = cluster
        self.remarks: Sequence[str] = (
            f"falls back to loopback: {why}",
            "DDP is left out: only what Hocket sends can be slowed to the cluster's rates there",
            *(["latency, jitter and loss are left out: only rates are kept there"] if ways(cluster) else ()),
        )
        self._directory = directory
        racks = rack_names(cluster)
        uplinks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
        # Links per host out and in, then uplinks per rack out and in.
        rates = [rate for host in cluster.hosts for rate in both(host.bandwidth_bit_per_s)]
        first = len(rates)
        rates += [rate for rack in racks for rate in both(uplinks.get(rack) or UNLIMITED_BIT_PER_S)]
        self._uplinks_out = range(first, len(rates), 2)
        routes: dict[str, dict[str, tuple[int, ...]]] = {}
        for a, source in enumerate(cluster.hosts):
            for b, target in enumerate(cluster.hosts):
                between: tuple[int, ...] = ()
                if source.rack != target.rack:
                    between = (first + 2 * racks.index(source.rack), first + 2 * racks.index(target.rack) + 1)
                route = () if a == b else (2 * a, *between, 2 * b + 1)
                routes.setdefault(source.name, {})[target.name] = route
        path = emulated_links.write(directory, rates, routes)
        self.environment: Mapping[str, str] = {"HOCKET_EMULATED_LINKS": str(path)}

    def address(self, _host: str) -> str:
        return addresses.LOOPBACK

    def port(self) -> int:
        """Return a port that the system says is free now."""
        with socket.socket() as probe:
            probe.bind((addresses.LOOPBACK, 0))
            return int(probe.getsockname()[1])

    def command(self, _host: str, argv: Sequence[str] = ()) -> list[str]:
        """Return the command itself: hosts differ in name alone."""
        return list(argv)

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start `argv` with the host's name in its environment."""
        environment = {**(options.pop("env", None) or os.environ), **self.environment, "HOCKET_HOST": host}
        return subprocess.Popen(argv, env=environment, **options)

    def trunk_bytes(self) -> int:
        """Return the bytes from the wire's own counters of the racks' uplinks, frame headers included."""
        counted = emulated_links.bytes_so_far(self._directory)
        return sum(counted[link] for link in self._uplinks_out)


@contextlib.contextmanager
def open_emulation(cluster: Cluster, *, sums: int | None = None) -> Iterator[Emulation]:
    """Emulate the cluster on this machine until the context ends: in namespaces, or where these are not allowed, on loopback.
    `sums`: pushes that the switch of each rack sums at a time, in namespaces."""
    with contextlib.ExitStack() as stack:
        try:
            testbed = stack.enter_context(Testbed(cluster, slots=sums))
        except TestbedError as error:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="hocket-links-"))
            yield LoopbackEmulation(cluster, Path(directory), str(error))
        else:
            yield NamespaceEmulation(testbed)

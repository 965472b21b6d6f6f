"""Emulated cluster that is brought up and taken down; `wiring` and, with latencies, `switched` describe the network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from hocket.artefacts.cluster import Cluster, Directions
from hocket.artefacts.ways import no_ways, ways
from hocket.errors import TestbedError, UsageError
from hocket.tools.testbed import switched, wiring
from hocket.tools.testbed.fabric import Carried, Switch

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv")


class Testbed:
    """Hosts of a cluster as network namespaces of this machine; use it as a context.

    It works as root, and unprivileged where user namespaces are allowed. Otherwise TestbedError says what is missing.

    >>> with Testbed(example_cluster("two-racks")) as bed:  # doctest: +SKIP
    ...     subprocess.run([*bed.command("node0"), "ping", "-c1", bed.address("node1")])
    """

    __test__ = False  # tells pytest that this is no test class

    def __init__(self, cluster: Cluster, *, slots: int | None = None) -> None:
        """Do nothing until `__enter__`; ArtefactError if the cluster cannot be emulated. `slots`: sums that the switch of each rack
        holds at a time (`hocket.tools.replay.pieces`)."""
        self.cluster, self._slots = cluster, slots
        self._holders: list[subprocess.Popen[bytes]] = []
        self._children: list[subprocess.Popen[Any]] = []
        self._switch: Switch | None = None
        self._ways = ways(cluster) or (None if slots is None else no_ways(len(cluster.hosts)))
        self._index = {host.name: index for index, host in enumerate(cluster.hosts)}
        if len(self._index) != len(cluster.hosts):
            raise UsageError("two hosts of the cluster have the same name")
        if self._ways is not None and any(
            host.cards_bit_per_s or host.flow_bit_per_s for host in cluster.hosts
        ):
            raise UsageError(
                "a testbed with latency, jitter, loss or sums has one card a host and no limits of connections\n"
                "hint: leave out `cards_bit_per_s` and `flow_bit_per_s`"
            )

    def __enter__(self) -> Testbed:
        try:
            self._up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Take the testbed down. TestbedError if its switch died early and no other error is being raised."""
        try:
            if self._switch is not None and error is None:
                self._switch.check()
        finally:
            self.close()

    def address(self, host: str) -> str:
        """Return the IPv4 address of a host."""
        return wiring.address(self._at(host))

    def command(self, host: str, argv: Sequence[str] = ()) -> list[str]:
        """Return the command that runs `argv` on a host."""
        return [*self._enter(self._holders[1 + self._at(host)].pid), *argv]

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start `argv` on a host, like `subprocess.Popen`; it ends with the testbed at the latest."""
        environment = {**(options.pop("env", None) or os.environ), "HOCKET_HOST": host}
        child = subprocess.Popen(self.command(host, argv), env=environment, start_new_session=True, **options)
        self._children.append(child)
        return child

    def trunk_bytes(self) -> dict[str, tuple[int, int]]:
        """Return, by rack, bytes sent and received over its uplink so far, link headers included."""
        carried = self.carried()
        if carried is not None:
            hosts = len(self.cluster.hosts)
            trunks = {
                rack: switched.trunk_links(hosts, at)
                for at, rack in enumerate(wiring.rack_names(self.cluster))
            }
            return {
                rack: (carried.link_bytes[out], carried.link_bytes[back])
                for rack, (out, back) in trunks.items()
            }
        argv = [*self._enter(self._holders[0].pid), "cat", "/proc/net/dev"]
        table = subprocess.run(
            argv, check=True, capture_output=True, text=True, timeout=START_TIMEOUT_S
        ).stdout
        counters = {
            name.strip(): row.split() for name, _, row in (line.partition(":") for line in table.splitlines())
        }
        bytes_of = {}
        for index, rack in enumerate(wiring.rack_names(self.cluster)):
            row = counters[wiring.trunk(index)]
            bytes_of[rack] = (int(row[8]), int(row[0]))
        return bytes_of

    def set_trunk(self, rack: str, bit_per_s: Directions) -> None:
        """Set the rate of a rack's uplink, one or [out, in]. UsageError: it had none, or the testbed has latencies."""
        limited = {each.name for each in self.cluster.racks if each.uplink_bit_per_s is not None}
        if self._switch is not None or rack not in limited:
            raise UsageError(
                f"the rate of the trunk of `{rack}` cannot be changed\n"
                "hint: give the rack an uplink's rate, and no host latency, jitter or loss"
            )
        self._batch(self._holders[0].pid, "tc", wiring.reshape(self.cluster, rack, bit_per_s))

    def cut(self, *, hosts: Collection[str] = (), racks: Collection[str] = ()) -> None:
        """Unplug the cables of these hosts, and of these racks towards the others, until `mend`: frames are lost without any
        notice. UsageError: the testbed has latencies."""
        self._plug(hosts, racks, "down")

    def mend(self, *, hosts: Collection[str] = (), racks: Collection[str] = ()) -> None:
        """Plug these cables in again."""
        self._plug(hosts, racks, "up")

    def _plug(self, hosts: Collection[str], racks: Collection[str], state: str) -> None:
        if self._switch is not None:
            raise UsageError(
                "cables of a testbed with a switch cannot be cut\nhint: give no host latency, jitter or loss"
            )
        ends = [end for host in hosts for end in wiring.ports(self.cluster, self._at(host))]
        names = wiring.rack_names(self.cluster)
        unknown = [rack for rack in racks if rack not in names]
        if unknown:
            raise UsageError(f"the cluster has no rack `{unknown[0]}`\nhint: it has {', '.join(names)}")
        ends += [wiring.trunk(names.index(rack)) for rack in racks]
        self._batch(self._holders[0].pid, "ip", [f"link set {end} {state}" for end in ends])

    def carried(self) -> Carried | None:
        """Return the switch's counters; None if the kernel's bridges carry the frames."""
        return None if self._switch is None else self._switch.carried()

    def close(self) -> None:
        """End all processes in the testbed, then the namespaces with their links; idempotent."""
        for child in self._children:
            _kill(child)
        if self._switch is not None:
            self._switch.close()
        for holder in reversed(self._holders):
            holder.kill()
            holder.communicate(timeout=STOP_TIMEOUT_S)
        self._children, self._holders, self._switch = [], [], None

    def _up(self) -> None:
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            raise TestbedError(
                f"{', '.join(missing)}: not found\nhint: install the packages iproute2 and util-linux",
                lacks=missing[0],
            )
        switch = (
            ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
        )
        self._hold(switch)
        for _ in self.cluster.hosts:
            self._hold(["unshare", "--net"] if os.geteuid() == 0 else [*self._user(), "unshare", "--net"])
        pids = [holder.pid for holder in self._holders[1:]]
        if self._ways is not None:
            user = [] if os.geteuid() == 0 else self._user()
            lines_of_hosts = switched.host_lines(self.cluster)
            self._switch = Switch(switched.order(self.cluster, self._ways, pids, self._slots), user)
        else:
            lines = wiring.wire(self.cluster, pids)
            self._batch(self._holders[0].pid, "ip", lines.switch_ip)
            self._batch(self._holders[0].pid, "tc", lines.switch_tc)
            lines_of_hosts = tuple(zip(lines.hosts_ip, lines.hosts_tc, strict=True))
        for index, (pid, (ip, tc)) in enumerate(zip(pids, lines_of_hosts, strict=True)):
            self._batch(pid, "ip", [*ip, *wiring.apart(self.cluster, index)])
            self._batch(pid, "tc", tc)

    def _hold(self, unshare: list[str]) -> None:
        """Start an idle process in a namespace of its own that dies with this one."""
        here = Path("/proc/self/ns/net").readlink()
        argv = [*unshare, "setpriv", "--pdeathsig", "KILL", "sleep", "infinity"]
        holder = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._holders.append(holder)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if holder.poll() is not None:
                why = holder.stderr.read().decode().strip() if holder.stderr else ""
                raise TestbedError(
                    f"network namespaces are not allowed here: {why}\n"
                    "hint: run as root, or allow unprivileged user namespaces",
                    lacks="network namespaces",
                )
            try:
                ready = Path(f"/proc/{holder.pid}/comm").read_text().strip() == "sleep"
                if ready and Path(f"/proc/{holder.pid}/ns/net").readlink() != here:
                    return
            except OSError:
                continue
            time.sleep(0.002)
        raise TestbedError(f"a namespace was not ready within {START_TIMEOUT_S:g} s")

    def _user(self) -> list[str]:
        return ["nsenter", "--target", str(self._holders[0].pid), "--user", "--preserve-credentials"]

    def _enter(self, pid: int) -> list[str]:
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(pid), *user, "--net"]

    def _batch(self, pid: int, tool: str, lines: Sequence[str]) -> None:
        argv = [*self._enter(pid), tool, "-batch", "-"]
        text = "\n".join(lines) + "\n"
        try:
            subprocess.run(
                argv, input=text, text=True, check=True, capture_output=True, timeout=START_TIMEOUT_S
            )
        except subprocess.CalledProcessError as error:
            raise TestbedError(f"`{tool}` refused to wire the testbed: {error.stderr.strip()}") from None
        except subprocess.TimeoutExpired:
            raise TestbedError(f"`{tool}` did not finish within {START_TIMEOUT_S:g} s") from None

    def _at(self, host: str) -> int:
        if host not in self._index:
            raise UsageError(f"the cluster has no host `{host}`\nhint: it has {', '.join(self._index)}")
        return self._index[host]


def _kill(child: subprocess.Popen[Any]) -> None:
    """Kill the child's whole process group."""
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        child.wait(STOP_TIMEOUT_S)

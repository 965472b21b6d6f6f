"""Gradients of 25 MB on a device: their all-reduce takes little longer than the slower of its copies and its wire.

In virtual time for networks and buses that are not there; measured between two emulated hosts on a device that is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median

import msgspec

from benches.emulated import hosts, in_emulation
from benches.row import Row
from hocket.artefacts.chunks import chunk_bytes
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.profile import Bus, Gradient, Profile
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.search import neutral_profile
from hocket.tools.simulation import flow
from hocket.tools.simulation.all_reduce import LINKS_ALONE
from hocket.tools.simulation.conditions import Costs
from hocket.tools.simulation.networks import from_cluster

SIZE_BYTES = 25 << 20
WIRES_BIT_PER_S = (1e9, 10e9, 25e9)
BUSES_BYTES_PER_S = (12e9, 25e9)
COPY_S = 10e-6
"""Time of starting a copy, beside its bytes."""
WORLDS = (2, 4)
TARGET = 1.15
COSTS = {
    "ranks as they are": Costs(),
    "links alone": msgspec.structs.replace(LINKS_ALONE, rendezvous=True),
}
DEVICES = ("hostile", "vulkan", "accelerator")
NETWORK = hosts([1e9] * 2)
RACKS = hosts([1e9] * 4, racks=2, trunk_bit_per_s=100e6, alternating=True)
DEMO_BYTES = 4 * 3_300_000
"""Bytes of the demo's gradients."""
GAIN = 0.95


def buses() -> Iterator[Bus]:
    for rate in BUSES_BYTES_PER_S:
        yield Bus(down_bytes_per_s=rate, up_bytes_per_s=rate, copy_s=COPY_S)


def copies_s(bus: Bus, size_bytes: int = SIZE_BYTES) -> float:
    """Seconds of the slower direction alone: both copy at the same time."""
    return size_bytes / min(bus.down_bytes_per_s, bus.up_bytes_per_s)


def step_s(network: Network, bus: Bus | None, costs: Costs) -> float:
    """Simulated seconds of a ring all-reduce whose gradients come at once; `bus` None: in the host's memory."""
    gradient = Gradient(name="all", shape=(SIZE_BYTES // 4,), dtype="f32", ready_s=0.0, needed_s=0.0)
    profile: Profile = msgspec.structs.replace(neutral_profile([gradient]), bus=bus)
    chunk = chunk_bytes(network.slowest_bit_per_s)
    ring = AllReduce(algorithm="ring")
    made = buckets([(gradient,)], ring, range(network.world), chunk_bytes=chunk)
    plan = plan_of(made, network.world, label="ring")
    return flow.predict(plan, network, profile, costs=costs).outcome.step_s


def simulated() -> Iterator[Row]:
    """Rows for each wire, with ranks as they are, and as if links alone took time: the worst of all buses and numbers of ranks."""
    for bit_per_s, (what, costs) in product(WIRES_BIT_PER_S, COSTS.items()):
        ratios = []
        for world, bus in product(WORLDS, buses()):
            network = from_cluster(hosts([bit_per_s] * world), world)
            wire_s = step_s(network, None, costs)
            ratios.append(step_s(network, bus, costs) / max(wire_s, copies_s(bus)))
        yield Row(
            name="staged",
            what=f"{bit_per_s / 1e9:g} Gbit/s, simulated, {what}: over the slower of copies and wire, worst of buses and ranks",
            value=max(ratios),
            target=TARGET,
        )


def measured(kind: str) -> Iterator[Row]:
    """Two hosts at 1 Gbit/s. `kind`: of `DEVICES`; `hostile` is the tests' own."""
    argv = [sys.executable, "-m", "benches.routes.staged_rank", kind, "--bytes", str(SIZE_BYTES)]
    found = in_emulation(NETWORK, ["h0", "h1"], argv)
    bus = Bus(**found["bus"])
    names = {
        "device": "gradients on the device",
        "processor": "in the host's memory",
        "alone": "made, and not sent",
    }
    for place, name in names.items():
        what = f"{kind}: 25 MiB at 1 Gbit/s, from backward's begin until means are there, {name}"
        yield Row.over([1e3 * each for each in found[place]], name="staged", what=what, unit="ms")
    yield Row(
        name="staged", what=f"{kind}: copies of one direction alone", value=1e3 * copies_s(bus), unit="ms"
    )
    yield Row(
        name="staged",
        what=f"{kind}: over making them and the slower of copies and wire",
        value=median(found["device"])
        / (median(found["alone"]) + max(median(found["processor"]), copies_s(bus))),
        target=TARGET,
    )


def racks(kind: str) -> Iterator[Row]:
    """The demo's two racks: what Hocket gains over Gloo for a device's gradients, which Gloo has by copies there and back, as a
    share of what it gains for those in the host's memory."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        argv = [sys.executable, "-m", "benches.routes.staged_rank", kind, "--bytes", str(DEMO_BYTES)]
        argv += ["--gloo", str(Path(folder, "store"))]
        found = in_emulation(RACKS, [host.name for host in RACKS.hosts], argv)
    gains = {}
    for place, name in (("device", "on the device"), ("processor", "in the host's memory")):
        for by, title in (("gloo ", "Gloo"), ("", "Hocket")):
            what = f"{kind}: two racks, {DEMO_BYTES / 1e6:g} MB {name}, by {title}"
            yield Row.over(
                [1e3 * each for each in found[by + place]], name="staged-racks", what=what, unit="ms"
            )
        gains[place] = median(found[f"gloo {place}"]) / median(found[place])
        yield Row(name="staged-racks", what=f"{kind}: gain over Gloo, {name}", value=gains[place])
    yield Row(
        name="staged-racks",
        what=f"{kind}: gain on the device over that in the host's memory",
        value=gains["device"] / gains["processor"],
        target=GAIN,
        least=True,
    )

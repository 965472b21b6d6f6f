"""The speed of the flow engine: rings under the parameters of ASTRA-sim's regression, all-to-all, a large cluster."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from hocket import _native
from hocket.artefacts.network import Link, Network
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.profile import Gradient, Profile
from hocket.planning.buckets import buckets, plan_of
from hocket.tools.simulation import flow
from hocket.tools.simulation.all_reduce import LINKS_ALONE
from hocket.tools.simulation.networks import leaf_spine, neighbours, torus

MEBIBYTE = 1 << 20
SPLITS = 4
"""ASTRA-sim cuts a collective into so many, one after the other."""

RING_BYTE_PER_S = 50 * (1 << 30)
RING_LATENCY_S = 500e-9
ENDPOINT_S = 10e-9
MEMORY_BYTE_PER_S = 50e9
"""A reduction is three passes over memory."""

ASTRA_NS = {8: 117_780, 64: 356_620, 256: 1_140_400, 1024: 4_267_996}
"""The time that ASTRA-sim's analytical backend predicts for a ring all-reduce of 1 MiB."""

ASTRA_COSTS = msgspec.structs.replace(LINKS_ALONE, reduce_s_per_byte=3 / MEMORY_BYTE_PER_S)

LARGE_LEAVES, LARGE_HOSTS_PER_LEAF, LARGE_BUCKETS = 160, 64, 200
LARGE_BUCKET_ELEMENTS = 250_000


class Speed(Struct, frozen=True, kw_only=True):
    """One run: seconds of one core, virtual seconds, messages. `told_s`: what the reference says of the virtual time."""

    name: str
    took_s: float
    virtual_s: float
    messages: int
    told_s: float | None = None

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.took_s


def ring(world: int, *, jitter: float = 0.0) -> Speed:
    """1 MiB around `world` ranks."""
    links = tuple(Link(f"{rank} to next", 8 * RING_BYTE_PER_S) for rank in range(world))
    network = Network(
        title="ring",
        hosts=tuple(range(world)),
        links=links,
        path=lambda source, _: ((source,), RING_LATENCY_S + ENDPOINT_S),
    )
    native = network.native_for(neighbours(world))
    program = _native.SimulatedProgram.ring(world, MEBIBYTE // SPLITS, native, ASTRA_COSTS.native())
    title = f"ring all-reduce, 1 MiB, {world:,} ranks" + (f", {jitter:.0%} jitter" if jitter else "")
    told_s = ASTRA_NS[world] * 1e-9 if world in ASTRA_NS and not jitter else None
    return _timed(title, native, program, world, phases=SPLITS, jitter=jitter, told_s=told_s)


def all_to_all(network: Network) -> Speed:
    """1 MiB from each rank to all others, all in flight at once, so that every link is shared."""
    world = network.world
    native = network.native_for((a, b) for a in range(world) for b in range(world) if a != b)
    program = _native.SimulatedProgram.all_to_all(world, MEBIBYTE, native, ASTRA_COSTS.native())
    return _timed(f"all-to-all, 1 MiB, {network.title}", native, program, world, phases=1)


def large() -> tuple[Speed, float]:
    """One two-level step of 200 buckets on 10,240 ranks in leaf and spine; also the process's largest memory, GiB."""
    network = leaf_spine(
        LARGE_LEAVES, LARGE_HOSTS_PER_LEAF, bit_per_s=100e9, oversubscription=2.0, latency_s=2e-6
    )
    route = AllReduce(algorithm="two_level", sizes=(LARGE_HOSTS_PER_LEAF,) * LARGE_LEAVES)
    gradients = tuple(
        Gradient(
            name=f"g{at}",
            shape=(LARGE_BUCKET_ELEMENTS,),
            dtype="f32",
            ready_s=0.1 * (at + 1) / LARGE_BUCKETS,
            needed_s=0.0,
        )
        for at in range(LARGE_BUCKETS)
    )
    profile = Profile(
        model="200 buckets",
        world=network.world,
        steps=0,
        forward_s=0.0,
        backward_s=0.1,
        optimizer_s=0.0,
        step_s=0.1,
        gradients=gradients,
    )
    made = buckets([[each] for each in gradients], route, range(network.world))
    plan = plan_of(made, network.world, label="two-level")
    began_s = time.perf_counter()
    outcome = flow.predict(plan, network, profile).outcome
    took_s = time.perf_counter() - began_s
    speed = Speed(
        name=f"one step, {LARGE_BUCKETS} buckets, two-level, {network.title}, {network.world:,} ranks",
        took_s=took_s,
        virtual_s=outcome.step_s,
        messages=outcome.messages,
    )
    return speed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


RUNS: dict[str, Callable[[], Speed]] = {
    **{f"ring-{world}": lambda world=world: ring(world) for world in ASTRA_NS},  # type: ignore[misc]
    "ring-256-jitter": lambda: ring(256, jitter=0.1),
    "all-to-all-leaf-spine": lambda: all_to_all(
        leaf_spine(16, 16, bit_per_s=8 * RING_BYTE_PER_S, oversubscription=4.0, spines=4, latency_s=1e-6)
    ),
    "all-to-all-ring": lambda: all_to_all(
        torus([256], bit_per_s=8 * RING_BYTE_PER_S, latency_s=RING_LATENCY_S)
    ),
}
"""All but the large one, which takes most of a minute."""


def _timed(
    title: str,
    native: _native.Network,
    program: _native.SimulatedProgram,
    world: int,
    *,
    phases: int,
    jitter: float = 0.0,
    told_s: float | None = None,
) -> Speed:
    began_s = time.perf_counter()
    simulation = _native.simulate(
        native,
        [program],
        _native.SimulatedJob.phases(world, [([(0, 0, [0.0])], [], [])] * phases),
        rendezvous=False,
        seed=0,
        jitter=jitter,
        slow=[],
        changes=[],
        recorded=False,
    )
    return Speed(
        name=title,
        took_s=time.perf_counter() - began_s,
        virtual_s=simulation.end_s,
        messages=simulation.messages,
        told_s=told_s,
    )


def as_json(speed: Speed) -> dict[str, object]:
    """Its fields, and messages per second."""
    fields: dict[str, object] = msgspec.to_builtins(speed)
    return {**fields, "messages_per_s": speed.messages_per_s}

"""Traffic of buckets that go by policies: the messages of the programs that tracing makes, counted.

A policy is traced for one bucket and one network, as ranks trace it when they train; the same holds for its statistics, which are
those before the first step. What it sends for other sizes is not known from that, so buckets of other sizes are traced anew.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hocket._native import PassOptions, Program
from hocket.artefacts import gradient
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import WITHIN_HOST_BIT_PER_S, WITHIN_HOST_LATENCY_S, Network, trunk_name
from hocket.artefacts.plan import Bucket, Plan, Traced
from hocket.errors import UsageError
from hocket.planning import told
from hocket.planning.buckets import sizes_of
from hocket.planning.placed import WHOLE_BYTES
from hocket.policies import READY_MADE
from hocket.policies.load import load
from hocket.policy import trace
from hocket.policy.bucketing import Bucket as PolicyBucket
from hocket.policy.bucketing import Gradient
from hocket.policy.policy import DEFAULTS, Policy, Value
from hocket.policy.topology import Link, Topology

PROGRAMS_MAX = 256
"""Limit of programs that are kept."""


@dataclass(frozen=True)
class Marked:
    """Bucket with a policy, in a form that equals that of buckets for which the policy does the same."""

    policy: str
    parameters: tuple[tuple[str, Value], ...]
    bucket: PolicyBucket


@dataclass(frozen=True)
class Counted:
    """Messages of a program. `bytes`: of its bucket; `chunk_bytes`: of a message; `depth`: most messages that follow one another;
    `beside`: bytes that the busiest rank reads and writes beside them."""

    bytes: int
    chunk_bytes: int
    flows: tuple[told.Flow, ...]
    depth: int
    beside: int

    @property
    def messages(self) -> told.Messages:
        """Messages for the cost model."""
        return told.Messages(max(1, self.bytes), self.flows, self.depth, self.beside / max(1, self.bytes))

    @property
    def sent(self) -> dict[tuple[int, int], int]:
        """Bytes from rank to rank."""
        return {(source, to): count for source, to, count, _, _ in self.flows if count}


def has_policies(plan: Plan) -> bool:
    """Return whether a bucket of the plan goes by a policy."""
    return any(isinstance(bucket.route, Traced) for bucket in plan.buckets)


def policy_of(route: Traced, given: Policy | None = None) -> Policy:
    """Load the policy of a route, or take the `given` one if it has this name. UsageError: it has no such parameter."""
    policy = given if given is not None and type(given).__name__ == route.policy else load(route.policy)
    known = {**DEFAULTS, **policy.parameters}
    unknown = next((name for name in route.parameters if name not in known), None)
    if unknown is not None:
        raise UsageError(
            f"plan: policy {route.policy} has no parameter `{unknown}`\nhint: it has {', '.join(known)}"
        )
    return policy


def marked(bucket: Bucket, known: Mapping[str, gradient.Gradient]) -> Marked:
    """Describe a bucket with a policy. `known`: gradients by name, in the order of the model; others are flat."""
    assert isinstance(bucket.route, Traced)  # noqa: S101  # for the type checker: callers have looked
    parameters = tuple(sorted(bucket.route.parameters.items()))
    kind = READY_MADE.get(bucket.route.policy)
    if kind is not None and trace.is_plain(kind()):
        # It sees no gradients, and a bucket's length and type alone: buckets that are as long share a program.
        one = Gradient("", (bucket.elements,), bucket.dtype, 0, 0)
        return Marked(bucket.route.policy, parameters, PolicyBucket((one,), 0))
    last = max(len(known), len(bucket.parts)) - 1
    order = {name: at for at, name in enumerate(known)}
    shapes = {name: each.shape for name, each in known.items()}
    parts = []
    for at, (name, size) in enumerate(sizes_of(bucket)):
        whole = name in known and size == known[name].elements
        place = order.get(name, at)
        parts.append(Gradient(name, shapes[name] if whole else (size,), bucket.dtype, last - place, place))
    return Marked(bucket.route.policy, parameters, PolicyBucket(tuple(parts), bucket.priority))


def traffic(
    bucket: Bucket, topology: Topology, known: Mapping[str, gradient.Gradient] | None = None
) -> Counted:
    """Count what the policy of a bucket sends, if all sizes that are known at run time are as large as they may be.

    Raises UsageError if there is no such policy, PolicyError if it cannot be traced or is refused.
    """
    return counted(marked(bucket, known or {}), topology)


@lru_cache(maxsize=PROGRAMS_MAX)
def counted(each: Marked, topology: Topology) -> Counted:
    """Count; see `traffic`."""
    context, traced, _ = _traced(each, topology)
    uncut = traced.program.compiled(PassOptions(chunk_bytes=WHOLE_BYTES))
    size = each.bucket.elements * ITEM_BYTES[each.bucket.dtype]
    return _counted(uncut, size, context.number("chunk_bytes"))


def program(each: Marked, topology: Topology) -> Program:
    """The bucket's program as ranks run it, verified."""
    return _traced(each, topology)[2].program


@lru_cache(maxsize=PROGRAMS_MAX)
def _traced(each: Marked, topology: Topology) -> tuple[trace.TraceContext, trace.Trace, trace.Traced]:
    """Return the context, the ops that handlers recorded, and what ranks run, verified."""
    policy, context = _context(each, topology)
    programs = trace.Programs(policy, context)
    recorded = programs.trace(each.bucket)
    return context, recorded, programs.compiled(recorded)


@lru_cache(maxsize=8)
def topology_of(network: Network) -> Topology:
    """Return the topology that policies see on a network; racks are told apart by their trunks."""
    ranks = range(network.world)
    hosts = tuple(f"host{host}" for host in network.hosts)
    links = tuple(tuple(_link(network, source, to) for to in ranks) for source in ranks)
    return Topology(hosts, tuple(_rack(network, rank) for rank in ranks), links)


def _context(each: Marked, topology: Topology) -> tuple[Policy, trace.TraceContext]:
    route = Traced(policy=each.policy, parameters=dict(each.parameters))
    policy = policy_of(route)
    return policy, trace.TraceContext.of(policy, topology, route.parameters)


def _link(network: Network, source: int, to: int) -> Link:
    if source == to:
        return Link(WITHIN_HOST_BIT_PER_S, WITHIN_HOST_LATENCY_S)
    links, latency_s = network.path(source, to)
    return Link(min(network.links[link].bit_per_s for link in links), latency_s)


def _rack(network: Network, rank: int) -> str:
    before, after = trunk_name("\n", "out").split("\n")
    for other in (each for each in range(network.world) if network.hosts[each] != network.hosts[rank]):
        for link in network.path(rank, other)[0]:
            name = network.links[link].name
            if name.startswith(before) and name.endswith(after):
                return name[len(before) : -len(after)]
    return "rack0"


def _counted(uncut: Program, size: int, chunk_bytes: int) -> Counted:
    bytes_of = {
        rank: [ITEM_BYTES[dtype] for _, dtype, *_ in uncut.buffers(rank)] for rank in range(uncut.world)
    }
    ops = [uncut.ops(rank) for rank in range(uncut.world)]
    sums: dict[tuple[int, int], Counter[str]] = {}
    beside = [0] * uncut.world
    for rank, own in enumerate(ops):
        for op in own:
            if op["op"] in ("send", "recv"):
                _, start, stop = op["src" if op["op"] == "send" else "dst"]
                pair = (rank, op["peer"]) if op["op"] == "send" else (op["peer"], rank)
                flow = sums.setdefault(pair, Counter())
                if op["op"] == "send":
                    flow.update(bytes=(stop - start) * ITEM_BYTES[op["wire"]], messages=1)
                elif op["reduce"] is not None:
                    flow.update(reduced=(stop - start) * bytes_of[rank][op["dst"][0]])
            elif op["op"] != "record":
                slices = [*op.get("inputs", ()), *op.get("outputs", ())] or [op["dst"]]
                beside[rank] += sum((stop - start) * bytes_of[rank][buffer] for buffer, start, stop in slices)
    flows = tuple(
        (source, to, flow["bytes"], flow["reduced"], flow["messages"])
        for (source, to), flow in sorted(sums.items())
        if flow["messages"]
    )
    return Counted(size, max(1, chunk_bytes), flows, _depth(ops), max(beside, default=0))


def _depth(ops: Sequence[Sequence[Mapping[str, Any]]]) -> int:
    """Most messages of which each waits for the one before it."""
    sends = {
        (rank, op["peer"], op["tag"]): (rank, at)
        for rank, own in enumerate(ops)
        for at, op in enumerate(own)
        if op["op"] == "send"
    }
    waits: dict[tuple[int, int], int] = {}
    follows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for rank, own in enumerate(ops):
        for at, op in enumerate(own):
            before = [(rank, each) for each in op["after"]]
            if op["op"] == "recv":
                before.append(sends[op["peer"], rank, op["tag"]])
            waits[rank, at] = len(before)
            for each in before:
                follows.setdefault(each, []).append((rank, at))
    depth = dict.fromkeys(waits, 0)
    ready = deque(each for each, count in waits.items() if not count)
    while ready:
        each = ready.popleft()
        for later in follows.get(each, ()):
            # Only a message leads from one rank to another.
            depth[later] = max(depth[later], depth[each] + (later[0] != each[0]))
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    return max(depth.values(), default=0)

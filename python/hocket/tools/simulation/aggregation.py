"""All-reduces summed by the switch: a pool of slots, through which workers stream their gradients (SwitchML, Sapio et al. 2021).

A slot holds a piece of the sum. A worker sends piece *i* once it has the sum of piece *i - slots*, whose slot it reuses; the switch
sends a sum to all workers when the last worker's piece has arrived. Buckets share the pool in the order in which they are ready. A
worker's link thus carries each gradient once each way, and a pool smaller than the round trip leaves the link idle.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from hocket import _native
from hocket._native import BUCKET_S
from hocket.artefacts import trace
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.trace import Kind
from hocket.errors import UsageError
from hocket.tools.simulation import flow, timelines
from hocket.tools.simulation.conditions import Conditions, Costs
from hocket.tools.simulation.outcome import BucketSpan, Outcome

PIECES_MAX = 1_000_000
"""Limit of pieces of all buckets, times workers: each is a message up and one down, some hundred bytes of memory."""

NS = 1e-9


class Switch(Struct, frozen=True, kw_only=True):
    """Resources of the switch for the job: `slots` sums of `slot_bytes`.

    `host_s`: a worker's time for each piece sent and received. `loss`: share of the pieces to a switch that are lost, and sent
    again `timeout_s` after they left; of captured traces alone.
    """

    slots: int
    slot_bytes: int
    host_s: float = 0.0
    loss: float = 0.0
    timeout_s: float = 1e-3

    def check(self) -> None:
        """Raise UsageError for a switch that cannot be."""
        if self.slots < 1 or self.slot_bytes < 1 or self.host_s < 0:
            raise UsageError(
                f"a switch with {self.slots} slots of {self.slot_bytes} bytes: it needs one at least"
            )
        if not (0 <= self.loss < 1 and 0 < self.timeout_s < math.inf):
            raise UsageError(
                f"a switch that loses {self.loss} of its pieces, sent again after {self.timeout_s} s: a share from 0 to below 1, "
                "and a time above 0"
            )


def predict(
    plan: Plan, network: Network, profile: Profile, switch: Switch, *, conditions: Conditions | None = None
) -> Outcome:
    """Predict one step in which the switch sums every bucket, at full width; ignores the plan's algorithms and codecs.

    Raises UsageError when plan, profile and network do not fit, hosts are not at one switch with a rank each, or there
    is no slot.
    """
    conditions = conditions or Conditions()
    world = plan.world
    switch.check()
    if switch.loss:
        raise UsageError("lost pieces are simulated for captured traces: leave the loss out")
    if world != network.world:
        raise UsageError(f"the plan is for {world} ranks, the network has {network.world}")
    ways = [_way(network, rank) for rank in range(world)]
    links = [link._replace(burst_bytes=0.0, queue_s=0.0) for link in network.links]
    routes = [(rank, world, [up], latency_s) for rank, (up, _, latency_s) in enumerate(ways)]
    routes += [(world, rank, [down], latency_s) for rank, (_, down, latency_s) in enumerate(ways)]
    # Without sockets, as on one host.
    native = _native.Network([0] * (world + 1), links, routes)
    timelines.refuse_turns(plan.schedule, "a switch that sums has")
    _, made_s = flow.computation(plan, profile)
    order = sorted(range(len(plan.buckets)), key=lambda at: (made_s[at], plan.buckets[at].priority))
    ready_s = {at: BUCKET_S + made_s[at] for at in order}
    messages, last = _stream(plan, switch, order, ready_s)
    costs = Costs(send_s=switch.host_s, receive_s=switch.host_s, rendezvous=False)
    program = _native.SimulatedProgram.messages(world + 1, messages, [world], native, costs.native())
    simulation = flow.run(
        native,
        [program],
        _native.SimulatedJob.phases(world + 1, [([(0, 0, [])], [], [])]),
        network,
        rendezvous=False,
        conditions=conditions,
        recorded=True,
    )
    done_s = _done_s(simulation, world, last)
    slow = max([1.0, *(factor for _, factor in conditions.slow)])
    busy_s = (profile.forward_s + profile.backward_s) * slow
    rest_s = max(0.0, profile.step_s - profile.forward_s - profile.backward_s) * slow
    step_s = max([busy_s, *done_s.values()]) + rest_s
    return Outcome(
        fidelity="flow",
        network=f"{network.title} whose switch sums, {switch.slots} slots of {switch.slot_bytes} bytes",
        world=world,
        steps=1,
        step_s=step_s,
        exposed_s=max(0.0, step_s - profile.step_s),
        buckets=tuple(
            BucketSpan(bucket=at, elements=bucket.elements, launched_s=ready_s[at], done_s=done_s[at])
            for at, bucket in enumerate(plan.buckets)
        ),
        loads=flow.loads(network, simulation.link_bytes, step_s),
        messages=simulation.messages,
        events=simulation.events,
    )


def _way(network: Network, rank: int) -> tuple[int, int, float]:
    """Return the rank's links to and from the switch, and the latency of each."""
    other = 1 if rank == 0 else 0
    if network.world < 2 or len(set(network.hosts)) < network.world:
        raise UsageError("a switch sums for hosts with one rank each, two at least")
    (there, there_s), (back, _) = network.path(rank, other), network.path(other, rank)
    if len(there) != 2 or len(back) != 2:
        raise UsageError(
            "a switch sums for hosts that are all at it\nhint: leave the racks out of the cluster"
        )
    return there[0], back[-1], there_s / 2


Message = tuple[int, int, int, list[int], float]


def _stream(
    plan: Plan, switch: Switch, order: list[int], ready_s: dict[int, float]
) -> tuple[list[Message], dict[int, int]]:
    """Return messages for `SimulatedProgram.messages`, and by bucket the number of pieces up to its end."""
    world = plan.world
    sizes = [(at, plan.buckets[at].elements * ITEM_BYTES[plan.buckets[at].dtype]) for at in order]
    pieces = sum(-(-size // switch.slot_bytes) for _, size in sizes)
    if pieces * world > PIECES_MAX:
        raise UsageError(
            f"{pieces} pieces of {world} workers are more than {PIECES_MAX:,}\nhint: simulate larger slots, fewer of them"
        )
    messages: list[Message] = []
    downs: list[int] = []
    last: dict[int, int] = {}
    for at, size in sizes:
        moments = list(range(len(messages), len(messages) + world))
        messages += [(rank, rank, 0, [], ready_s[at]) for rank in range(world)]
        for begin in range(0, size, switch.slot_bytes):
            length = min(switch.slot_bytes, size - begin)
            first = len(messages)
            for rank in range(world):
                after = [moments[rank]]
                if len(downs) >= switch.slots:
                    after.append(downs[-switch.slots] + rank)
                # A worker's pieces leave in order.
                messages.append((rank, world, length, after, 0.0))
            downs.append(len(messages))
            messages += [
                (world, rank, length, list(range(first, first + world)), 0.0) for rank in range(world)
            ]
        last[at] = len(downs)
    return messages, last


def _done_s(simulation: _native.Simulation, world: int, last: dict[int, int]) -> dict[int, float]:
    """Return, by bucket, the time at which the last worker had its last sum. Sums reach a worker in the order of pieces."""
    ends = []
    for rank in range(world):
        records = np.frombuffer(simulation.records(rank), list(trace.FIELDS))
        received = records[records["kind"] == Kind.RECV]
        ends.append(received["end_ns"][np.argsort(received["op"], kind="stable")])
    return {at: max(float(own[:count].max(initial=0)) for own in ends) * NS for at, count in last.items()}

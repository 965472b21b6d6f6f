"""Replay of a trace's traffic in virtual time: on other networks, at other speeds of computation, with stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np

from hocket import _native
from hocket.artefacts import trace
from hocket.artefacts.network import Network
from hocket.artefacts.trace import Kind
from hocket.errors import UsageError
from hocket.tools.replay.traffic import Message, Traffic, steps_s
from hocket.tools.simulation import flow
from hocket.tools.simulation.conditions import Conditions, Costs

NS = 1e-9


def predict(
    traffic: Traffic,
    network: Network,
    *,
    costs: Costs | None = None,
    conditions: Conditions | None = None,
    computation: float = 1.0,
    switches: Sequence[int] = (),
) -> tuple[float, ...]:
    """Predict the seconds of each iteration, as `traffic.steps_s`; every gap is multiplied by `computation`. `switches`: nodes that
    messages cost nothing.

    Raises UsageError when network and trace do not fit, SimulationError when nothing moves any more.
    """
    costs = costs or Costs()
    conditions = conditions or Conditions()
    world = len(traffic.nodes)
    if network.world != world:
        raise UsageError(f"the trace is of {world} nodes, the network has {network.world}")
    pairs = sorted({(each.source, each.destination) for each in traffic.messages if not each.is_moment})
    native = network.native_for(pairs)
    rows = [
        (each.source, each.destination, each.bytes, each.after, each.gap_s * computation)
        for each in traffic.messages
    ]
    program = _native.SimulatedProgram.messages(world, rows, list(switches), native, costs.native())
    simulation = flow.run(
        native,
        [program],
        _native.SimulatedJob.phases(world, [([(0, 0, [])], [], [])]),
        network,
        rendezvous=costs.rendezvous,
        conditions=conditions,
        recorded=True,
    )
    return tuple(steps_s(traffic.messages, _arrivals_s(traffic.messages, simulation, world), traffic.workers))


def _arrivals_s(messages: Sequence[Message], simulation: _native.Simulation, world: int) -> list[float]:
    """Return the time at which each message was received; zero for moments. A rank's ops are numbered as in
    `SimulatedProgram.messages`."""
    numbers = [count() for _ in range(world)]
    receives: list[tuple[int, int] | None] = []
    for message in messages:
        next(numbers[message.source])
        if message.is_moment:
            receives.append(None)
            continue
        next(numbers[message.source])
        receives.append((message.destination, next(numbers[message.destination])))
    ends_s = []
    for rank in range(world):
        records = np.frombuffer(simulation.records(rank), list(trace.FIELDS))
        own = records[records["kind"] == Kind.RECV]
        ends_s.append(dict(zip(own["op"].tolist(), (own["end_ns"] * NS).tolist(), strict=True)))
    return [0.0 if place is None else ends_s[place[0]][place[1]] for place in receives]

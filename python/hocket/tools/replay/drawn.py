"""Overheads drawn from the measured ones: a run that has not happened, of machines that did what the trace recorded.

A repeated trace has one order of fast and slow moments, and copies of a worker are slow at the same time. Here each gap is one of
those that were recorded of its kind (computation before a push of a key, its search, its update), any of them with equal chance:
the sample's own distribution, with its tail, and no assumed shape. In a run of a plan whole steps of a rank are drawn, because the
launches of a step are not independent.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from hocket.tools.replay.schedule import Schedule
from hocket.tools.replay.traffic import Traffic


def gaps_drawn(traffic: Traffic, seed: int) -> Traffic:
    """Return the traffic with gaps drawn among those of the same kind. Those without a kind, or that wait for nothing, stay.

    >>> from hocket.tools.replay.traffic import Message
    >>> one = Message(0, 1, 4, (), 0.5, 0, (7,))
    >>> two = Message(1, 0, 4, (0,), 0.25, 0, (7,))
    >>> [each.gap_s for each in gaps_drawn(Traffic(nodes=("a", "b"), workers=2, messages=(one, two), recorded_s=()), 3).messages]
    [0.5, 0.25]
    """
    measured: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for message in traffic.messages:
        if message.after:
            measured[message.kind].append(message.gap_s)
    chance = np.random.default_rng(seed)
    draws = {
        kind: iter(chance.choice(gaps, len(gaps)).tolist()) for kind, gaps in sorted(measured.items()) if kind
    }
    messages = (
        msgspec.structs.replace(each, gap_s=next(draws[each.kind])) if each.kind and each.after else each
        for each in traffic.messages
    )
    return msgspec.structs.replace(traffic, messages=tuple(messages))


def steps_drawn(recorded: Schedule, world: int, seed: int) -> Schedule:
    """Return a schedule of `world` ranks: each step of a rank is any step of the recorded rank that it is like."""
    chance = np.random.default_rng(seed)
    ranks = []
    for rank in range(world):
        own = recorded.ranks[rank % len(recorded.ranks)]
        ranks.append(tuple(own[at] for at in chance.integers(len(own), size=len(own)).tolist()))
    return msgspec.structs.replace(recorded, ranks=tuple(ranks))

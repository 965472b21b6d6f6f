"""What fair shares of links cost an exchange with owners, as it reads best: the oracle of `crates/plan/src/fair.rs`.

A stream of gradients passes. Every flow advances at the fair rate of its pair of members, no further than the flows that it waits
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hocket.artefacts.network import Network

STEPS = 32
EQUAL = 1e-9

Pair = tuple[int, int]


@dataclass
class Flow:
    """From member to member: its share of a gradient, which flows it waits for, how far in the stream it has come, and how far it
    may come in this step."""

    pair: Pair
    share: float
    after: list[Flow]
    progress: float = 0.0
    limit: float = 1.0

    @property
    def moves(self) -> bool:
        return self.progress + EQUAL < self.limit


def slower(
    shares: Sequence[int],
    order: Sequence[int],
    wire_bytes: Callable[[int, int], int],
    graph: Network,
) -> float:
    """The factor on the time of the busiest link, of owners whom everybody reaches directly; all members work."""
    if len(set(shares)) == 1:
        return 1.0
    flows = _flows(shares)
    pairs = sorted({flow.pair for flow in flows})
    bits = {pair: 8 * wire_bytes(order[pair[0]], order[pair[1]]) for pair in pairs}
    paths = {pair: graph.path(order[pair[0]], order[pair[1]])[0] for pair in pairs}
    busy_s = [0.0] * len(graph.links)
    for flow in flows:
        for link in paths[flow.pair]:
            busy_s[link] += flow.share * bits[flow.pair] / graph.links[link].bit_per_s
    step_s = max(busy_s) / STEPS
    lasted_s = 0.0
    while active := _active(flows, pairs):
        wanted = {
            pair: sum(
                (flow.limit - flow.progress) * flow.share
                for flow in flows
                if flow.pair == pair and flow.moves
            )
            for pair in active
        }
        most = {pair: wanted[pair] * bits[pair] / step_s for pair in active}
        rates = _fair({pair: paths[pair] for pair in active}, most, graph)
        used = 0.0
        for pair in active:
            given = rates[pair] * step_s / bits[pair]
            if given > 0:
                left = _advance([flow for flow in flows if flow.pair == pair], given)
                used = max(used, (given - left) / given)
        lasted_s += used * step_s
    return max(1.0, lasted_s / max(busy_s))


def _active(flows: Sequence[Flow], pairs: Sequence[Pair]) -> list[Pair]:
    """Those with something to send, as far as it has come by now."""
    for flow in flows:
        flow.limit = min([1.0, *(before.progress for before in flow.after)])
    return [pair for pair in pairs if any(flow.moves for flow in flows if flow.pair == pair)]


def _flows(shares: Sequence[int]) -> list[Flow]:
    members = range(len(shares))
    found, pushed = [], {}
    for owner in members:
        if shares[owner]:
            share = shares[owner] / sum(shares)
            pushed[owner] = [Flow((member, owner), share, []) for member in members if member != owner]
            found += pushed[owner]
    for member in members:
        for owner, before in pushed.items():
            if owner != member:
                found.append(Flow((owner, member), shares[owner] / sum(shares), before))
    return found


def _fair(paths: dict[Pair, tuple[int, ...]], most: dict[Pair, float], graph: Network) -> dict[Pair, float]:
    """Max-min fair rates, none above what a pair wants: the narrowest share of a link is that of all who want so much."""
    left = {link: graph.links[link].bit_per_s for path in paths.values() for link in path}
    rates: dict[Pair, float] = {}
    while len(rates) < len(paths):
        users = {
            link: [pair for pair in paths if pair not in rates and link in paths[pair]]
            for link in sorted(left)
        }
        shares = {link: left[link] / len(own) for link, own in users.items() if own}
        narrow = min(shares, key=shares.__getitem__)
        modest = [pair for pair in paths if pair not in rates and most[pair] <= shares[narrow]]
        for pair in modest or users[narrow]:
            rates[pair] = min(most[pair], shares[narrow])
            for link in paths[pair]:
                left[link] = max(0.0, left[link] - rates[pair])
    return rates


def _advance(flows: Sequence[Flow], given: float) -> float:
    """Let flows of one pair advance by so many elements, what has come least far first; what nobody can use."""
    left = given
    while left > EQUAL * given:
        moving = [flow for flow in flows if flow.moves]
        if not moving:
            break
        flow = min(moving, key=lambda each: each.progress)
        further = [
            other.progress for other in flows if other is not flow and other.progress > flow.progress + EQUAL
        ]
        wanted = min(flow.limit, min(further, default=math.inf)) - flow.progress
        more = min(wanted, left / flow.share)
        flow.progress += more
        left -= more * flow.share
    return left

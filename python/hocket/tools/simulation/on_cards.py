"""Simulations of plans whose buckets use some network cards alone: a route for each pair of ranks on each card, and of each message
the part that a card carries, by the shares of the closed form.

Parts of a message flow as messages of their own, each on its card, as connections of a real job do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from hocket import _native
from hocket.artefacts.network import Link, Network
from hocket.artefacts.plan import Bucket, Plan
from hocket.artefacts.profile import Profile
from hocket.planning.cost import card_shares


class Part(NamedTuple):
    """Part of a bucket that one card carries."""

    bucket: int
    card: int = 0
    share: float = 1.0


def parts_of(plan: Plan, network: Network, profile: Profile) -> list[Part]:
    """Return the parts of all buckets, in their order: a bucket is one, unless some bucket uses some cards alone. UsageError if a
    card does not exist."""
    if not uses_cards(plan.buckets):
        return [Part(at) for at in range(len(plan.buckets))]
    shares = card_shares(plan.buckets, network, profile, plan.workers)
    return [Part(at, card, share) for at, own in enumerate(shares) for card, share in own.items()]


def uses_cards(buckets: Iterable[Bucket]) -> bool:
    """Return whether some bucket uses some cards alone."""
    return any(bucket.cards is not None for bucket in buckets)


def launched(plan: Plan, parts: Sequence[Part]) -> Plan:
    """Return the plan as it is simulated: each part is a bucket of its own, with the turns of the whole."""
    turns = plan.schedule.turns and tuple(plan.schedule.turns[part.bucket] for part in parts)
    schedule = msgspec.structs.replace(plan.schedule, turns=turns)
    buckets = tuple(plan.buckets[part.bucket] for part in parts)
    return msgspec.structs.replace(plan, buckets=buckets, schedule=schedule)


def together(network: Network, pairs: Iterable[tuple[int, int]]) -> tuple[Network, _native.Network]:
    """Return the network of all cards, and with routes between these pairs on each. What ranks of one host share is one link."""
    inside = {
        network.links[at].name
        for a, b in network.pairs()
        if network.hosts[a] == network.hosts[b]
        for at in network.path(a, b)[0]
    }
    links: list[Link] = []
    places: list[list[int]] = []
    shared: dict[str, int] = {}
    for number, card in enumerate(network.cards):
        own = []
        for link in card.links:
            if link.name not in shared:
                within = link.name in inside
                if within:
                    shared[link.name] = len(links)
                links.append(link if within else link._replace(name=f"card {number}: {link.name}"))
                own.append(len(links) - 1)
            else:
                own.append(shared[link.name])
        places.append(own)
    wanted = set(pairs)
    if any(link.queue_s for link in links):
        # Announcements go back.
        wanted |= {(destination, source) for source, destination in wanted}
    routes = [
        [
            (source, destination, [own[at] for at in path], latency_s)
            for source, destination in wanted
            for path, latency_s in [card.path(source, destination)]
        ]
        for card, own in zip(network.cards, places, strict=True)
    ]
    whole = replace(network, links=tuple(links), cards=())
    return whole, _native.Network(network.hosts, links, routes[0], routes[1:])

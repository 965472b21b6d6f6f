"""Demand of buckets on each network card, where some buckets use only some cards.

A bucket on several cards is striped: each card carries a share proportional to its rate, so that all cards finish together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket
from hocket.errors import UsageError

Piece = tuple[float, float, float, float, Sequence[float]]
"""Demand of a bucket, in seconds: when ready, before and after the busiest resource has some of it, alone, and busy by resource."""


class Demand(NamedTuple):
    """Buckets' pieces on a network, and the link or engine for each of a piece's resources (`PlanCost.resources`)."""

    pieces: Sequence[Piece]
    resources: Sequence[int]


Resource = tuple[int, int]
"""Number of a card, and of a link on it."""


def over_cards(
    buckets: Sequence[Bucket], graph: Network, whole: Demand, alone: Sequence[Demand]
) -> tuple[list[Piece], list[Resource]]:
    """Return the demand of each bucket on links of the first card, of the second, …, then on engines; and these links.

    `whole`: with all cards as one link; `alone`: on each card. Raises UsageError for a card that some host lacks.
    """
    links = _links(graph, alone)
    engines = [at for at, link in enumerate(whole.resources) if link >= len(graph.links)]
    found: list[Piece] = []
    for at, shares in enumerate(shares_on(buckets, graph, alone)):
        pieces = [demand.pieces[at] for demand in alone]
        busy_s = [[piece[4][link] for link in own] for piece, own in zip(pieces, links, strict=True)]
        start_s, head_s, tail_s, alone_s, own_s = _shared(shares, pieces, busy_s)
        found.append(
            (start_s, head_s, tail_s, alone_s, [*own_s, *(whole.pieces[at][4][each] for each in engines)])
        )
    resources = [(card, alone[card].resources[link]) for card, own in enumerate(links) for link in own]
    return found, resources


def shares_on(buckets: Sequence[Bucket], graph: Network, alone: Sequence[Demand]) -> list[dict[int, float]]:
    """Return the share of each bucket that each of its cards carries. `alone`: the demand on each card. Raises UsageError for a
    card that some host lacks."""
    for at, bucket in enumerate(buckets):
        lacking = [card for card in bucket.cards or () if card >= len(alone)]
        if lacking:
            raise UsageError(
                f"plan: bucket {at} uses card {lacking[0]}, and all hosts have {max(1, len(alone))}\n"
                "hint: `cards_bit_per_s` of the cluster file's hosts"
            )
    links = _links(graph, alone)
    found = []
    for at, bucket in enumerate(buckets):
        cards = range(len(alone)) if bucket.cards is None else bucket.cards
        busiest_s = {
            card: max((alone[card].pieces[at][4][link] for link in links[card]), default=0.0)
            for card in cards
        }
        rates = {card: 1 / max(busy_s, 1e-12) for card, busy_s in busiest_s.items()}
        found.append({card: rate / sum(rates.values()) for card, rate in rates.items()})
    return found


def _links(graph: Network, alone: Sequence[Demand]) -> list[list[int]]:
    """Return by card which of the resources are links."""
    return [
        [at for at, link in enumerate(demand.resources) if link < len(card.links)]
        for demand, card in zip(alone, graph.cards, strict=True)
    ]


def _shared(shares: Mapping[int, float], pieces: Sequence[Piece], busy_s: Sequence[Sequence[float]]) -> Piece:
    """Demand of a bucket striped over cards by these shares; `pieces`, `busy_s`: by card, if the bucket used that card alone."""
    cards = list(shares)
    own_s = [shares.get(card, 0.0) * each_s for card, each in enumerate(busy_s) for each_s in each]
    start_s, head_s, tail_s = pieces[cards[0]][:3]
    # At least the time of the slowest card for its share.
    alone_s = max(shares[card] * pieces[card][3] for card in cards)
    return start_s, head_s, tail_s, alone_s, own_s

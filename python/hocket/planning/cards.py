"""Demand of buckets on each network card, where some buckets use only some cards.

A bucket on several cards is striped: each card carries a share proportional to its rate, so that all cards finish together.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    for at, bucket in enumerate(buckets):
        lacking = [card for card in bucket.cards or () if card >= len(alone)]
        if lacking:
            raise UsageError(
                f"plan: bucket {at} uses card {lacking[0]}, and all hosts have {max(1, len(alone))}\n"
                "hint: `cards_bit_per_s` of the cluster file's hosts"
            )
    links = [
        [at for at, link in enumerate(demand.resources) if link < len(card.links)]
        for demand, card in zip(alone, graph.cards, strict=True)
    ]
    engines = [at for at, link in enumerate(whole.resources) if link >= len(graph.links)]
    found: list[Piece] = []
    for at, bucket in enumerate(buckets):
        cards = range(len(alone)) if bucket.cards is None else bucket.cards
        pieces = [demand.pieces[at] for demand in alone]
        busy_s = [[piece[4][link] for link in own] for piece, own in zip(pieces, links, strict=True)]
        start_s, head_s, tail_s, alone_s, own_s = _shared(cards, pieces, busy_s)
        found.append(
            (start_s, head_s, tail_s, alone_s, [*own_s, *(whole.pieces[at][4][each] for each in engines)])
        )
    resources = [(card, alone[card].resources[link]) for card, own in enumerate(links) for link in own]
    return found, resources


def _shared(cards: Sequence[int], pieces: Sequence[Piece], busy_s: Sequence[Sequence[float]]) -> Piece:
    """Demand of a bucket striped over these cards; `pieces`, `busy_s`: by card, if the bucket used that card alone."""
    rates = {card: 1 / max(*busy_s[card], 1e-12) for card in cards}
    shares = {card: rate / sum(rates.values()) for card, rate in rates.items()}
    own_s = [shares.get(card, 0.0) * each_s for card, each in enumerate(busy_s) for each_s in each]
    start_s, head_s, tail_s = pieces[cards[0]][:3]
    # At least the time of the slowest card for its share.
    alone_s = max(shares[card] * pieces[card][3] for card in cards)
    return start_s, head_s, tail_s, alone_s, own_s

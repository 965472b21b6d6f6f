"""Clusters for judging orders. Hosts are listed in turn, as by a scheduler that ignores racks.

`latency`: racks whose hosts are not equally far from one another, as in public clouds. Within a rack a packet takes 0.1 to 0.3 ms,
between racks 0.5 to 8 ms, drawn for each pair (log-uniformly, by a fixed seed), like the choice among equal-cost paths. The others
have no latency, and links that are slow enough to be the bottleneck, not the processors: trunks that racks share, trunks of
different rates, hosts of different rates, hosts with two cards.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from hocket.artefacts.cluster import Cluster, Host, Rack

HOSTS = 8
MEGABIT = 1e6
NEAR_S, FAR_S = (0.1e-3, 0.3e-3), (0.5e-3, 8e-3)
LINK_BIT_PER_S = 1e9
SEEDS = {2: 20, 4: 7}
"""Seeds by number of racks. Among 21 successive seeds, each has the median of the predicted gain for a ring over Gloo, worst
against chosen: 10.5 times for 2 racks (of 4.1 to 13.2), 5.4 times for 4 (of 3.6 to 9.2)."""


def trunks() -> Cluster:
    """Two racks of four behind trunks as wide as half a host's link."""
    return _racked([MEGABIT * 400] * HOSTS, [0, 1] * 4, [MEGABIT * 200] * 2)


def uneven_trunks() -> Cluster:
    """Three racks of three, three and two, whose trunks differ."""
    return _racked(
        [MEGABIT * 400] * HOSTS, [0, 1, 2, 0, 1, 2, 0, 1], [MEGABIT * rate for rate in (300, 200, 120)]
    )


def uneven_hosts() -> Cluster:
    """Hosts of different rates in racks of five and three."""
    rates = [MEGABIT * rate for rate in (400, 200, 400, 300, 400, 200, 400, 400)]
    return _racked(rates, [0, 1, 0, 0, 0, 1, 0, 1], [MEGABIT * 160] * 2)


def cards() -> Cluster:
    """Two racks of four hosts with two cards; the first cards are behind trunks."""
    both = (MEGABIT * 300, MEGABIT * 60)
    return _racked([sum(both)] * HOSTS, [0, 1] * 4, [MEGABIT * 150] * 2, cards=both)


def _racked(
    rates: Sequence[float], racks: Sequence[int], trunks: Sequence[float], cards: tuple[float, ...] = ()
) -> Cluster:
    return Cluster(
        hosts=tuple(
            Host(name=f"h{at}", rack=f"rack{rack}", bandwidth_bit_per_s=rate, cards_bit_per_s=cards)
            for at, (rate, rack) in enumerate(zip(rates, racks, strict=True))
        ),
        racks=tuple(Rack(name=f"rack{at}", uplink_bit_per_s=rate) for at, rate in enumerate(trunks)),
    )


BY_RATES = {"trunks": trunks, "uneven_trunks": uneven_trunks, "uneven_hosts": uneven_hosts, "cards": cards}
"""Clusters in which link rates decide."""


def latency(racks: int) -> Cluster:
    """Cluster of eight hosts in `racks` racks."""
    draws = random.Random(SEEDS[racks])  # noqa: S311  # an example, not a secret
    latency_s = [[0.0] * HOSTS for _ in range(HOSTS)]
    for a in range(HOSTS):
        for b in range(a):
            low, high = NEAR_S if a % racks == b % racks else FAR_S
            latency_s[a][b] = latency_s[b][a] = round(
                math.exp(draws.uniform(math.log(low), math.log(high))), 6
            )
    return Cluster(
        hosts=tuple(
            Host(name=f"h{at}", rack=f"rack{at % racks}", bandwidth_bit_per_s=LINK_BIT_PER_S)
            for at in range(HOSTS)
        ),
        racks=tuple(Rack(name=f"rack{at}", uplink_bit_per_s=LINK_BIT_PER_S) for at in range(racks)),
        latency_s=tuple(tuple(row) for row in latency_s),
    )

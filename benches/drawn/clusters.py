"""Random clusters, with models: racks with different trunks, hosts of different rates and cards, ranks that only help."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from benches.strategies.cases import MODELS
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.profile import Profile

MEGABIT = 1e6
HOSTS = (4, 9)
"""Fewest and most hosts that train."""
HELPERS_MAX = 2
HOST_BIT_PER_S = (200 * MEGABIT, 2000 * MEGABIT)
CARDS_MAX = 3


@dataclass(frozen=True)
class Case:
    """A planning problem. The last `helpers` hosts do not train."""

    name: str
    cluster: Cluster
    profile: Profile
    helpers: int

    @property
    def world(self) -> int:
        """Number of ranks, one on each host."""
        return len(self.cluster.hosts)


def case(seed: int) -> Case:
    """Draw a case, deterministically from the seed."""
    draw = random.Random(seed)  # noqa: S311  # an example, not a secret
    workers = draw.randint(*HOSTS)
    helpers = draw.choice((0, 0, *range(1, HELPERS_MAX + 1)))
    racks = draw.choice((1, 2, 3, 3, 4))
    unequal, with_cards = draw.random() < 0.5, draw.random() < 0.3
    base = _between(draw, *HOST_BIT_PER_S)
    hosts = []
    for at in range(workers + helpers):
        rate = base * (draw.choice((1.0, 1.0, 0.5, 0.3, 2.0)) if unequal else 1.0)
        cards = tuple(rate for _ in range(draw.randint(1, CARDS_MAX))) if with_cards else ()
        hosts.append(
            Host(
                name=f"h{at}",
                rack=f"rack{draw.randrange(racks)}",
                bandwidth_bit_per_s=sum(cards) or rate,
                cards_bit_per_s=cards if len(cards) > 1 else (),
            )
        )
    trunks = tuple(
        Rack(name=f"rack{at}", uplink_bit_per_s=base * _between(draw, 0.1, 1.5)) for at in range(racks)
    )
    model = draw.choice(sorted(MODELS))
    words = [f"{workers} hosts", f"{racks} racks" if racks > 1 else "", "unequal rates" if unequal else ""]
    words += ["cards" if with_cards else "", f"{helpers} helpers" if helpers else "", model]
    return Case(
        name=f"{seed}: {', '.join(filter(None, words))}",
        cluster=Cluster(hosts=tuple(hosts), racks=trunks if racks > 1 else ()),
        profile=MODELS[model],
        helpers=helpers,
    )


def _between(draw: random.Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))

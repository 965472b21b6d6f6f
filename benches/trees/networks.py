"""The networks that ForestColl was published with (Zhao et al., arXiv 2402.06787): hosts of eight A100 or 16 halves of MI250."""

from __future__ import annotations

from hocket.tools.simulation.wired import Cable, Wired

GBYTE = 8e9
LATENCY_S = 1e-6

SWITCHED, CARD = 300 * GBYTE, 25 * GBYTE
"""Rates of an A100 to the switch in its host, and of the card beside it; cards of even and of odd ones meet in a switch each."""

LINK, OWN_CARD = 50 * GBYTE, 16 * GBYTE
"""Rates of one link between halves of MI250, and of each half's card; all meet in one switch."""

LINKS = {
    4: [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)],
    2: [(0, 4), (3, 7), (8, 12), (11, 15)],
    1: [
        (0, 8), (1, 5), (1, 9), (1, 10), (2, 6), (2, 9), (2, 10), (3, 11),
        (4, 6), (5, 6), (5, 7), (9, 13), (10, 14), (12, 14), (13, 14), (13, 15),
    ],
}  # fmt: skip
"""Pairs of halves in one host, by the number of links between them."""


def a100(hosts: int) -> Wired:
    """Hosts of eight."""
    ranks = [f"{host}.{own}" for host in range(hosts) for own in range(8)]
    links = []
    for rank in ranks:
        host, own = rank.split(".")
        links.append(Cable(between=(rank, f"switch {host}"), bit_per_s=SWITCHED))
        if hosts > 1:
            links += [
                Cable(between=(rank, f"card {rank}"), bit_per_s=CARD),
                Cable(between=(f"card {rank}", f"rail {int(own) % 2}"), bit_per_s=CARD),
            ]
    return Wired(ranks=tuple(ranks), links=tuple(links), latency_s=LATENCY_S)


def mi250(hosts: int) -> Wired:
    """Hosts of 16."""
    ranks = [f"{host}.{own}" for host in range(hosts) for own in range(16)]
    links = [
        Cable(between=(f"{host}.{a}", f"{host}.{b}"), bit_per_s=count * LINK)
        for host in range(hosts)
        for count, pairs in LINKS.items()
        for a, b in pairs
    ]
    if hosts > 1:
        links += [Cable(between=(rank, "switch"), bit_per_s=OWN_CARD) for rank in ranks]
    return Wired(ranks=tuple(ranks), links=tuple(links), latency_s=LATENCY_S)

"""Who measures with whom and when: pairings in which nobody is in two measurements at once. Pure."""

from __future__ import annotations

from itertools import zip_longest


def tournament(players: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Rounds in which every pair meets exactly once: the circle method of round-robin tournaments.

    `players - 1` rounds, or `players` when odd, each with one pair for everyone (but one, when odd).

    >>> tournament(4)
    (((0, 3), (1, 2)), ((0, 2), (1, 3)), ((0, 1), (2, 3)))
    """
    if players < 2:
        return ()
    seats: list[int | None] = [*range(players), *([None] if players % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        facing = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        rounds.append(tuple((min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(rounds)


def crossing(racks: tuple[tuple[int, ...], ...], turn: int) -> tuple[tuple[int, int], ...]:
    """Flows (source, destination) that leave every rack at once: each host to one outside its rack.

    Destinations are spread over the other racks first, then over their hosts, and move on with every turn.

    >>> crossing(((0, 2), (1, 3)), 0)
    ((0, 1), (2, 3), (1, 0), (3, 2))
    """
    flows = []
    for place, sources in enumerate(racks):
        others = racks[place + 1 :] + racks[:place]
        outside = [host for same in zip_longest(*others) for host in same if host is not None]
        flows += [(host, outside[(i + turn) % len(outside)]) for i, host in enumerate(sources)]
    return tuple(flows)


def within(racks: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
    """Flows around every rack: each of its hosts sends to the next and receives from the one before.

    >>> within(((0, 2), (1,)))
    ((0, 2), (2, 0))
    """
    return tuple(
        (host, rack[(i + 1) % len(rack)]) for rack in racks if len(rack) > 1 for i, host in enumerate(rack)
    )

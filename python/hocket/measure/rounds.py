"""Schedule of measurements: pairings in which no player takes part in two at once. Pure."""

from __future__ import annotations

from itertools import zip_longest


def tournament(players: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Rounds in which every pair meets exactly once: the circle method of round-robin tournaments.

    `players - 1` rounds, or `players` when odd, each with one pair for everyone (but one, when odd).

    >>> tournament(4)
    (((0, 3), (1, 2)), ((0, 2), (1, 3)), ((0, 1), (2, 3)))
    """
    return tuple(meeting(players, turn) for turn in range(rounds_of(players)))


def rounds_of(players: int) -> int:
    """Number of rounds of a tournament.

    >>> [rounds_of(players) for players in (1, 2, 5, 6)]
    [0, 1, 5, 5]
    """
    return 0 if players < 2 else players - 1 + players % 2


def meeting(players: int, turn: int) -> tuple[tuple[int, int], ...]:
    """One round of the tournament.

    >>> meeting(4, 1)
    ((0, 2), (1, 3))
    """
    others: list[int | None] = [*range(1, players), *([None] if players % 2 else [])]
    turned = turn % len(others)
    seats = [0, *others[len(others) - turned :], *others[: len(others) - turned]]
    facing = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
    return tuple((min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None)


def crossing(racks: tuple[tuple[int, ...], ...], turn: int) -> tuple[tuple[int, int], ...]:
    """Flows (source, destination) that leave every rack at once: each host to one outside its rack.

    Destinations are spread over the other racks first, then over their hosts, and rotate with every turn.

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
    """Flows around every rack: each of its hosts sends to the next and receives from the previous one.

    >>> within(((0, 2), (1,)))
    ((0, 2), (2, 0))
    """
    return tuple(
        (host, rack[(i + 1) % len(rack)]) for rack in racks if len(rack) > 1 for i, host in enumerate(rack)
    )

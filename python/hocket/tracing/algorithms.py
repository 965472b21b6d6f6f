"""`auto`: which algorithm a collective takes, by who its members are and how much it moves."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.errors import PolicyError
from hocket.tracing import sources
from hocket.tracing.topology import Topology

SMALL_BYTES = 65_536
"""Below, rounds count and not bytes."""

FASTER = 2.0
"""A rack is a group of its own when links within are so many times as fast as those between."""

KNOWN = (
    "ring",
    "direct",
    "in_place",
    "two_level",
    "halving_doubling",
    "double_binary_tree",
    "bcube",
    "parameter_server",
)


def choose(
    what: str, group: Sequence[int], size_bytes: int, topology: Topology
) -> tuple[str, tuple[int, ...]]:
    """Algorithm and its numbers (the group sizes of `two_level`)."""
    one_host = len({topology.hosts[rank] for rank in group}) == 1
    small = size_bytes <= SMALL_BYTES
    match what:
        case "gather" | "scatter" | "all_to_all":
            return "direct", ()
        case "broadcast" | "reduce":
            return ("halving_doubling" if small or one_host else "ring"), ()
        case "reduce_scatter" | "all_gather":
            return ("direct" if one_host or small else "ring"), ()
    if one_host:
        return "in_place", ()
    for names in (topology.hosts, topology.racks):
        sizes = blocks(group, names)
        if sizes is not None and 1 < len(sizes) < len(group) and _slower_between(group, names, topology):
            return "two_level", sizes
    return ("halving_doubling" if small else "ring"), ()


def numbers(
    algorithm: str,
    group: Sequence[int],
    topology: Topology,
    *,
    sizes: Sequence[int] | None,
    base: int,
    servers: int | None,
) -> tuple[int, ...]:
    """What an algorithm that was asked for by name needs to know."""
    match algorithm:
        case "two_level":
            found = (
                tuple(sizes)
                if sizes is not None
                else blocks(group, topology.hosts) or blocks(group, topology.racks)
            )
            if found is None:
                raise PolicyError(
                    f"{sources.where()}: two_level needs ranks of a host next to one another in the group\n"
                    "hint: order the group by host, or give `sizes`"
                )
            return found
        case "in_place" if len({topology.hosts[rank] for rank in group}) > 1:
            raise PolicyError(f'{sources.where()}: in_place is for ranks of one host\nhint: algorithm="auto"')
        case "bcube":
            return (base,)
        case "parameter_server":
            return (len(group) if servers is None else servers,)
    return ()


def blocks(group: Sequence[int], names: Sequence[str]) -> tuple[int, ...] | None:
    """Lengths of the runs of equal names in a group; None when a name comes back."""
    runs: list[tuple[str, int]] = []
    for rank in group:
        if runs and runs[-1][0] == names[rank]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((names[rank], 1))
    if len({name for name, _ in runs}) != len(runs):
        return None
    return tuple(count for _, count in runs)


def _slower_between(group: Sequence[int], names: Sequence[str], topology: Topology) -> bool:
    pairs = [(a, b) for a in group for b in group if a != b]
    within = [topology.link(a, b).bandwidth for a, b in pairs if names[a] == names[b]]
    between = [topology.link(a, b).bandwidth for a, b in pairs if names[a] != names[b]]
    return bool(within and between) and min(within) >= FASTER * min(between)

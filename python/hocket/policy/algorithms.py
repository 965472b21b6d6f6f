"""Choice of a collective's algorithm under `auto`, by group and size."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.artefacts import shipped
from hocket.artefacts.algorithms import Algorithm, Fitting
from hocket.artefacts.algorithms import fitting as listed
from hocket.artefacts.tuning import Tuning
from hocket.policy import sources
from hocket.policy.selection import fastest, nearest, network_shape
from hocket.policy.topology import Topology


def choose(what: str, group: Sequence[int], size_bytes: int, topology: Topology, tuning: Tuning) -> Algorithm:
    """Choose the fastest measured algorithm that fits the group, and its numbers, such as the group sizes of `two_level`.

    If a tuning lacks the collective, the tuning that comes with Hocket decides.
    """
    known = fitting(what, group, topology)
    if len(known) == 1 or len(group) == 1:
        return next(iter(known.values()))
    shape = network_shape(group, topology)
    for each in (tuning, shipped.tuning()):
        ladder = nearest(each, what, shape)
        name = None if ladder is None else fastest(ladder, size_bytes, tuple(known))
        if name is not None:
            return known[name]
    raise sources.refusal(
        f"nothing was measured of {what} over {len(group)} ranks\nhint: `hocket tune`, or name an algorithm"
    )


def fitting(what: str, group: Sequence[int], topology: Topology) -> Fitting:
    """The algorithms for a collective of a group, by their names in tunings, simplest first, with their numbers."""
    hosts, racks = ([names[rank] for rank in group] for names in (topology.hosts, topology.racks))
    return listed(what, hosts, racks)


def numbers(
    algorithm: str,
    group: Sequence[int],
    topology: Topology,
    *,
    sizes: Sequence[int] | None,
    base: int,
    servers: int | None,
) -> tuple[int, ...]:
    """Numbers of an algorithm that the policy names."""
    match algorithm:
        case "two_level":
            found = (
                tuple(sizes)
                if sizes is not None
                else blocks(group, topology.hosts) or blocks(group, topology.racks)
            )
            if found is None:
                raise sources.refusal(
                    "two_level needs ranks of a host next to one another in the group\n"
                    "hint: order the group by host, or give `sizes`"
                )
            return found
        case "in_place" if len({topology.hosts[rank] for rank in group}) > 1:
            raise sources.refusal('in_place is for ranks of one host\nhint: algorithm="auto"')
        case "bcube":
            return (base,)
        case "parameter_server":
            return (len(group) if servers is None else servers,)
        case "collect_spread":
            return (1,) * 2 * len(group) if sizes is None else tuple(sizes)
        case "trees":
            members = range(len(group))
            stars = (number for root in members for number in (1, *(root,) * 2 * len(group)))
            return tuple(stars if sizes is None else sizes)
    return ()


def blocks(group: Sequence[int], names: Sequence[str]) -> tuple[int, ...] | None:
    """Lengths of the runs of equal names in a group; None when a name has several runs."""
    runs: list[tuple[str, int]] = []
    for rank in group:
        if runs and runs[-1][0] == names[rank]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((names[rank], 1))
    if len({name for name, _ in runs}) != len(runs):
        return None
    return tuple(count for _, count in runs)

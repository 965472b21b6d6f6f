"""An order for a launcher: hosts in the order of their ranks, and the number of ranks of each."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.artefacts.names import check_hosts
from hocket.planning.ordering.solve import Ordering


@dataclass(frozen=True)
class Layout:
    """Hosts with their slots; ranks fill the slots of the first host, then of the second.

    Names end up in shells: raises ArtefactError for an invalid name of a host.
    """

    hosts: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        """Check the names."""
        check_hosts((host for host, _ in self.hosts), "order")

    def ranks(self) -> list[tuple[str, int]]:
        """Host of each rank, and the rank's position among the ranks of this host.

        >>> Layout((("b", 2), ("a", 1))).ranks()
        [('b', 0), ('b', 1), ('a', 0)]
        """
        return [(host, local) for host, slots in self.hosts for local in range(slots)]


def layout_of(ordering: Ordering) -> Layout:
    """The hosts of an ordering."""
    return Layout(tuple(zip(ordering.hosts, ordering.slots, strict=True)))

"""Networks that a file describes link by link: ranks, and whatever switches its links lead to.

Routes are the ones with the fewest links; where ranks pass bytes on, those through the fewest ranks; of several the widest. Each
rank is a host of its own. This module knows nothing of programs or time.
"""

from __future__ import annotations

import heapq
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts.cluster import Directions, both
from hocket.artefacts.decoding import MALFORMED, bytes_of, toml_of, why
from hocket.artefacts.network import LATENCY_S, Link, Network
from hocket.artefacts.network import Path as Route
from hocket.errors import ArtefactError, UsageError

RANKS_MAX = 1 << 12
"""Limit of ranks: routes are found pair by pair."""


class Cable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Link between two ranks or switches. `bit_per_s`: payload, of both directions, or there and back."""

    between: tuple[str, str]
    bit_per_s: Directions


class Wired(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranks by name and links; every other name is a switch. `latency_s`: one way, between any two ranks."""

    ranks: tuple[str, ...]
    links: tuple[Cable, ...]
    latency_s: float = LATENCY_S

    def network(self, world: int | None = None) -> Network:
        """Return the network of the first `world` ranks (None: of all), which the others pass nothing on for.

        Raises UsageError: names or rates make no sense, or ranks cannot reach one another.

        >>> cable = Cable(between=("a", "b"), bit_per_s=(1e9, 2e9))
        >>> Wired(ranks=("a", "b"), links=(cable,)).network().path(1, 0)
        ((1,), 0.0001)
        """
        world = len(self.ranks) if world is None else world
        self._check(world)
        vertices = {name: at for at, name in enumerate(self.ranks)}
        links: list[Link] = []
        leaving: dict[int, list[tuple[int, int]]] = {}
        for cable in self.links:
            ends = [vertices.setdefault(name, len(vertices)) for name in cable.between]
            for side, rate in enumerate(both(cable.bit_per_s)):
                source, destination = ends[side], ends[1 - side]
                names = cable.between if side == 0 else cable.between[::-1]
                if not {source, destination} & set(range(world, len(self.ranks))):
                    leaving.setdefault(source, []).append((destination, len(links)))
                links.append(Link(f"{names[0]} to {names[1]}", rate))

        @cache
        def routes(source: int) -> dict[int, tuple[int, ...]]:
            return _shortest(source, world, links, leaving)

        def path(source: int, destination: int) -> Route:
            found = routes(source).get(destination)
            if found is None:
                raise UsageError(
                    f"no links lead from {self.ranks[source]} to {self.ranks[destination]}: both are ranks of one job"
                )
            return found, self.latency_s

        title = f"{world} ranks and {len(vertices) - len(self.ranks)} switches"
        return Network(hosts=tuple(range(world)), links=tuple(links), path=path, title=title)

    def _check(self, world: int) -> None:
        if not 1 <= world <= len(self.ranks):
            raise UsageError(f"{world} ranks do not fit a network with {len(self.ranks)}")
        if len(self.ranks) > RANKS_MAX:
            raise UsageError(f"a network of {len(self.ranks):,} ranks: it may have {RANKS_MAX:,}")
        if len(set(self.ranks)) < len(self.ranks):
            twice = next(name for name in self.ranks if self.ranks.count(name) > 1)
            raise UsageError(f"rank {twice} is named twice")
        for cable in self.links:
            there, back = cable.between
            if there == back:
                raise UsageError(f"a link leads from {there} to itself")
            if not all(0 < rate < float("inf") for rate in both(cable.bit_per_s)):
                raise UsageError(
                    f"the link between {there} and {back} has a rate of {cable.bit_per_s} bit/s: it must be above 0 and finite"
                )
        if not 0 < self.latency_s < float("inf"):
            raise UsageError(f"a latency of {self.latency_s} s: it must be above 0 and finite")


def read(path: Path) -> Wired:
    """Return the network in a TOML file. Raises ArtefactError: it cannot be read, or is none."""
    try:
        return typed.of_builtins(toml_of(bytes_of(path)), Wired)
    except OSError as error:
        raise ArtefactError(f"network file {path} cannot be read: {error.strerror}") from None
    except (msgspec.ValidationError, *MALFORMED) as error:
        raise ArtefactError(f"network file {path} is not a network: {why(error)}") from None


def _shortest(
    source: int, ranks: int, links: list[Link], leaving: dict[int, list[tuple[int, int]]]
) -> dict[int, tuple[int, ...]]:
    """Return the links on the way to each vertex, by vertex."""
    found: dict[int, tuple[int, ...]] = {}
    # Ranks on the way, links, the narrowest link's rate, then the first that was given.
    ways: list[tuple[int, int, float, tuple[int, ...], int]] = [(0, 0, -float("inf"), (), source)]
    while ways:
        through, count, narrowest, way, at = heapq.heappop(ways)
        if at in found:
            continue
        found[at] = way
        passed = through + (at < ranks and at != source)
        for destination, link in leaving.get(at, ()):
            if destination not in found:
                width = max(narrowest, -links[link].bit_per_s)
                heapq.heappush(ways, (passed, count + 1, width, (*way, link), destination))
    return found

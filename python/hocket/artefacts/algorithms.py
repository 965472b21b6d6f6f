"""The list of algorithms, for plans, policies, `hocket tune` and `hocket order`.

`crates/algorithms` exports it; it is the only list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hocket import _native
from hocket.errors import UsageError

LIST: tuple[_native.AlgorithmEntry, ...] = tuple(_native.algorithms())
"""Algorithms, simplest first; without libraries."""

BY_NAME = {entry.name: entry for entry in LIST}

RUN: tuple[str, ...] = tuple(entry.name for entry in LIST if entry.does)
"""Algorithms that Hocket executes."""

ALL_REDUCES: tuple[str, ...] = tuple(entry.name for entry in LIST if "all_reduce" in entry.does)
"""Algorithms that a plan's bucket can use."""

ORDERED: tuple[str, ...] = tuple(entry.name for entry in LIST if entry.ordered)
"""Algorithms whose cost depends on the order of the ranks."""

MEASURED: tuple[str, ...] = tuple(name for entry in LIST for name in entry.measured_as)
"""Names in tunings; `two_level` has one for blocks of hosts, and one for blocks of racks."""


class Algorithm(NamedTuple):
    """Algorithm of the list, with the numbers that it takes: group sizes of `two_level`, the base of `bcube`."""

    name: str
    numbers: tuple[int, ...] = ()


Fitting = dict[str, Algorithm]
"""Algorithms with their numbers, by their name in tunings."""


def fitting(collective: str, hosts: Sequence[str], racks: Sequence[str]) -> Fitting:
    """Return the algorithms for a collective of a group, simplest first, with their numbers; `hosts`, `racks`: one for each member.

    For `two_level`, members of a host or of a rack must be adjacent. Raises UsageError for an unknown collective.

    >>> list(fitting("all_gather", ["a", "b", "c"], ["r", "r", "r"]))
    ['ring', 'direct']
    """
    found = _native.fitting_algorithms(collective, _numbered(hosts), _numbered(racks))
    return {measured_as: Algorithm(name, tuple(numbers)) for measured_as, name, numbers in found}


def _numbered(names: Sequence[str]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]


def misfit(name: str, numbers: Sequence[int], members: int) -> str | None:
    """Return why an all-reduce among so many members cannot be by an algorithm with these numbers; None: it can.

    >>> misfit("trees", [1, 0, 1, 0, 0], 2)
    'trees for 2 ranks: parents must lead every member to the root, which is its own'
    """
    try:
        _native.count_messages(name, list(numbers), "all_reduce", members=members, elements=1, root=0)
    except UsageError as error:
        return str(error)
    return None

"""The list of algorithms: what plans, policies, `hocket tune` and `hocket order` know of them.

It comes from `crates/algorithms`, and is the only one.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket import _native

LIST: tuple[_native.AlgorithmEntry, ...] = tuple(_native.algorithms())
"""Simplest first; libraries are not among them."""

BY_NAME = {entry.name: entry for entry in LIST}

RUN: tuple[str, ...] = tuple(entry.name for entry in LIST if entry.does)
"""Those that Hocket runs."""

ALL_REDUCES: tuple[str, ...] = tuple(entry.name for entry in LIST if "all_reduce" in entry.does)
"""Those that a bucket of a plan can take."""

ORDERED: tuple[str, ...] = tuple(entry.name for entry in LIST if entry.ordered)
"""Those whose cost depends on the order of the ranks."""

MEASURED: tuple[str, ...] = tuple(name for entry in LIST for name in entry.measured_as)
"""Names in tunings; `two_level` has one over the blocks of hosts, and one over those of racks."""

Fitting = dict[str, tuple[str, tuple[int, ...]]]
"""Algorithm and its numbers, by the name that tunings have for both."""


def fitting(collective: str, hosts: Sequence[str], racks: Sequence[str]) -> Fitting:
    """What can do a collective of a group, simplest first, with its numbers; `hosts`, `racks`: of each member.

    Members of a host or of a rack must be next to one another for `two_level`. Raises UsageError for an unknown collective.

    >>> list(fitting("all_gather", ["a", "b", "c"], ["r", "r", "r"]))
    ['ring', 'direct']
    """
    found = _native.fitting_algorithms(collective, _numbered(hosts), _numbered(racks))
    return {measured_as: (name, tuple(numbers)) for measured_as, name, numbers in found}


def _numbered(names: Sequence[str]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]

"""Measured times of algorithms, by collective, network and size: the input for choosing algorithms."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from hocket.artefacts import numbers
from hocket.artefacts.numbers import BitPerS, Positive

Seconds = Annotated[float, Meta(gt=0, le=1e9)]
Count = Positive

Runner = Literal["engine", "thread", "thread_registered"]
"""Executor of a collective: the engine, as a program; or the calling thread, for the ranks of one host alone (`crates/host`), in
any memory or in registered memory."""


class NetworkShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The properties of a group of ranks that determine an algorithm's speed.

    `bit_per_s` and `latency_s` (one way) are those of the slowest pair of hosts; None for one host. `rack_slowdown`:
    the rate of the slowest pair within a rack, over that of the slowest pair of two racks; 1 where racks make no
    difference.
    """

    ranks: Count
    hosts: Count = 1
    racks: Count = 1
    bit_per_s: BitPerS | None = None
    latency_s: numbers.Seconds | None = None
    rack_slowdown: Annotated[float, Meta(ge=1, le=1e9)] = 1.0


class Timing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One algorithm at one size: seconds of a call, the slowest rank's; median and spread over `rounds`.

    `algorithm` is a name of `hocket.artefacts.algorithms.MEASURED`. An algorithm that was far behind has fewer rounds than the
    others.
    """

    algorithm: str
    median_s: Seconds
    p10_s: Seconds
    p90_s: Seconds
    rounds: Count


class Point(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All algorithms at one size of a rank's buffer."""

    size_bytes: Count
    timings: Annotated[tuple[Timing, ...], Meta(min_length=1)]


class Ladder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One collective of one group, size by size, ascending."""

    collective: str
    runner: Runner = "engine"
    shape: NetworkShape
    points: Annotated[tuple[Point, ...], Meta(min_length=1)]


class Tuning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All measurements. `machine` is for people: the machine and the method."""

    version: int = 1
    measured_at: str
    machine: str
    ladders: tuple[Ladder, ...] = ()

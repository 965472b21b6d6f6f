"""Result of every fidelity for a job's steps: plain data."""

from __future__ import annotations

from msgspec import Struct


class BucketSpan(Struct, frozen=True, kw_only=True):
    """Span of one bucket in the first step: the first rank's launch and the last rank's end, seconds since the step began."""

    bucket: int
    elements: int
    launched_s: float
    done_s: float


class LinkLoad(Struct, frozen=True, kw_only=True):
    """Load of a link: its bytes, and the share of time at its full rate."""

    link: str
    bit_per_s: float
    bytes: float
    busy: float


class Outcome(Struct, frozen=True, kw_only=True):
    """Steps of a plan on a network. `step_s` is the mean step of the slowest rank; links busiest first."""

    fidelity: str
    network: str
    world: int
    steps: int
    step_s: float
    exposed_s: float
    buckets: tuple[BucketSpan, ...] = ()
    loads: tuple[LinkLoad, ...] = ()
    messages: int = 0
    events: int = 0

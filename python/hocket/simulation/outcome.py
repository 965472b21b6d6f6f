"""What every fidelity gives of a job's steps: plain data, the same whoever made it."""

from __future__ import annotations

from msgspec import Struct


class BucketSpan(Struct, frozen=True, kw_only=True):
    """One bucket of the first step: when the first rank launched it and when the last rank had it, seconds since the step began."""

    bucket: int
    elements: int
    launched_s: float
    done_s: float


class LinkLoad(Struct, frozen=True, kw_only=True):
    """What crossed a link, and which share of the time that is at its full rate."""

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

"""Calls that all ranks of a group make alike, as data: what a dump compares between ranks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["scheduled", "started", "completed"]
"""`scheduled`: it was made, and an earlier one is under way, or not all of its data is there. `started`: it waits for others."""

Tensor = tuple[tuple[int, ...], str]
"""Sizes and data type."""

Frame = tuple[str, str, int]
"""Function, file and line."""


class Group(Struct, frozen=True, kw_only=True):
    """Group of ranks, by their numbers in the job, in the group's order. `text`: for people."""

    name: str
    text: str
    ranks: tuple[int, ...]


class Call(Struct, frozen=True, kw_only=True):
    """Collective of one rank.

    Attributes:
        record: number in the rank's order of calls.
        group: name of its group.
        number: in the group's order, from 1: the same on all ranks.
        what: as PyTorch calls it: `all_reduce`.
        created_ns, started_ns, ended_ns: `time.monotonic_ns()` then.
        frames: of the caller, innermost first.
    """

    record: int
    group: str
    number: int
    what: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    state: State
    created_ns: int
    started_ns: int | None
    ended_ns: int | None
    timeout_s: float
    frames: tuple[Frame, ...]


class Calls(Struct, frozen=True, kw_only=True):
    """Groups of a process, and its latest calls in them, in the order of their records."""

    groups: tuple[Group, ...]
    calls: tuple[Call, ...]

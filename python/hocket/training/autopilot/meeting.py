"""What ranks tell one another at a meeting of their autopilots."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hocket.training.autopilot.stopwatch import Times
from hocket.training.autopilot.traffic import Sample

What = Literal["wait", "look", "prepare", "begin"]


class Order(Struct, frozen=True, kw_only=True):
    """What all ranks do now, and when they meet again.

    `key`: of the plan to prepare or to begin; `profile`: times are taken anew.
    """

    what: What
    interval_s: float
    key: str = ""
    profile: bool = False


class Report(Struct, frozen=True, kw_only=True):
    """One rank's.

    Attributes:
        epoch: in force in its last step.
        settled: it still is, and no other is on its way.
        prepared: key of the plan whose programs are there.
        refused: key of one whose programs cannot be made, and why.
        times: once per profile.
        sent: since the meeting before, where it tells something.
        retreated: its training went wrong with merged or late gradients, and goes on without.
        order: rank 0's, after the meeting before.
    """

    epoch: int
    settled: bool
    prepared: str = ""
    refused: tuple[str, str] | None = None
    times: Times | None = None
    sent: tuple[Sample, ...] = ()
    retreated: bool = False
    order: Order | None = None

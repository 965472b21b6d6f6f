"""Messages of ranks at a meeting of their autopilots."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hocket.training.autopilot.stopwatch import Times
from hocket.training.autopilot.traffic import Sample

What = Literal["wait", "look", "prepare", "begin"]


class Order(Struct, frozen=True, kw_only=True):
    """Order to all ranks: an action now, and the time until the next meeting.

    `key`: that of the plan to prepare or to begin; `profile`: times are taken anew; `search_s`: seconds that are left for a search,
    for whichever rank goes on with it when rank 0 is lost.
    """

    what: What
    interval_s: float
    key: str = ""
    profile: bool = False
    search_s: float | None = None


class Report(Struct, frozen=True, kw_only=True):
    """Report of one rank.

    Attributes:
        epoch: epoch in force in its last step.
        settled: this epoch still is in force, and no other is on its way.
        prepared: key of the plan whose programs are there.
        refused: key of a plan whose programs cannot be made, and the reason.
        times: once per profile.
        sent: samples since the meeting before that tell something.
        retreated: training went wrong with merged or late gradients, and goes on without them.
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

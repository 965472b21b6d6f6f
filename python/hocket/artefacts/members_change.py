"""A change of an elastic job's members while it trained: a line of a trace's `members.jsonl`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class MembersChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranks were `lost`, or have `left` in order, or have `joined`.

    Attributes:
        who: those ranks, for people.
        epoch: of members, that begins.
        ranks: how many there are in it.
        step: steps that stand without a loss; None where nobody was lost.
        noticed: what the coordinator noticed first; None where nobody was lost.
        decided_s: from then until it was decided who goes on.
        stopped_s: how long the first rank of the epoch stood still; None: another change followed before it trained again.
        again: whether the communication of a step was done again.
    """

    what: Literal["lost", "left", "joined"]
    who: str
    epoch: int
    ranks: int
    step: int | None = None
    noticed: str | None = None
    decided_s: float | None = None
    stopped_s: float | None = None
    again: bool = False

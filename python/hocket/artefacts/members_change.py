"""A change of an elastic job's members while it trained: a line of a trace's `members.jsonl`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hocket.artefacts.goodput import Goodput


class MembersChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranks were `lost`, or have `left` in order, or have `joined`; or the job has `ended` with them.

    Attributes:
        who: those ranks, for people.
        epoch: epoch of members that begins.
        ranks: number of ranks in that epoch.
        step: number of steps that a loss did not undo; None if no rank was lost, or another change followed before ranks
            trained again.
        noticed: first sign of a loss that the coordinator noticed; None if no rank was lost.
        decided_s: seconds from then to the decision which ranks go on.
        stopped_s: seconds for which the first rank of the epoch stood still; None: another change followed before it trained again.
        again: True if the communication of a step was done again.
        goodput: that of the job until it trained again, or until it ended; None: it is not known.
    """

    what: Literal["lost", "left", "joined", "ended"]
    who: str
    epoch: int
    ranks: int
    step: int | None = None
    noticed: str | None = None
    decided_s: float | None = None
    stopped_s: float | None = None
    again: bool = False
    goodput: Goodput | None = None

"""What people are told of the changes of an elastic job's members."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hocket.launch.member_limits import Limits

log = logging.getLogger("hocket.coordinator")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The job goes on no more: why, and which members it lost at last."""

    why: str
    lost: tuple[int, ...]


class ChangeLog:
    """A line for each change, with how long it took to decide."""

    def __init__(self) -> None:
        """Nothing changes."""
        self._since_ns: int | None = None

    def begin(self) -> None:
        """A member's connection has ended, or it has reported; more may follow."""
        if self._since_ns is None:
            self._since_ns = time.monotonic_ns()

    def forget(self) -> None:
        """Members meet anew."""
        self._since_ns = None

    def lost(self, epoch: int, names: str, here: int, of: int, step: int) -> None:
        """Decided: `here` of `of` members go on without those."""
        after_ms = 0.0 if self._since_ns is None else (time.monotonic_ns() - self._since_ns) * 1e-6
        log.warning(
            "epoch %d without %s: %d of %d ranks go on, from step %d; decided %.0f ms after the loss was noticed",
            epoch,
            names,
            here,
            of,
            step,
            after_ms,
        )

    def left(self, epoch: int, names: str, here: int, of: int) -> None:
        """Those have left in order."""
        log.warning("epoch %d after %s has left: %d of %d ranks go on", epoch, names, here, of)

    def expected(self, names: Sequence[str]) -> None:
        """Those wait to join."""
        which = "it" if len(names) == 1 else "them"
        log.warning("%s: the others meet %s at the end of a step", ", ".join(names), which)

    def joined(self, epoch: int, names: str, here: int) -> None:
        """All have met."""
        log.warning("epoch %d with %s: %d ranks go on", epoch, names or "the others", here)

    def full(self, name: str, ranks: int) -> None:
        """It waits until there is room."""
        log.warning("%s waits: the job has %d ranks, as many as it may", name, ranks)

    def dropped(self, name: str, why: str) -> None:
        """It was lost in a meeting."""
        log.warning("%s was lost before all had met it: %s; the others meet without it", name, why)

    def waits(self, left: int, lost: str, limits: Limits) -> None:
        """So many are left, which is too few, without those."""
        log.warning(
            "%d of at least %d ranks are left, without %s: they wait %g s for others to join\n"
            "hint: `hocket join`, as many as are missing",
            left,
            limits.members_min,
            lost or "the others",
            limits.rejoin_patience_s,
        )

    def back(self, name: str) -> None:
        """It has found this coordinator."""
        log.warning("%s is back", name)

    def resumed(self, epoch: int, rank: int, took_s: float, *, again: bool) -> None:
        """That rank trains again."""
        work = "one step's communication was done again" if again else "nothing was done again"
        log.warning(
            "epoch %d: training goes on, %.0f ms after rank %d stopped; %s", epoch, took_s * 1e3, rank, work
        )

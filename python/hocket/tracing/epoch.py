"""When an epoch begins: a state machine without I/O, the same on every rank.

Epochs reach ranks at different moments. In each iteration every rank votes with the newest epoch that it knows; the smallest vote
comes back to all with that iteration's gradients. When it is newer than the current epoch, all ranks know that all know: they
begin it at the same iteration, with no message of its own and nobody waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.errors import Error
from hocket.tracing.observed import Snapshot
from hocket.tracing.policy import Value


@dataclass(frozen=True)
class Epoch:
    """What is agreed from its beginning on; `snapshot` are the statistics that handlers see."""

    number: int
    agreed: Mapping[str, Value] = field(default_factory=dict)
    snapshot: Snapshot = ()


class Epochs:
    """One rank's knowledge. `learn` may be called at any time; `vote` and `decide` once each per iteration, in turn."""

    def __init__(self, first: Epoch) -> None:
        """`first` is in force."""
        self.current = first
        self._next: Epoch | None = None

    @property
    def settled(self) -> bool:
        """Whether no epoch waits to begin."""
        return self._next is None

    def learn(self, epoch: Epoch) -> None:
        """An epoch that will begin once all ranks know it; each follows the one before."""
        if self._next is not None or epoch.number != self.current.number + 1:
            raise Error(f"epoch {epoch.number} cannot follow epoch {self.current.number} now")
        self._next = epoch

    def vote(self) -> int:
        """The newest epoch that this rank knows."""
        return self.current.number if self._next is None else self._next.number

    def decide(self, smallest_vote: int) -> Epoch | None:
        """The epoch that begins now, if one does."""
        if smallest_vote == self.current.number:
            return None
        if self._next is None or smallest_vote != self._next.number:
            raise Error(f"ranks vote for epoch {smallest_vote}, this one is in epoch {self.current.number}")
        self.current, self._next = self._next, None
        return self.current

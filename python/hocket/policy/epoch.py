"""Agreement on the beginning of epochs: a state machine without I/O, the same on every rank.

A new epoch reaches ranks at different moments. In each iteration every rank votes with the newest epoch that it knows,
and the smallest vote returns to all ranks with that iteration's gradients. If it is newer than the current epoch, all ranks know
that all ranks know this epoch. They begin it at the same iteration, without an extra message and without waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.errors import Error
from hocket.policy.observed import Snapshot
from hocket.policy.policy import Value


@dataclass(frozen=True)
class Epoch:
    """Agreed state from the beginning of the epoch on.

    `snapshot` has the statistics that handlers see. `backward` has the gradients in the order in which backward produced them; it
    is empty if the order was not observed, and then means the reverse of their registration.
    """

    number: int
    agreed: Mapping[str, Value] = field(default_factory=dict)
    snapshot: Snapshot = ()
    backward: tuple[str, ...] = ()

    def after(self, agreed: Mapping[str, Value], snapshot: Snapshot = ()) -> Epoch:
        """Return the next epoch, with other agreed values; the observed order of backward stays."""
        return Epoch(self.number + 1, agreed, snapshot, self.backward)

    def seen(self, backward: tuple[str, ...]) -> Epoch:
        """Return the next epoch, with the observed order of backward."""
        return Epoch(self.number + 1, self.agreed, self.snapshot, backward)


class Epochs:
    """One rank's knowledge of epochs.

    `learn` may be called at any time; `vote` and `decide` once each per iteration, in turn.
    """

    def __init__(self, first: Epoch, *, observes: bool = False) -> None:
        """Begin in the epoch `first`; `observes`: the order of backward is still to be observed, until `observed`."""
        self.current = first
        self.observes = observes
        self._next: Epoch | None = None

    @property
    def settled(self) -> bool:
        """True if no epoch is pending and none may still follow from the observation; only then are others learned."""
        return self._next is None and not self.observes

    def observed(self, backward: tuple[str, ...] | None) -> None:
        """Note backward's order, the same on all ranks; None if it is as expected."""
        if backward is not None:
            self.learn(self.current.seen(backward))
        self.observes = False

    def learn(self, epoch: Epoch) -> None:
        """Note an epoch that begins once all ranks know it; each follows the previous one."""
        if self._next is not None or epoch.number != self.current.number + 1:
            raise Error(f"epoch {epoch.number} cannot follow epoch {self.current.number} now")
        self._next = epoch

    def vote(self) -> int:
        """Newest epoch that this rank knows."""
        return self.current.number if self._next is None else self._next.number

    def decide(self, smallest_vote: int) -> Epoch | None:
        """Return the epoch that begins now, if any."""
        if smallest_vote == self.current.number:
            return None
        if self._next is None or smallest_vote != self._next.number:
            raise Error(f"ranks vote for epoch {smallest_vote}, this one is in epoch {self.current.number}")
        self.current, self._next = self._next, None
        return self.current

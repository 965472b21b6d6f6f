"""When an epoch begins: a state machine without I/O, the same on every rank.

Epochs reach ranks at different moments. In each iteration every rank votes with the newest epoch that it knows; the smallest vote
comes back to all with that iteration's gradients. When it is newer than the current epoch, all ranks know that all know: they
begin it at the same iteration, with no message of its own and nobody waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.errors import Error
from hocket.policy.observed import Snapshot
from hocket.policy.policy import Value


@dataclass(frozen=True)
class Epoch:
    """What is agreed from its beginning on.

    `snapshot` are the statistics that handlers see; `backward` the gradients in the order in which backward was seen to make
    them, empty where nobody looked: then the reverse of their registration.
    """

    number: int
    agreed: Mapping[str, Value] = field(default_factory=dict)
    snapshot: Snapshot = ()
    backward: tuple[str, ...] = ()

    def after(self, agreed: Mapping[str, Value], snapshot: Snapshot = ()) -> Epoch:
        """The next one, with other agreed values; what was seen of backward stays."""
        return Epoch(self.number + 1, agreed, snapshot, self.backward)

    def seen(self, backward: tuple[str, ...]) -> Epoch:
        """The next one, which knows backward's order."""
        return Epoch(self.number + 1, self.agreed, self.snapshot, backward)


class Epochs:
    """One rank's knowledge. `learn` may be called at any time; `vote` and `decide` once each per iteration, in turn."""

    def __init__(self, first: Epoch, *, observes: bool = False) -> None:
        """`first` is in force; `observes`: until `observed`, backward's order is still to be seen."""
        self.current = first
        self.observes = observes
        self._next: Epoch | None = None

    @property
    def settled(self) -> bool:
        """Whether no epoch waits to begin or may still come of what is observed: others are learned only then."""
        return self._next is None and not self.observes

    def observed(self, backward: tuple[str, ...] | None) -> None:
        """Backward's order, the same on all ranks; None: it is as was thought."""
        if backward is not None:
            self.learn(self.current.seen(backward))
        self.observes = False

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

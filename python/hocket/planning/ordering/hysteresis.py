"""Decides when a change to a better order pays: a state machine without clock or I/O, the same on every rank.

A change interrupts training briefly and disturbs measurements. An order must therefore promise much, for several
samples in a row, and after each change the next one has to wait twice as long: in *n* samples there are at most about
log2(*n*) changes, whatever the network does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Caution:
    """The parameters of hysteresis.

    `gain`: relative saving that a new order must bring; `samples`: how often in a row; `rest`: samples after the first
    change without proposals, twice as many after each further one.
    """

    gain: float = 0.2
    samples: int = 3
    rest: int = 10


class Hysteresis:
    """One job's state. `changes` counts proposals.

    >>> watch = Hysteresis(Caution(samples=2, rest=3))
    >>> [watch.propose(1.0, 0.5) for _ in range(6)]
    [False, True, False, False, False, False]
    """

    def __init__(self, caution: Caution | None = None) -> None:
        """Without samples."""
        self._caution = caution or Caution()
        self._in_a_row = 0
        self._resting = 0
        self.changes = 0

    def propose(self, current_s: float, best_s: float) -> bool:
        """Add a sample: a call's cost in the current order, and in the best known one. Whether to change now."""
        if self._resting:
            self._resting -= 1
            return False
        if not best_s < current_s * (1 - self._caution.gain):
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        if self._in_a_row < self._caution.samples:
            return False
        self._in_a_row = 0
        self._resting = self._caution.rest << self.changes
        self.changes += 1
        return True

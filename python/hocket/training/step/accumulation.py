"""Decision whether a backward communicates or only accumulates gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hocket.training.step.updates import Updates
from hocket.training.step.weighted import Weighted


class Accumulation:
    """Requests of one script to accumulate.

    Attributes:
        weighted: weights of gradients by the batches that are accumulated; None: they count as they are.
        inside: gradients that ranks of a site average in each backward, if sites step alone.
    """

    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self.weighted: Weighted | None = None
        self.inside: Updates | None = None
        self._accumulates = False
        """True within `no_sync`."""
        self._mutes = False
        """True if the backward of the last forward was not to communicate."""
        self._owed = 0
        """Forwards outside of `no_sync` since a backward last communicated."""

    def decide(self) -> None:
        """Decide whether a backward that begins now communicates."""
        for each in (self._updates, self.inside):
            if each is not None:
                each.readiness.enabled = self._owed > 0 or not (self._accumulates or self._mutes)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients of forward and backward passes inside; the next backward outside sends them."""
        before, self._accumulates = self._accumulates, True
        self.decide()
        try:
            yield
        finally:
            self._accumulates = before
            self.decide()

    def forward_begins(self, *, syncs: bool) -> None:
        """Note a forward with gradients; `syncs`: the script lets its backward communicate. As with DistributedDataParallel, that
        backward then communicates even if it is within `no_sync` and only its forward was not: otherwise ranks would step apart."""
        self._mutes = not syncs
        self._owed = self._owed + 1 if syncs and not self._accumulates else 0
        self.decide()

    def backward_ended(self) -> None:
        """Note that a backward has communicated."""
        self._owed = max(self._owed - 1, 0)
        self.decide()

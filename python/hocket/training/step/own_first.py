"""Own gradients first: while a mean is on its way, a rank goes on with its own gradients.

The *anchor*, parameters and optimizer state that are the same bits on all ranks, takes k steps with the mean when a turn of k
iterations is due. A rank trains at *working* parameters: the anchor, stepped with the rank's own gradients of the turns that the
anchor lacks. This is delayed gradient averaging (Zhu et al., NeurIPS 2021) for turns of several iterations.

`OwnFirst` says which turn the anchor takes with the next step, and which it lacks; the framework's `Anchor` steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hocket._native import LiveTurn
from hocket.planning.walk import Rule, rate_factor
from hocket.training.memory.anchor import Arrival, Pending
from hocket.training.memory.buckets import LoadedBucket


class OwnFirst:
    """Turns of one session's anchor."""

    def __init__(self) -> None:
        self._applied: dict[int, int] = {}
        """By arena, number of iterations in the anchor."""
        self._unmade: dict[tuple[int, int], frozenset[str]] = {}
        """By arena and slot of a turn, parameters to which no iteration gave a gradient on this rank."""

    def begin(self, applied: Sequence[int]) -> None:
        """Begin with so many iterations in the anchor, by arena."""
        self._applied = dict(enumerate(applied))
        self._unmade = {}

    def made(self, unmade: Sequence[str], turns: Sequence[LiveTurn]) -> None:
        """Note that an iteration adds to these turns, and which parameters it gave no gradient on this rank."""
        never = frozenset(unmade)
        for turn in turns:
            place = turn.arena, turn.slot
            self._unmade[place] = self._unmade[place] & never if turn.iterations else never

    def arrival(
        self,
        turn: LiveTurn,
        bucket: LoadedBucket,
        mean: LoadedBucket,
        *,
        unmade: Collection[str],
        rate: Rule,
        left: Sequence[LiveTurn],
    ) -> Arrival:
        """Return what a turn that is due brings. `bucket`: own sums, by slot; `left`: turns of the arena after it."""
        arena, first = turn.arena, self._applied[turn.arena]
        end = self._applied[arena] = first + turn.iterations
        self._unmade.pop((arena, turn.slot), None)
        pending = []
        for each in left:
            if each.iterations:
                iterations = range(end, end + each.iterations)
                own = self._unmade.get((arena, each.slot), frozenset())
                pending.append(Pending(bucket.slots[each.slot], iterations, own))
                end = iterations.stop
        factor = rate_factor(rate, turn.iterations) / turn.iterations
        return Arrival(
            mean,
            bucket.slots[turn.slot],
            range(first, first + turn.iterations),
            unmade,
            factor,
            tuple(pending),
        )

    def lacks(self, iteration: int) -> range:
        """Return the iterations of which the anchor lacks gradients of some parameters, after this last one."""
        return range(min(self._applied.values(), default=0), iteration + 1)

    def saved(self) -> tuple[tuple[int, int, tuple[str, ...]], ...]:
        """Return arena, slot and parameters without own gradients of each turn that the anchor lacks."""
        return tuple((*place, tuple(sorted(names))) for place, names in self._unmade.items())

    def restore(self, saved: Sequence[tuple[int, int, Sequence[str]]]) -> None:
        """Restore what was saved."""
        self._unmade = {(arena, slot): frozenset(names) for arena, slot, names in saved}

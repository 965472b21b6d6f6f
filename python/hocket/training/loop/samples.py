"""Samples of a data set that this rank draws, so that each is drawn once in a pass over the data, whoever is lost or joins.

The order is that of `crates/protocol/src/sampler.rs`, which the simulation of elastic training runs, too. All ranks compute all
ranks' draws from the same numbers and exchange nothing. A rank's draw counts when the next batch is asked for, or, where gradients
of several batches make one step, after the last of these. If a rank was lost until then, its draw goes back, and is drawn again at
the end of the same pass.

Batches may be prepared before they are asked for. `upcoming` yields their samples, as long as no rank is lost or joins; then it
begins again, from what was asked for. So prepared batches are thrown away, and no samples are lost with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from hocket import _native

Dealt = Callable[[Sequence[int]], Mapping[int, int]]
"""Rule for the size of each member's batch, by the members that train."""


class Place(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Place of a job in its data. It is the same on all ranks, and does not depend on their number.

    Attributes:
        seed: seed of the order; None: the order of the data set.
        samples: size of the data set.
        data_epoch: number of the pass, from zero.
        at: positions of the order before it were drawn.
        returned: positions that were drawn by ranks that were lost.
        open: a loop is in the middle of the pass.
    """

    seed: int | None
    samples: int
    data_epoch: int = 0
    at: int = 0
    returned: tuple[int, ...] = ()
    open: bool = False


class Samples:
    """Part of one data set that one rank draws, pass after pass.

    Attributes:
        seed, count: seed of the order, and size of the data set.
        me: this rank's member.
        data_epoch: the pass of the loop that is under way, or was last.
        stale: ranks have changed since upcoming samples were asked for.
        trained: samples of all ranks in steps that stand, since this rank began.
        dealt: rule for sizes of batches; None: all members have the same.
    """

    def __init__(self, place: Place, *, members: Sequence[int], me: int) -> None:
        """Begin at a place. `members`: of the job, by rank; `me`: this one. UsageError: there is no such place."""
        self._counted = _native.Sampler(
            place.seed or 0,
            place.samples,
            data_epoch=place.data_epoch,
            at=place.at,
            returned=place.returned,
        )
        self._members, self.me = list(members), me
        self._resumes, self._open = place.open, False
        self._batch, self._drop_last = 1, False
        self.dealt: Dealt | None = None
        self._sizes: Mapping[int, int] = {}
        """Size of each member's batch, where they differ."""
        self._pending: list[_native.Draw] = []
        self._planned: deque[tuple[_native.Draw, dict[int, int]]] = deque()
        """Upcoming draws, each with its number of samples by member."""
        self._in_no_step: list[dict[int, int]] = []
        """Numbers of samples of draws that the loop got since the last step."""
        self.seed, self.count = place.seed, place.samples
        self.data_epoch = place.data_epoch
        self.stale = False
        self.trained = 0

    @property
    def open(self) -> bool:
        """True if a loop is under way, or was when the place was saved and is to go on."""
        return self._open or self._resumes

    def begin(self, batch: int, *, drop_last: bool) -> None:
        """Begin a loop: another pass, or the rest of the pass that the job was in when its place was saved.

        `batch`: samples of each rank in a step, if none are `dealt`. `drop_last`: a step in which some rank had fewer is left out.
        """
        self.count_all()
        if not self._resumes:
            if self._counted.at or self._counted.returned:
                self._counted.begin(self._counted.data_epoch + 1)
            self.data_epoch = self._counted.data_epoch
        self._resumes, self._open = False, True
        self._batch, self._drop_last = batch, drop_last

    def end(self) -> None:
        """End the loop, at the end of the pass or before."""
        self.count_all()
        self._in_no_step.clear()
        self._open = False

    def upcoming(self) -> Iterator[list[int]]:
        """Yield this rank's samples in each batch that follows, as long as ranks stay the same. All ranks have equally many
        batches: where fewer samples are left than there are ranks, some get one that another has."""
        self.stale = False
        self._planned.clear()
        ahead = self._ahead()
        batches = [self._sizes.get(each, self._batch) for each in self._members]
        while self._left(ahead) >= (sum(batches) if self._drop_last else 1):
            draw = ahead.draw(self._members, batches, whole=self._drop_last)
            slices = dict(draw.slices)
            positions = self._mine(slices)
            samples = positions if self.seed is None else ahead.samples(positions)
            ahead.commit(draw, self._members)
            self._planned.append((draw, {member: len(own) for member, own in slices.items()}))
            yield samples

    def hand_out(self, *, held: bool = False) -> Mapping[int, int]:
        """Give the loop the oldest upcoming batch; return its number of samples by member. Earlier batches count, unless they are
        `held`: their gradients are not in a step yet."""
        if not held:
            self.count_all()
            self._in_no_step.clear()
        draw, counts = self._planned.popleft()
        self._pending.append(draw)
        self._in_no_step.append(counts)
        return counts

    def stepped(self) -> None:
        """Note that a step with the loop's batches stands, as the mean of the present members."""
        self.trained += sum(counts.get(each, 0) for counts in self._in_no_step for each in self._members)
        self._in_no_step.clear()

    def count_all(self) -> None:
        """Count the draws of all present members: they are in steps that stand."""
        for draw in self._pending:
            self._counted.commit(draw, self._members)
        self._pending.clear()

    def change(self, members: Sequence[int]) -> None:
        """Set the members that train from now on. Draws of others that do not count yet are drawn again."""
        self._members = list(members)
        self.deal()

    def deal(self) -> None:
        """Ask anew how large each member's batch is, from the next one on."""
        self._sizes = {} if self.dealt is None else self.dealt(self._members)
        self.stale = True

    def steps_left(self, batch: int, *, drop_last: bool) -> int:
        """Return the number of batches of each rank in the loop that is under way or is to go on, or else in the next one."""
        whole = sum(self._sizes.get(each, batch) for each in self._members)
        left = self._left(self._ahead()) if self.open else self.count
        return left // whole if drop_last else -(-left // whole)

    def place(self) -> Place:
        """Return the place at which this rank is once the loop's batches count."""
        ahead = self._ahead()
        # In this case the native sampler is at the beginning of the next pass.
        done = ahead.data_epoch != self.data_epoch
        return Place(
            seed=self.seed,
            samples=self.count,
            data_epoch=self.data_epoch,
            at=self.count if done else ahead.at,
            returned=() if done else tuple(ahead.returned),
            open=self.open,
        )

    def _ahead(self) -> _native.Sampler:
        ahead = self._counted.copy()
        for draw in self._pending:
            ahead.commit(draw, self._members)
        return ahead

    def _left(self, sampler: _native.Sampler) -> int:
        return sampler.left if sampler.data_epoch == self.data_epoch else 0

    def _mine(self, slices: dict[int, list[int]]) -> list[int]:
        if slices[self.me]:
            return slices[self.me]
        others = [each for each in slices.values() if each]
        return others[self._members.index(self.me) % len(others)][:1]

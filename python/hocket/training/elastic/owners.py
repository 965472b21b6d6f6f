"""Owners that update in a job whose ranks may be lost: each part of their buckets has a second owner (`planning.seconds`).

Owners send their seconds the means of their parts, and both step them. So both have the same optimizer state, and none travels in a
step. Where an owner is lost, its second goes on, and gives a copy of the part to the next one.

The step ends for all, or for none, before anybody's optimizer steps (`standing`). Values travel after that, and all ranks wait for
one another behind them. So ranks that are interrupted are at most one such wait apart: some have not stepped yet, and none of these
others is in the next step. Ranks that have stepped *settle* at once in the next epoch, the others when they have stepped: they tell
one another which parts they have, give copies to those that lack them, and send values again where a rank lacks some.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hocket.errors import EpochError, PeerError, UsageError
from hocket.members.membership import Membership
from hocket.planning.seconds import on_one_host
from hocket.training.elastic.absent import without_the_absent
from hocket.training.elastic.moving import share
from hocket.training.elastic.parts import Parts, Programs
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.shards import Range, Shard, State, ranges
from hocket.training.step.owners import Owners
from hocket.training.step.place import Place

if TYPE_CHECKING:
    from hocket.training.elastic.standing import Standing
    from hocket.training.step.step import Step


NAMES_MAX = 3
"""Most parameters that an error names."""

log = logging.getLogger("hocket.elastic")


class MembersOwners(Owners):
    """Owners of one session, and their seconds.

    Attributes:
        awaits_step: a step stands here, and the optimizer has not made it.
        owes: this rank has to settle in this epoch of members when it has stepped.
    """

    _parts: Parts
    _programs: Programs

    def __init__(self, step: Step, place: Place, standing: Standing, membership: Membership) -> None:
        super().__init__(step.framework, place.engine, place.job, step.naming)
        self._standing, self._membership = standing, membership
        self._held: set[int] = set()
        """Parts whose state this rank has: it steps them."""
        self._kept: Sequence[Shard] | None = None
        """State that this rank had when all met anew; None: they have not, or training has begun."""
        self.awaits_step = self.owes = self._lacks = self._between = self._passed_over = False
        self._made = self._reached = 0
        """Exchanges between two steps that this rank has made (`together`), and those that some rank had made when the last epoch
        began."""

    def meet(self, place: Place) -> MembersOwners:
        """Go on among ranks that have met anew."""
        self._engine, self._job = place.engine, place.job
        return self

    # Loading.

    def take(self, buckets: Sequence[LoadedBucket]) -> None:
        self._framework.division.forget()
        self._all = tuple(buckets)
        self._buckets = tuple(bucket for bucket in buckets if bucket.values is not None)
        self.awaits_step = self.owes = self._lacks = self._passed_over = False
        self._made = self._reached = 0
        if not self._buckets:
            return
        plan, everyone = self._standing.plan, self._standing.everyone
        self._parts = Parts(plan, self._buckets)
        together = on_one_host(plan, everyone.hosts)
        if together and everyone.rank == 0:
            log.warning(
                "%d of the %d parts that owners update have both owners on one host: if that is lost, so is their optimizer state, "
                "and the job ends",
                len(together),
                len(self._parts.portions),
            )
        self._held = self._parts.wanted(self._job.rank, range(self._job.world))
        self.hold()
        self._framework.division.divide(
            self._sums, ranges(self._buckets, self._job.rank, self._parts.ranges(self._held))
        )
        if self._kept is not None:
            # Gradients of the last step may still be there.
            for bucket in self._buckets:
                self.reduced(bucket)
        self._load(range(self._job.world))

    def release(self) -> None:
        """Keep this rank's state until all that meet have what they need of it."""
        if self._buckets:
            if self._kept is None:
                self._kept = self._framework.division.shards(undivided=True)
            self._framework.division.forget()

    def met(self) -> None:
        """Note that training begins: all have what they need."""
        self._kept = None

    def follow(self, buckets: Sequence[LoadedBucket], members: Sequence[int]) -> None:
        """Go on with programs over the same memory, for the ranks that are left: `members`, by their ranks before."""
        if not self._buckets:
            return
        self._all = tuple(buckets)
        self._buckets = tuple(bucket for bucket in buckets if bucket.values is not None)
        self._load(members)

    def _load(self, members: Sequence[int]) -> None:
        """Load the programs beside those of buckets, at the same position on all ranks."""
        everyone, parts = self._standing.everyone, self._parts
        self._programs = made = Programs(
            parts,
            members,
            everyone.world,
            engine=self._engine,
            rank=everyone.rank,
            wait=self._wait,
            buckets=list(zip(self._buckets, self._sums, strict=True)),
            device=self._framework.device,
        )
        own = [number for number, each in enumerate(parts.portions) if made.owner(each) == made.ranks.rank]
        counted = {(name, start) for number in own for name, start, _ in parts.pieces[number]}
        self._framework.division.count(lambda name, start: (name, start) in counted)

    # A step.

    def give_means(self) -> None:
        """Give seconds the means of a step whose sums are here, and wait for this rank's."""
        if self._buckets:
            self._programs.give_means()

    def stands(self) -> None:
        """Note that a step stands, which the optimizer makes next."""
        if self._buckets:
            self.awaits_step, self._lacks, self._passed_over = True, True, False

    def stepped(self) -> None:
        """Exchange values when the optimizer has stepped. If a rank is lost meanwhile, the others go on from what they have.

        UsageError: another forward or backward has begun since the backward whose gradients the optimizer has.
        """
        if self._passed_over:
            raise UsageError(
                "the optimizer steps after another forward of the model, and others may have gone on without that step\n"
                "hint: in an elastic job whose owners update, step between a backward and the next forward"
            )
        self.awaits_step = False
        self._go_on_from_values()

    def skipped(self) -> None:
        """Note that a forward or a backward begins: if the optimizer has not stepped, it passes over what stands."""
        if self.awaits_step:
            self.awaits_step, self._lacks, self._passed_over = False, False, True
            if self.owes:
                self._go_on_from_values()

    def _go_on_from_values(self) -> None:
        if self._standing.left:
            return
        with self._between_steps():
            try:
                with without_the_absent(self._membership):
                    if self.owes:
                        self.settle()
                    else:
                        self._exchange_values()
            except EpochError:
                # Beginning the next epoch settles.
                self._standing.go_on(self._standing.step.iteration - 1)

    def together(self, exchange: Callable[[], None]) -> None:
        """Make an exchange of all ranks between two steps. If a rank is lost in it, those that are left make it once more, unless
        one of them knows that all have made it."""
        with self._between_steps():
            while not self._standing.left:
                try:
                    with without_the_absent(self._membership):
                        exchange()
                        self._wait([self._standing.barrier.enter()])
                except EpochError:
                    self._standing.go_on(self._standing.step.iteration - 1)
                    if self._reached <= self._made:
                        continue
                break
        self._made += 1

    @contextlib.contextmanager
    def _between_steps(self) -> Iterator[None]:
        """Exchange within, between two steps. A rank that has finished has made the exchange, and so have all then."""
        self._between = True
        try:
            yield
        except _HasFinishedError:
            return
        finally:
            self._between = False

    def _exchange_values(self) -> None:
        super().stepped()
        self._wait([self._standing.barrier.enter()])
        self._lacks = False

    # A new epoch of members.

    def begin(self, *, between: bool) -> None:
        """Take part in the epoch of members that has begun, `between` two steps or in one. EpochError: it has ended."""
        if not self._buckets:
            return
        self.owes = True
        before, self._between = self._between, between
        try:
            with without_the_absent(self._membership):
                (reached,) = self._programs.counter.told([self._made])
                self._reached = int(reached)
                if not self.awaits_step:
                    self.settle()
        except _HasFinishedError:
            # Whoever makes another step finds that out, and goes on without that rank.
            return
        finally:
            self._between = before

    def hand_over(self, alive: Collection[int]) -> None:
        """Let each part have its owner and its second among those that stay. EpochError: a rank is lost meanwhile."""
        if self._buckets:
            with self._between_steps(), without_the_absent(self._membership):
                self.settle(alive)

    def settle(self, alive: Collection[int] | None = None) -> None:
        """Let each part have its owner and its second among the ranks that stay (`alive`; None: all that are left), and each rank
        all values. All ranks call it, when they have stepped.

        EpochError: the epoch has ended. PeerError: nobody is left who has a part.
        """
        programs, parts, division = self._programs, self._parts, self._framework.division
        members = programs.members
        have, lacks = programs.inventory(self._held, lacks=self._lacks)
        self._check_none_is_lost(have)
        moves = [
            (int(np.argmax(have[:, number])), members.index(rank), number)
            for number, portion in enumerate(parts.portions)
            for rank in portion.holders(members if alive is None else alive)
            if not have[members.index(rank), number]
        ]
        for number, shards in programs.moved(moves, division).items():
            found: dict[str, list[Range]] = {}
            for name, start, stop in parts.pieces[number]:
                found.setdefault(name, []).append(Range(start, stop, True))
            division.add(found)
            division.put(shards)
            self._held.add(number)
        if lacks:
            self._exchange_values()
        else:
            self._wait([self._standing.barrier.enter()])
        self.owes = False

    def _check_none_is_lost(self, have: npt.NDArray[np.bool_]) -> None:
        portions, members = self._parts.portions, self._programs.members
        lost = [number for number in range(len(portions)) if not have[:, number].any()]
        if not lost:
            return
        everyone, first = self._standing.everyone, portions[lost[0]]
        missing = [rank for rank in range(everyone.world) if rank not in members]
        gone = [rank for rank in first.holders(range(everyone.world)) if rank in missing] or missing
        named = " and ".join(f"rank {rank} on {everyone.hosts[rank]}" for rank in gone)
        names = dict.fromkeys(name for number in lost for name, *_ in self._parts.pieces[number])
        some = ", ".join(f"`{name}`" for name in itertools.islice(names, NAMES_MAX))
        raise PeerError(
            f"{named}, which are lost, were the only owners of elements {first.start} to {first.stop} of bucket {first.bucket}, "
            f"parts of {some}: nobody else has the optimizer's state of {len(lost)} of the {len(portions)} parts\n"
            "hint: go on from a checkpoint; each part has two owners, on different hosts where that can be",
            rank=gone[0],
            host=everyone.hosts[gone[0]],
        )

    # State.

    def numbers(self, own: Callable[[], float]) -> list[float]:
        found: list[float] = []

        def exchange() -> None:
            mine = np.zeros(self._standing.everyone.world)
            mine[self._programs.ranks.rank] = own()
            found[:] = self._programs.norms.told(mine)

        self.together(exchange)
        return found

    def whole(self) -> dict[str, State]:
        shards: list[Shard] = []

        def exchange() -> None:
            programs, division = self._programs, self._framework.division
            # Some may not have settled: they do when the optimizer steps.
            have, _ = programs.inventory(self._held, lacks=False)
            self._check_none_is_lost(have)
            moves = [
                (int(np.argmax(have[:, number])), rank, number)
                for number in range(len(self._parts.portions))
                for rank in range(len(programs.members))
                if not have[rank, number]
            ]
            came = programs.moved(moves, division)
            shards[:] = [*division.shards(), *itertools.chain.from_iterable(came.values())]

        self.together(exchange)
        return self._framework.division.whole(shards)

    def share(self) -> None:
        """Give ranks that have met what each is to step, from those that had it before. All of them call it.

        RendezvousError: some do not come. PeerError: nobody has some of it.
        """
        if self._buckets:
            everyone = range(self._job.world)
            steps = [
                ranges(self._buckets, rank, self._parts.ranges(self._parts.wanted(rank, everyone)))
                for rank in everyone
            ]
            share(self._kept or (), steps, self._job, self._programs.ranks, self._framework.division)

    @property
    def _sums(self) -> list[LoadedBucket]:
        """Where the buckets' gradients are summed up."""
        means = self._standing.step.updates.means.of
        return [means[at][0] for at, bucket in enumerate(self._all) if bucket.values is not None]

    # Waits.

    def _wait(self, programs: Iterable[int]) -> None:
        for program in programs:
            self._engine.wait(program, self._job.settings.timeout_s, self._check)

    def _check(self) -> None:
        """Raise an error if a rank no longer takes part, so that waiting is useless."""
        standing = self._standing
        if not self._between:
            standing.check_finished()
        elif not self.owes:
            standing.check_finished(standing.step.iteration - 1)
        elif _some_have_finished(standing, self._membership):
            raise _HasFinishedError


def _some_have_finished(standing: Standing, membership: Membership) -> bool:
    """Return whether a rank's script has ended with the last step."""
    finished = tuple(membership.finished.items())
    return any(rank in standing.members and steps >= standing.step.iteration for rank, steps in finished)


class _HasFinishedError(Exception):
    """A rank has finished, which has made the exchange that is waited for."""

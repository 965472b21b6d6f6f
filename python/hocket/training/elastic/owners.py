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

from hocket.errors import EpochError, PeerError
from hocket.planning.copies import Copy, copies_program
from hocket.planning.seconds import Portion, on_one_host, portions
from hocket.training.elastic.moving import Move, Ranks, Table, covering, packed, unpacked
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import staged
from hocket.training.memory.shards import Held, Range, Shard, State, ranges, within
from hocket.training.step.owners import Owners
from hocket.training.step.place import Place

if TYPE_CHECKING:
    from hocket.training.elastic.standing import Standing
    from hocket.training.step.step import Step


log = logging.getLogger("hocket.elastic")


class MembersOwners(Owners):
    """Owners of one session, and their seconds.

    Attributes:
        awaits_step: a step stands here, and the optimizer has not made it.
        owes: this rank has to settle in this epoch of members when it has stepped.
    """

    def __init__(self, step: Step, place: Place, standing: Standing) -> None:
        super().__init__(step.framework, place.engine, place.job, step.naming)
        self._standing = standing
        self._portions: tuple[Portion, ...] = ()
        self._held: set[int] = set()
        """Portions whose state this rank has: it steps them."""
        self._kept: Sequence[Shard] | None = None
        """State that this rank had when all met anew; None: they have not, or training has begun."""
        self.awaits_step = self.owes = self._lacks = self._between = False
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
        self.awaits_step = self.owes = self._lacks = False
        self._made = self._reached = 0
        if not self._buckets:
            return
        plan, everyone = self._standing.plan, self._standing.everyone
        self._portions = portions(plan)
        together = on_one_host(plan, everyone.hosts)
        if together and everyone.rank == 0:
            log.warning(
                "%d of the %d parts that owners update have both owners on one host: if that is lost, so is their optimizer state, "
                "and the job ends",
                len(together),
                len(self._portions),
            )
        self._held = self._wanted(self._job.rank, range(self._job.world))
        self.hold()
        self._framework.division.divide(
            self._sums, ranges(self._buckets, self._job.rank, self._ranges(self._held))
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
        self._members, world = tuple(members), len(members)
        self._ranks = Ranks(self._engine, self._rank, world, self._wait)
        self._copies = [each for bucket in self._buckets for each in self._loaded_copies(bucket)]
        self._counter = Table(self._ranks, 1, "max", "exchanges of owners")
        self._inventory = Table(self._ranks, world * len(self._portions) + 1, "max", "parts of owners")
        self._sizes = Table(self._ranks, world * len(self._portions), "max", "sizes of parts of owners")
        # As many as there were at first: the same numbers give the same bits then, whoever adds them up.
        self._norms_table = Table(self._ranks, self._standing.everyone.world, "sum", "norms")
        own = [number for number, each in enumerate(self._portions) if self._owner(each) == self._rank]
        counted = {(name, start) for number in own for name, start, _ in self._pieces(number)}
        self._framework.division.count(lambda name, start: (name, start) in counted)

    def _loaded_copies(self, bucket: LoadedBucket) -> Iterable[int]:
        """Load the programs that bring means to seconds, one for each bucket."""
        sums = self._standing.step.updates.means.of[self._all.index(bucket)][0]
        starts = dict(
            zip(
                (each.name for each in bucket.gradients),
                itertools.accumulate((each.elements for each in bucket.gradients), initial=0),
                strict=False,
            )
        )
        elements, world = sum(each.elements for each in bucket.gradients), len(self._members)
        for launch in bucket.launches:
            copies = []
            for portion in self._portions:
                holders = portion.holders(self._members)
                if portion.bucket == launch.number and len(holders) > 1:
                    source, target = map(self._members.index, holders)
                    for name, start, stop in within(launch, portion.start, portion.stop):
                        at = starts[name] + start
                        copies.append(Copy(source, at, target, at, stop - start))
            if not copies:
                continue
            program = copies_program(
                f"bucket.{launch.number}.seconds", copies, lengths=[elements] * world, dtype=bucket.dtype
            )
            bound = {0: (sums.memory, 0)}
            own, numbered = staged(program, bound, self._framework.device)
            yield self._engine.load(
                own,
                numbered(bound),
                priority=launch.compiled.priority,
                label=f"means of bucket {launch.number} for second owners",
            )

    # A step.

    def give_means(self) -> None:
        """Give seconds the means of a step whose sums are here, and wait for this rank's."""
        if self._buckets:
            for program in self._copies:
                self._engine.launch(program)
            self._wait(self._copies)

    def stands(self) -> None:
        """Note that a step stands, which the optimizer makes next."""
        if self._buckets:
            self.awaits_step = self._lacks = True

    def send_values(self) -> None:
        """Exchange values when the optimizer has stepped. If a rank is lost meanwhile, the others go on from what they have."""
        self.awaits_step = False
        if self._standing.left:
            return
        with self._between_steps():
            try:
                with self._standing.patient():
                    if self.owes:
                        self.settle()
                    else:
                        self._exchange_values()
            except EpochError:
                # Beginning the next epoch settles.
                self._standing.go_on(self._standing.step.iteration - 1)

    def skipped(self) -> None:
        """Note that a backward begins, also where the script has made no step since the last one."""
        if self.awaits_step:
            self.awaits_step = self._lacks = False
            if self.owes:
                self.send_values()

    def together(self, exchange: Callable[[], None]) -> None:
        """Make an exchange of all ranks between two steps. If a rank is lost in it, those that are left make it once more, unless
        one of them knows that all have made it."""
        with self._between_steps():
            while not self._standing.left:
                try:
                    with self._standing.patient():
                        exchange()
                        self._wait_for_all()
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
        self.stepped()
        self._wait_for_all()
        self._lacks = False

    # A new epoch of members.

    def begin(self, *, between: bool) -> None:
        """Take part in the epoch of members that has begun, `between` two steps or in one. EpochError: it has ended."""
        if not self._buckets:
            return
        self.owes = True
        before, self._between = self._between, between
        try:
            with self._standing.patient():
                (reached,) = self._counter.told([self._made])
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
            with self._between_steps(), self._standing.patient():
                self.settle(alive)

    def settle(self, alive: Collection[int] | None = None) -> None:
        """Let each part have its owner and its second among the ranks that stay (`alive`; None: all that are left), and each rank
        all values. All ranks call it, when they have stepped.

        EpochError: the epoch has ended. PeerError: nobody is left who has a part.
        """
        members, count = self._members, len(self._portions)
        mine = np.zeros(len(members) * count + 1)
        mine[[self._rank * count + each for each in self._held]] = 1
        mine[-1] = self._lacks
        *flat, lacks = self._inventory.told(mine)
        have = np.array(flat, bool).reshape(len(members), count)
        self._check_none_is_lost(have)
        # Those that stay have a part from whoever has it: its owner, if that has.
        moves = [
            (int(np.argmax(have[:, number])), members.index(rank), number)
            for number, portion in enumerate(self._portions)
            for rank in portion.holders(members if alive is None else alive)
            if not have[members.index(rank), number]
        ]
        for number, shards in self._moved(moves).items():
            self._framework.division.add(
                {
                    name: [Range(start, stop, True) for _, start, stop in own]
                    for name, own in itertools.groupby(self._pieces(number), key=lambda each: each[0])
                }
            )
            self._framework.division.put(shards)
            self._held.add(number)
        if lacks:
            self._exchange_values()
        else:
            self._wait_for_all()
        self.owes = False

    def _check_none_is_lost(self, have: npt.NDArray[np.bool_]) -> None:
        lost = [portion for number, portion in enumerate(self._portions) if not have[:, number].any()]
        if not lost:
            return
        everyone = self._standing.everyone
        gone = [rank for rank in lost[0].holders(range(everyone.world)) if rank not in self._members] or [
            rank for rank in range(everyone.world) if rank not in self._members
        ]
        named = " and ".join(f"rank {rank} on {everyone.hosts[rank]}" for rank in gone)
        names = [
            name
            for number, each in enumerate(self._portions)
            if each in lost
            for name, *_ in self._pieces(number)
        ]
        some = ", ".join(f"`{name}`" for name in list(dict.fromkeys(names))[:3])
        raise PeerError(
            f"{named}, which are lost, were the only owners of elements {lost[0].start} to {lost[0].stop} of bucket "
            f"{lost[0].bucket}, parts of {some}: nobody else has the optimizer's state of {len(lost)} of the "
            f"{len(self._portions)} parts\n"
            "hint: go on from a checkpoint; each part has two owners, which `hocket plan` puts on different hosts where it can",
            rank=gone[0],
            host=everyone.hosts[gone[0]],
        )

    # State.

    def numbers(self, own: Callable[[], float]) -> list[float]:
        found: list[float] = []

        def exchange() -> None:
            mine = np.zeros(self._standing.everyone.world)
            mine[self._rank] = own()
            found[:] = self._norms_table.told(mine)

        self.together(exchange)
        return found

    def whole(self) -> dict[str, State]:
        shards: list[Shard] = []

        def exchange() -> None:
            everyone = range(len(self._members))
            moves = [
                (self._owner(portion), rank, number)
                for number, portion in enumerate(self._portions)
                for rank in everyone
                if self._members[rank] not in portion.holders(self._members)
            ]
            came = self._moved(moves)
            shards[:] = [*self._framework.division.shards(), *itertools.chain.from_iterable(came.values())]

        self.together(exchange)
        return self._framework.division.whole(shards)

    def share(self) -> None:
        """Give ranks that have met what each is to step, from those that had it before. All of them call it.

        RendezvousError: some do not come. PeerError: nobody has some of it.
        """
        if not self._buckets:
            return
        job, division = self._job, self._framework.division
        mine = list(self._kept or ())
        own_bytes = [packed(self._framework, [each]) for each in mine]
        told = [
            [each.name, each.start, each.stop, len(data)] for each, data in zip(mine, own_bytes, strict=True)
        ]
        everyones = job.store.gather("owners/shards", job.rank, job.world, told, job.settings.start_timeout_s)
        sources = {
            (rank, at): (name, start, stop, size)
            for rank, own in enumerate(everyones)
            for at, (name, start, stop, size) in enumerate(own)
        }
        moves = [
            (source, rank, at)
            for rank in range(job.world)
            for source, at in covering(self._steps(rank, sources.values()), sources, rank, job.hosts)
        ]
        others = [move for move in moves if move[0] != move[1]]
        came = self._ranks.sent(others, dict(enumerate(own_bytes)), [sources[a, c][3] for a, _, c in others])
        own = [mine[at] for source, rank, at in moves if source == rank == job.rank]
        division.put([*own, *(each for data in came for each in unpacked(self._framework, data))])

    def _steps(
        self, rank: int, known: Iterable[tuple[str, int, int, int]]
    ) -> dict[str, list[tuple[int, int]]]:
        """Return what a rank steps: parts of parameters that are divided, and all of others whose state is known."""
        held = self._ranges(self._wanted(rank, range(self._job.world)))
        found = {
            name: [(each.start, each.stop) for each in own]
            for name, own in ranges(self._buckets, rank, held).items()
        }
        for name, start, stop, _ in known:
            found.setdefault(name, [(start, stop)])
        return found

    def _moved(self, moves: Sequence[Move]) -> dict[int, list[Shard]]:
        """Move portions: ranks from and to which, and the number of each; return those that have come here."""
        if not moves:
            return {}
        gives = {number for source, _, number in moves if source == self._rank}
        shards = self._framework.division.shards() if gives else ()
        given = {number: packed(self._framework, self._of_portion(number, shards)) for number in gives}
        world, count = len(self._members), len(self._portions)
        mine = np.zeros(world * count)
        for number, data in given.items():
            mine[self._rank * count + number] = len(data)
        sizes = self._sizes.told(mine)
        came = self._ranks.sent(
            moves, given, [int(sizes[source * count + number]) for source, _, number in moves]
        )
        numbers = [number for _, target, number in moves if target == self._rank]
        return {number: unpacked(self._framework, data) for number, data in zip(numbers, came, strict=True)}

    # Parts.

    @property
    def _rank(self) -> int:
        """This rank's among those that are left."""
        return self._members.index(self._standing.everyone.rank)

    @property
    def _sums(self) -> list[LoadedBucket]:
        means = self._standing.step.updates.means.of
        return [means[at][0] for at, bucket in enumerate(self._all) if bucket.values is not None]

    def _wanted(self, rank: int, alive: Sequence[int]) -> set[int]:
        """Return the portions that a rank is to have among these."""
        return {number for number, each in enumerate(self._portions) if rank in each.holders(alive)}

    def _owner(self, portion: Portion) -> int:
        """Return the owner's rank among those that are left."""
        return self._members.index(portion.holders(self._members)[0])

    def _ranges(self, numbers: Collection[int]) -> Held:
        found: dict[int, list[tuple[int, int]]] = {}
        for number in sorted(numbers):
            portion = self._portions[number]
            found.setdefault(portion.bucket, []).append((portion.start, portion.stop))
        return found

    def _pieces(self, number: int) -> list[tuple[str, int, int]]:
        """Return what a portion is of parameters."""
        portion = self._portions[number]
        launch = next(
            each for bucket in self._buckets for each in bucket.launches if each.number == portion.bucket
        )
        return list(within(launch, portion.start, portion.stop))

    def _of_portion(self, number: int, shards: Iterable[Shard]) -> list[Shard]:
        pieces = set(self._pieces(number))
        return [each for each in shards if (each.name, each.start, each.stop) in pieces]

    # Waits.

    def _wait(self, programs: Iterable[int]) -> None:
        for program in programs:
            self._engine.wait(program, self._job.settings.timeout_s, self._check)

    def _wait_for_all(self) -> None:
        self._wait([self._standing.enter_barrier()])

    def _check(self) -> None:
        """Raise an error if a rank no longer takes part, so that waiting is useless."""
        standing = self._standing
        if not self._between:
            standing.check_finished()
        elif not self.owes:
            standing.check_finished(standing.step.iteration - 1)
        elif standing.some_have_finished():
            raise _HasFinishedError


class _HasFinishedError(Exception):
    """A rank has finished, which has made the exchange that is waited for."""

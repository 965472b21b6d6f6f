"""Requests of a training loop to its job: epochs, batches of data, present workers, and the script's state for a checkpoint.

The loop's place is the same on all ranks and goes with the checkpoint (`Loop.saved`), so that a restarted script goes on where the
job was. The loop knows no framework; data sets are counted, never read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket import typed
from hocket.errors import StoreGoneError, UsageError
from hocket.job.rendezvous import Job
from hocket.planning.shares import sizes
from hocket.training.loop.changes import Changes, Worker
from hocket.training.loop.samples import Dealt, Place, Samples
from hocket.training.loop.shares import Shares, check_dealt, of_workers

log = logging.getLogger("hocket.training")


class SavedLoop(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Place where a loop goes on: the number of its next epoch, and the place in each data set by its name."""

    epoch: int = 0
    data: dict[str, Place] = {}


Extra = tuple[Callable[[], Any], Callable[[Any], object]]
"""Functions that get a value for a checkpoint, and take one from a checkpoint."""


class Loop:
    """Loop of one distributed model on this rank.

    Attributes:
        changes: those of the job's ranks.
        accumulating: gradients of batches until now wait for those of others, and are in no step yet.
        alone: this rank has stepped since the last exchange, alone, so that its batches would be lost with it.
    """

    def __init__(self, job: Job) -> None:
        """Begin, as all ranks of the job have just done."""
        self._job = job
        self.gather: Callable[[Callable[[], list[Any]]], list[Any]] = lambda gather: gather()
        """Wrapper of each call that waits for all ranks at the store."""
        self._me = job.members[job.rank]
        self.changes = Changes(workers_of(job))
        self.accumulating = self.alone = False
        self._epoch = 0
        self._in_epoch = False
        self._began: set[str] = set()
        """Data sets of which a loop has begun in this epoch."""
        self._data: dict[str, Samples] = {}
        self._places: dict[str, Place] = {}
        """Places from a checkpoint, until the script asks for data of that name."""
        self._known: set[str] = set()
        """Data sets whose place this rank has from ranks that were there before, which need no comparison."""
        self._extras: dict[str, Extra] = {}
        self._values: dict[str, Any] = {}
        """Values from a checkpoint, until the script registers that name."""
        self.changes.call(lambda change: self._changed([each.member for each in change.new]))

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the numbers of epochs up to `count`, from the job's present one. UsageError: inside another such loop."""
        if self._in_epoch:
            raise UsageError(
                "epochs: a loop over epochs is under way\nhint: one loop over hk.epochs at a time"
            )
        self._in_epoch = True
        try:
            while self._epoch < count:
                self._began.clear()
                try:
                    yield self._epoch
                finally:
                    self._epoch += 1
        finally:
            self._in_epoch = False

    def data(self, name: str, *, samples: int, seed: int | None, dealt: str = "") -> Samples:
        """Return this rank's part of a data set, at its place. All ranks make the first call for a name together. `dealt`: words on
        how samples are dealt, the same on all ranks.

        RendezvousError: ranks are missing. UsageError: ranks, the checkpoint or an earlier loop have another data set of this name.
        """
        if samples < 1:
            raise UsageError(f"batches: the data set `{name}` has no samples")
        known = self._data.get(name)
        if known is None:
            if name in self._known:
                self._known.remove(name)
            else:
                self._agree(name, samples=samples, seed=seed, dealt=dealt)
            place = self._places.pop(name, None) or Place(seed=seed, samples=samples)
            known = Samples(place, members=[each.member for each in self.changes.workers], me=self._me)
            known_from = "the checkpoint"
        else:
            known_from = "an earlier loop"
        if (known.count, known.seed) != (samples, seed):
            raise UsageError(
                f"batches: `{name}` has {samples} samples {_order(seed)}, in {known_from} it had {known.count} "
                f"{_order(known.seed)}\nhint: name=… tells data sets apart; a place is of the same data and seed alone"
            )
        self._data[name] = known
        return known

    def check_dealt(self, batch: int, shares: Shares) -> None:
        """Raise UsageError if shares are of other ranks, too small for such batches, or of ranks that may be lost."""
        if self._job.elastic and not isinstance(shares, Mapping):
            raise UsageError(
                f"batches: shares={shares!r} are of the ranks at the start, and an elastic job goes on with others\n"
                "hint: a dictionary with a share for each host"
            )
        if not isinstance(shares, str):
            workers = self.changes.workers
            check_dealt(batch, of_workers(shares, workers), workers)

    def dealt(self, batch: int, shares: Sequence[float] | Mapping[str, float]) -> Dealt:
        """Return the rule for sizes of batches, of so many samples for each rank on average."""

        def by_member(members: Sequence[int]) -> dict[int, int]:
            workers = [each for each in self.changes.workers if each.member in members]
            known = [each for each in workers if not isinstance(shares, Mapping) or each.host in shares]
            given = dict(zip((each.member for each in known), of_workers(shares, known), strict=True))
            # A rank that has joined from a host without a share ends at its own call of `batches`.
            mean = sum(given.values()) / max(len(given), 1) or 1.0
            return dict(zip(members, sizes(batch, [given.get(each, mean) for each in members]), strict=True))

        return by_member

    def speeds(self, name: str, speed: float) -> list[float]:
        """Return the speeds of all ranks, in samples per second, of which this one is `speed`. All ranks call it."""
        return [each for _, each in sorted(self._gathered(f"speeds/{name}", speed).items())]

    def met(self, job: Job) -> None:
        """Agree from now on among the ranks of this job, which others have joined."""
        self._job = job

    def come(self, place: SavedLoop, steps: int, holders: Sequence[int]) -> None:
        """Note that this rank has joined a job, at its place in the data, after so many steps. `holders`: the earlier ranks."""
        everyone = self.changes.workers
        self.changes.come([everyone[rank] for rank in holders], steps)
        self._epoch, self._places, self._known = place.epoch, dict(place.data), set(place.data)

    def extras(self) -> dict[str, Any]:
        """Return the script's own state by name."""
        return {name: get() for name, (get, _) in self._extras.items()}

    def take(self, values: Mapping[str, Any]) -> None:
        """Take the script's own state from a rank that was there before."""
        self._values |= values
        for name, (_, put) in self._extras.items():
            if name in self._values:
                put(self._values.pop(name))

    def stepped(self) -> None:
        self.accumulating = self.alone

    def step_stands(self) -> int:
        """Note that a step with the batches that ranks have got stands. Return the number of samples of all ranks in such steps
        since this rank began."""
        for each in self._data.values():
            each.stepped()
        return sum(each.trained for each in self._data.values())

    def count_all(self) -> None:
        """Count all data that ranks have got until now: it is in steps that stand."""
        for each in self._data.values():
            each.count_all()

    def begins(self, name: str) -> None:
        """Note that a loop over this data begins."""
        self._began.add(name)

    def register(self, name: str, get: Callable[[], Any], put: Callable[[Any], object]) -> None:
        """Save the result of `get()` under this name, and restore it by `put`: at once, if a checkpoint with it was loaded before.

        UsageError: there is such a name.
        """
        if name in self._extras:
            raise UsageError(f"extra_state: there is state `{name}` already\nhint: a name for each")
        self._extras[name] = (get, put)
        if name in self._values:
            put(self._values.pop(name))

    def saved(self) -> tuple[SavedLoop, dict[str, Any]]:
        """Return the loop's place, and the script's own state by name, after a step."""
        is_over = self._epoch_is_over()
        data = self._places | {name: each.place() for name, each in self._data.items()}
        if self._in_epoch and not is_over:
            # The script will ask for these again, as it does in every epoch.
            done = (name for name in self._began if not self._data[name].open)
            data |= {
                name: replace(data[name], at=data[name].samples, returned=(), open=True) for name in done
            }
        values = self._values | self.extras()
        return SavedLoop(epoch=self._epoch + is_over, data=data), values

    def restore(self, saved: object, values: object) -> None:
        """Restore a saved place, before the first loop; all ranks call it. UsageError: `saved` did not return it, ranks give
        different ones, or a loop has begun."""
        try:
            place = typed.of_builtins(saved, SavedLoop)
            if not isinstance(values, Mapping):
                raise msgspec.ValidationError("the script's own state is no mapping")
            # Impossible numbers, which no sampler could have left, would only show in the middle of training.
            for each in place.data.values():
                Samples(each, members=[0], me=0)
        except (msgspec.ValidationError, UsageError) as error:
            raise UsageError(
                f"load_state_dict: this is not what hk.state_dict returned: {error}\n"
                "hint: give it the same rank's, as it was saved"
            ) from None
        if self._in_epoch or self._data:
            raise UsageError(
                "load_state_dict: a loop over epochs or batches has begun, and would go on from elsewhere\n"
                "hint: load before the loops"
            )
        everyone = self._gathered("loop", msgspec.json.encode(place).decode())
        first, other = _differing(everyone)
        if other is not None:
            raise UsageError(
                f"load_state_dict: ranks {first} and {other} were in different places of their data\n"
                "hint: give each rank its own file of one checkpoint"
            )
        self._epoch, self._places = place.epoch, dict(place.data)
        self._values = {}
        self.take(values)

    def _epoch_is_over(self) -> bool:
        """Return whether the script's epoch has nothing left to do: no batches are left in it, or it asks for none here at all."""
        data = self._data.values()
        return self._in_epoch and (bool(self._began) or not data) and not any(each.open for each in data)

    def _agree(self, name: str, **told: object) -> None:
        try:
            everyone = self._gathered(f"data/{name}", told)
        except StoreGoneError:
            if not self._job.elastic:
                raise
            log.warning(
                "batches: nobody checks that all ranks have the same data set `%s`: the launcher at which they met is gone",
                name,
            )
            return
        first, other = _differing(everyone)
        if other is not None:
            those, others = (
                f"{it['samples']} samples {_order(it['seed'])}{it['dealt']}"
                for it in (everyone[first], everyone[other])
            )
            raise UsageError(
                f"batches: of `{name}`, rank {first} has {those}, and rank {other} on {self._job.hosts[other]} {others}\n"
                "hint: the same whole data set, seed and shares on all ranks; each then gets its part"
            )

    def _gathered(self, name: str, told: object) -> dict[int, Any]:
        """Return the values that all ranks give, by their ranks at the start; lost ones give none."""
        job = self._job
        everyone = self.gather(
            lambda: job.store.gather(
                name, job.rank, job.world, told, job.settings.timeout_s, without_lost=job.elastic
            )
        )
        return {rank: each for rank, each in enumerate(everyone) if each is not None}

    def _changed(self, members: list[int]) -> None:
        for each in self._data.values():
            each.change(members)


def workers_of(job: Job) -> tuple[Worker, ...]:
    """Return all workers of a job, by rank."""
    known = zip(job.members, job.hosts, strict=False)
    return tuple(Worker(member=member, rank=rank, host=host) for rank, (member, host) in enumerate(known))


def _differing(everyone: Mapping[int, Any]) -> tuple[int, int | None]:
    """Return the first rank, and the first one with another value, if there is any."""
    first = min(everyone)
    return first, next((rank for rank, each in everyone.items() if each != everyone[first]), None)


def _order(seed: int | None) -> str:
    return "in their own order" if seed is None else f"in the order of seed {seed}"

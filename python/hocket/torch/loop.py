"""Functions of a script's loop on a distributed model: epochs, batches, changes of ranks, learning rates that follow them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from hocket.errors import UsageError
from hocket.torch import scaled_rates
from hocket.torch.in_training import Distributed, distributed_of
from hocket.torch.optimizers import wrapped_step
from hocket.torch.weighing import scaled, weigh
from hocket.training.loop.changes import Told
from hocket.training.loop.learning_rate import Rule, Scale
from hocket.training.loop.samples import Samples
from hocket.training.loop.shares import Shares, check
from hocket.training.loop.speed import Speed
from hocket.training.step.reducing import ReducingSession
from hocket.training.step.weighted import Weighted

log = logging.getLogger("hocket.training")

OF_BATCHES = ("batch_size", "batch_sampler", "drop_last", "generator", "sampler", "shuffle")
"""Options of DataLoader that `batches` decides."""


def epochs(model: torch.nn.Module, count: int) -> Iterator[int]:
    """Iterate over the numbers of epochs, 0 to `count` - 1; after `load_state_dict`, from where the job was.

    A checkpoint that is saved in a loop over `batches` goes on in that epoch, at the next batch. One that is saved after that loop
    goes on with the next epoch, and so does one that is saved in a script whose batches come from elsewhere. Two loops, one
    after the other, count together: `epochs(model, 3)` and then `epochs(model, 10)` are 3 epochs and 7.

    Raises UsageError within another such loop of the model.

    >>> import hocket.torch as hk
    >>> model = torch.nn.Linear(3, 2)
    >>> model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> list(hk.epochs(model, 3)), list(hk.epochs(model, 4))
    ([0, 1, 2], [3])
    """
    return distributed_of(model).loop.epochs(count)


def batches(
    model: torch.nn.Module,
    dataset: torch.utils.data.Dataset[Any],
    batch_size: int,
    *,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    shares: Shares | None = None,
    name: str = "train",
    **options: Any,
) -> Batches:
    """Return this rank's batches of a data set that all ranks have: in a pass, each sample comes once, on one of the ranks.

    Each loop over them is a pass, in an order of its own. The first one after `load_state_dict` is the rest of the pass in which
    the checkpoint was saved, also with another number of ranks.

    All ranks have equally many batches. Where fewer samples are left than make full batches for all, they are shared evenly. Only
    where fewer are left than there are ranks, as with batches of one, a rank without any repeats one that another rank has.

    Args:
        model: a distributed model.
        dataset: with a length and samples by number; the same on all ranks.
        batch_size: samples of each rank in a batch.
        shuffle: False: keep the data set's order, of which each batch of all ranks is a piece.
        seed: seed of the order; the same on all ranks.
        drop_last: leave out the steps for which not all ranks have a full batch.
        shares: for ranks of unequal speed, what each gets of the `batch_size` times the number of ranks that all get together: a
            number for each rank, or a dictionary with one for each host, in proportion, or `"measured"`: by the samples that each
            trains on in a second, measured in the first steps and again in each pass. Gradients are then means over samples
            instead of ranks, so a step is that of one process with the whole batch. The same on all ranks.
        name: name in checkpoints, which tells several data sets of a script apart.
        options: options of `torch.utils.data.DataLoader`, such as `num_workers` and `collate_fn`.

    Raises:
        UsageError: a number or a share is out of range, the data set cannot be asked for samples by number, ranks have different
            data sets or shares, or an earlier loop or the checkpoint had another one of this name.
        RendezvousError: some ranks do not call `batches`.

    >>> import hocket.torch as hk
    >>> model = torch.nn.Linear(3, 2)
    >>> model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> data = hk.batches(model, range(5), 2, shuffle=False)
    >>> len(data), [batch.tolist() for batch in data]
    (3, [[0, 1], [2, 3], [4]])
    """
    if theirs := sorted(set(options) & set(OF_BATCHES)):
        raise UsageError(
            f"batches: {', '.join(theirs)} of a DataLoader: which samples a batch has is decided here\n"
            "hint: batch_size, shuffle, seed and drop_last are arguments of hk.batches"
        )
    if batch_size < 1:
        raise UsageError(f"batches: batch_size={batch_size}: a batch has at least one sample")
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"batches: seed={seed}: a seed is a number of 64 bits")
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__len__"):
        raise UsageError(
            f"batches: {type(dataset).__name__} has no length, or gives its samples in its own order\n"
            "hint: a data set with __len__ and __getitem__, or a DataLoader of your own in each rank (docs/data.md)"
        )
    found, dealt = distributed_of(model), ""
    if shares is not None:
        check(shares)
        found.loop.check_dealt(batch_size, shares)
        dealt = f", in batches of {batch_size} with shares={shares!r}"
    samples = found.loop.data(name, samples=len(dataset), seed=seed if shuffle else None, dealt=dealt)
    return Batches(
        found, samples, dataset, batch_size, shares, name=name, drop_last=drop_last, options=options
    )


class Batches:
    """Batches of a data set for this rank; each loop over them is a pass. `len()` is the number of batches left in a pass."""

    def __init__(
        self,
        found: Distributed,
        samples: Samples,
        dataset: torch.utils.data.Dataset[Any],
        batch_size: int,
        shares: Shares | None,
        *,
        name: str,
        drop_last: bool,
        options: Mapping[str, Any],
    ) -> None:
        """Prepare the batches; see `batches`."""
        self._found, self._loop, self._samples, self._name = found, found.loop, samples, name
        self._batch_size, self._drop_last = batch_size, drop_last
        self._weighted: Weighted | None = None
        self._speed = Speed(found.session.job.progress) if shares == "measured" else None
        self._measured = False
        before, samples.dealt = samples.dealt, None
        if shares is not None:
            self._weighted = _weighted(found)
            even = [1.0] * found.session.job.world
            samples.dealt = self._loop.dealt(batch_size, even if isinstance(shares, str) else shares)
        if samples.dealt is not before:
            samples.deal()
        # A generator of its own, so that the script's random numbers are those of a run that was not interrupted.
        self._generator = torch.Generator()
        self._loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
            dataset, batch_sampler=_Upcoming(samples), generator=self._generator, **options
        )

    def __len__(self) -> int:
        """Return the number of batches left in a pass at the job's current number of ranks."""
        return self._samples.steps_left(self._batch_size, drop_last=self._drop_last)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a pass, or the rest of one."""
        samples = self._samples
        self._loop.begins(self._name)
        if self._speed is not None and self._speed.known:
            self._deal_by(self._speed)
        samples.begin(self._batch_size, drop_last=self._drop_last)
        # Each rank's workers draw different random numbers, and new ones in each pass.
        self._generator.manual_seed(
            ((samples.seed or 0) + (samples.data_epoch << 20) + samples.me) % (1 << 63)
        )
        try:
            whole = False
            while not whole:
                whole = True
                for batch in self._loader:
                    self._hand_out()
                    yield batch
                    if self._speed is not None and not self._loop.accumulating:
                        self._speed.stepped()
                        if self._speed.known and not self._measured:
                            self._deal_by(self._speed)
                    if samples.stale:
                        whole = False
                        break
        finally:
            samples.end()
            if self._weighted is not None:
                self._weighted.end()

    def _hand_out(self) -> None:
        held, me = self._loop.accumulating, self._samples.me
        counts = self._samples.hand_out(held=held)
        if self._weighted is not None:
            self._weighted.batch(counts, me, held=held)
        if self._speed is not None:
            self._speed.got(counts[me])

    def _deal_by(self, speed: Speed) -> None:
        """Deal by the speeds of all ranks, which have made equally many steps."""
        speeds = self._loop.speeds(self._name, speed.value)
        if all(each > 0 for each in speeds):
            self._measured = True
            self._samples.dealt = self._loop.dealt(self._batch_size, speeds)
            self._samples.deal()
            if self._found.session.job.rank == 0:
                words = ", ".join(f"{each:.4g}" for each in speeds)
                log.info("batches: `%s` by the speeds of ranks: %s samples per second", self._name, words)
        speed.begin()


def _weighted(found: Distributed) -> Weighted | None:
    """Let gradients count by samples; None: they count as they are."""
    session, trained = found.session, found.framework.trained
    if not isinstance(session, ReducingSession):
        # A profile: each rank trains by itself.
        return None
    known = session.accumulation.weighted
    weighted = session.weigh(partial(scaled, trained))
    if weighted is not None and known is None:
        weigh(trained, lambda: weighted.factor)
    return weighted


class _Upcoming(torch.utils.data.Sampler[list[int]]):
    """Numbers of samples, batch by batch, for a DataLoader."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[list[int]]:
        return self._samples.upcoming()


def on_change(model: torch.nn.Module, called: Told) -> None:
    """Call `called(change)` now, and whenever ranks are lost, leave or join, on each rank, in the thread that trains.

    The first call tells the last change. At the start of a job, that has everybody as `change.joined`, and an old world of 0. On a
    rank that has joined a job, it has the step from which this rank trains, and the others as the old world.

    Later calls come at the end of the backward whose gradients are the first without the lost ranks: the same on all ranks, and
    before the optimizer's step with them. Where ranks leave in order (`leave`), they come when the optimizer has stepped for the
    last time with their gradients, and where ranks join, between the same two steps. Only [elastic jobs](elastic.md) go on with
    other ranks.

    Args:
        model: a distributed model.
        called: receives a `Change`: why, the step, who was lost, who joined, the old and the new world. It may not train the model.
            Its exceptions end training.

    >>> import hocket.torch as hk
    >>> model = torch.nn.Linear(3, 2)
    >>> model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> hk.on_change(model, lambda change: print(change.why, change.old_world, change.new_world))
    the job starts 0 1
    """
    distributed_of(model).loop.changes.call(called)


def leave(model: torch.nn.Module) -> None:
    """Make this rank leave an elastic job in order: the others go on without it, and no step is done again.

    The call returns at once, also in a handler of a signal. A few steps later, when the optimizer has stepped, SystemExit with code
    0 is raised in the thread that trains. The others hear of it by `on_change`, between the same two steps. If the job could not go
    on with the ranks that are left, this one stays.

        signal.signal(signal.SIGTERM, lambda *_: hk.leave(model))

    Raises UsageError where the job is not elastic.
    """
    distributed_of(model).session.leave()


def scale_lr(model: torch.nn.Module, rule: Rule, *, world: int | None = None, warmup: int = 0) -> None:
    """Scale the learning rates of the model's optimizer with the number of ranks, with any scheduler.

    Each rank brings a batch, so more ranks are a larger batch. `"linear"` multiplies learning rates by the number of ranks over
    `world`, which is usual with SGD; `"sqrt"` by the root of that, which is usual with Adam and AdamW. The factor is applied
    in each step of the optimizer alone: schedulers, `param_groups` and checkpoints have the rates that the script chose.

    Args:
        model: a distributed model.
        world: number of ranks for which the script's learning rate was chosen. None: that at the job's start, so that rates are
            scaled when ranks are lost or join, or when its checkpoint is loaded by another number of ranks.
        warmup: steps of the optimizer in which the factor goes from its value to the next one.

    Raises:
        UsageError: there is no such rule, the optimizer has no learning rate, or its rates are scaled already.

    >>> import hocket.torch as hk
    >>> model = torch.nn.Linear(3, 2)
    >>> model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> hk.scale_lr(model, "linear", world=8, warmup=100)
    """
    found = distributed_of(model)
    optimizer = found.framework.optimizer
    if any(group.get("lr") is None for group in optimizer.param_groups):
        raise UsageError(
            f"scale_lr: {type(optimizer).__name__} has groups of parameters without a learning rate"
        )
    scale = Scale(rule, world=world, warmup=warmup)

    rates = scaled_rates.scale(optimizer, lambda: scale.coming)

    def step(plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with rates.times(optimizer, scale.step()):
            return plain(*args, **kwargs)

    on_change(model, lambda change: scale.change(change.new_world))
    extra_state(model, "scale_lr", scale.saved, scale.resume)
    optimizer.step = wrapped_step(optimizer, step)  # type: ignore[method-assign]


def extra_state(
    model: torch.nn.Module, name: str, get: Callable[[], Any], put: Callable[[Any], object]
) -> None:
    """Register state of the script to go with the model's: `state_dict` saves what `get()` returns, and `load_state_dict` hands it
    to `put`. Where a checkpoint with this name was loaded before, `put` is called at once. A rank that joins an elastic job gets
    what `get()` returns on a rank that was there before, at its first forward.

    Args:
        model: a distributed model.
        name: name in the checkpoint.
        get: returns the state; tensors and plain data, if `torch.load(file, weights_only=True)` is to read the file.
        put: takes the state back.

    Raises UsageError for a name that is registered already.

        hk.extra_state(model, "scheduler", scheduler.state_dict, scheduler.load_state_dict)
        hk.extra_state(model, "random", torch.get_rng_state, torch.set_rng_state)
    """
    distributed_of(model).loop.register(name, get, put)

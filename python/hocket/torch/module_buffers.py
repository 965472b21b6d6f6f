"""Equality of a model's buffers, such as running statistics, with one rank's, and so with those of a single process.

`after_step`: the source sends its buffers when backward begins, while the network is idle; the others have them when it
ends. Only buffers that were observed to change travel; the others are compared with those that the source last sent.
`before_forward`: all buffers travel before each forward, as with DistributedDataParallel. Temporary buffers of other
shapes on other ranks are each rank's own. This file knows tensors and broadcasts; sessions tell it when steps begin and
end.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Literal, get_args

import torch

from hocket import _native
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.planning.compile import broadcast_program
from hocket.torch.buffer_memory import Current, Mirror, Place, named_buffers, places_of
from hocket.torch.forward_hooks import after_forward, before_forward
from hocket.training.memory.buckets import LoadedBucket

Keep = Literal["after_step", "before_forward", "none"]

PRIORITY = 0
"""Most urgent: buffers leave before the first bucket is complete."""

_numbers = itertools.count()
"""Number of the model in this process: equal on all ranks, which distribute their models in one order."""


def check_keep(keep: Keep | None) -> None:
    """Raise UsageError for a way of keeping buffers that there is not. None: the default."""
    if keep not in (None, *get_args(Keep)):
        raise UsageError(f"buffers={keep!r}: known are {', '.join(map(repr, get_args(Keep)))}")


class Buffers:
    """Buffers of one model; a session's `Companion`.

    Collective calls (`send`, `meet`) happen at the same point of the same step on all ranks.
    """

    barrier = False

    def __init__(self, model: torch.nn.Module, keep: Keep, job: Job, engine: _native.Engine) -> None:
        """Start from equal replicas of the model."""
        self.keep = keep
        self.source = 0
        self._job, self._engine = job, engine
        self._number = next(_numbers)
        self._model = model
        self._under_way: int | None = None
        self._late = False
        self._mirror: Mirror | None = None
        self._apart: frozenset[str] = frozenset()
        """Names of temporary buffers that have had other shapes on other ranks."""
        self._programs: dict[tuple[int, int], int] = {}
        """Source and bytes → a loaded broadcast."""
        if keep != "none" and job.world > 1:
            self._lay_out(frozenset())

    @property
    def kept(self) -> bool:
        """True if there is anything to do now: a model may also get its first buffers in a forward."""
        return self._mirror is not None and bool(self._mirror.places)

    @property
    def meets(self) -> bool:
        """True where buffers may be reassigned, added or removed."""
        return self.kept

    def begin(self) -> None:
        """Send the source's live buffers: backward begins."""
        if self._mirror is not None and self.keep == "after_step" and not self._late:
            self._launch()

    def end(self) -> bool:
        """Note that backward is over, and return whether this rank requests a meeting.

        A rank requests one if it is the source and its buffers are not those being sent, or if the model has other buffers than
        before.
        """
        sent = self._mirror
        if sent is None:
            return False
        after_step = self.keep == "after_step"
        if after_step and self._late:
            self._launch()
        current = sent.current()
        if current is None or not current.settled:
            return True
        return after_step and self._job.rank == self.source and not sent.holds(current.tensors)

    def arrive(self) -> None:
        """Wait for transfers in flight; then every rank holds what the source sent."""
        sent = self._mirror
        if sent is None or self.keep != "after_step":
            return
        self._wait()
        current = sent.current()
        if current is not None and self._job.rank != self.source:
            sent.take(current.tensors)

    def launched(self, *, waits: bool) -> None:
        """Wait for buffers now, unless the session waits: gates open in the next forward, which uses them."""
        if not waits:
            self.arrive()

    def reduced(self, bucket: LoadedBucket) -> None:
        """Ignore gradients."""

    def step_ended(self) -> None:
        """Do nothing."""

    def retire(self) -> None:
        """Unload programs; another object keeps the buffers equal."""
        for program in self._programs.values():
            self._engine.unload(program)
        self._programs, self._mirror = {}, None

    def meet(self) -> None:
        """Meet because some rank requested it: buffers that changed for the first time travel now, and from now on."""
        sent = self._mirror
        assert sent is not None  # noqa: S101  # a rank without buffers asks for nothing, and all ranks have them
        everyone = self._gather(changed=sent.changed(self._model, named_buffers(self._model)))
        changed = everyone[self.source]["changed"]
        # A travelling buffer that changed after it left, as with a checkpoint's second forward, leaves later from now
        # on.
        self._late = self._late or not sent.live.isdisjoint(changed)
        self._lay_out(sent.live.union(changed) - self._apart)
        self.send(self.source, everything=True)

    def send(self, source: int, *, everything: bool = False) -> None:
        """Send the source's live buffers, or all of its buffers, and wait until all ranks have them."""
        if self._mirror is None:
            return
        current = self._mirror.current()
        if current is None:
            current = self._lay_out_anew()
        self.source = source
        self._launch(everything=everything)
        self._wait()
        if self._job.rank != source:
            self._mirror.take(current.tensors)

    def equal(self) -> None:
        """Record buffers as sent: other means have made them equal on all ranks."""
        if self._mirror is not None:
            self._lay_out(self._mirror.live)

    def _gather(self, **told: Any) -> list[dict[str, Any]]:
        job = self._job
        key = f"buffers/{self._number}"
        mine = {"buffers": _described(places_of(self._model, named_buffers(self._model))), **told}
        everyone = job.store.gather(key, job.rank, job.world, mine, job.settings.timeout_s)
        self._apart |= _apart([each["buffers"] for each in everyone])
        return everyone

    def _lay_out_anew(self) -> Current:
        """Lay out buffers again after some were added, removed or changed on all ranks."""
        self._gather()
        sent = self._lay_out(named_buffers(self._model).keys() - self._apart)
        current = sent.current()
        assert current is not None  # noqa: S101  # these were laid out now
        return current

    def _launch(self, *, everything: bool = False) -> None:
        sent = self._mirror
        assert sent is not None  # noqa: S101  # callers have checked
        size_bytes = sent.size_bytes if everything else sent.live_bytes
        if size_bytes == 0:
            return
        if self._job.rank == self.source:
            current = sent.current()
            if current is not None:
                sent.put(current.tensors, live=not everything)
        program = self._programs.get((self.source, size_bytes))
        if program is None:
            broadcast = broadcast_program(self._job.world, size_bytes, sources=(self.source,))
            program = self._engine.load(broadcast, {0: (sent.memory, 0)}, priority=PRIORITY, label="buffers")
            self._programs[self.source, size_bytes] = program
        self._engine.launch(program)
        self._under_way = program

    def _wait(self) -> None:
        program, self._under_way = self._under_way, None
        if program is not None:
            self._engine.wait(program, self._job.settings.timeout_s)

    def _lay_out(self, live: Set[str]) -> Mirror:
        """Allocate memory for all buffers, with their current contents; live ones first."""
        for program in self._programs.values():
            self._engine.unload(program)
        self._programs.clear()
        self._mirror = Mirror(self._model, live, self._apart, self._engine.allocate)
        return self._mirror


def _described(places: Iterable[Place]) -> list[tuple[str, str, bool]]:
    return sorted((place.name, str(place), place.temporary) for place in places)


def _apart(everyone: Sequence[Sequence[tuple[str, str, bool]]]) -> set[str]:
    """Return names of temporary buffers that differ between ranks, from each rank's buffers. UsageError: another buffer differs;
    its `rank` is the first whose buffer differs from that of most ranks."""
    apart = set()
    models = [{name: (text, temporary) for name, text, temporary in each} for each in everyone]
    for name in dict.fromkeys(name for model in models for name in model):
        told = [model.get(name) for model in models]
        if len(set(told)) == 1:
            continue
        if all(temporary for _, temporary in filter(None, told)):
            apart.add(name)
            continue
        usual = Counter(told).most_common(1)[0][0]
        rank = next(at for at, one in enumerate(told) if one != usual)
        here, there = ("not there" if one is None else one[0] for one in (told[rank], usual))
        raise UsageError(
            f"the models' buffers differ: `{name}` is {here} on rank {rank} and {there} on rank {told.index(usual)}\n"
            'hint: distribute(…, buffers="none") leaves each rank its own',
            rank=rank,
        )
    return apart


class BeforeForward:
    """Sends all of rank 0's buffers before each forward for which DistributedDataParallel would.

    These are not the forwards in which gradients accumulate without communication, but for the first of them, and not the
    one after a forward without gradients.
    """

    def __init__(self, model: torch.nn.Module, buffers: Buffers, communicates: Callable[[], bool]) -> None:
        """Hook the model's forward; `communicates`: returns whether a backward now would."""
        self.suspended = False
        self._buffers, self._communicates = buffers, communicates
        self._due = True
        self._handles = [before_forward(model, self._before), after_forward(model, self._after)]

    def remove(self) -> None:
        """Send buffers no more."""
        for each in self._handles:
            each.remove()

    def _before(self) -> None:
        if self._due and not self.suspended:
            self._buffers.send(0, everything=True)

    def _after(self) -> None:
        self._due = torch.is_grad_enabled() and self._communicates()

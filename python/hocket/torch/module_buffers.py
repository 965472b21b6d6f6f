"""Keeps a model's buffers, such as running statistics, equal to one rank's, and so to those of a single process.

`after_step`: the source sends its buffers when backward begins, while the network is idle; the others have them when it
ends. Only buffers that were observed to change travel; the others are compared with what the source last sent.
`before_forward`: all buffers travel before each forward, as with DistributedDataParallel. This file knows tensors and
broadcasts; sessions tell it when steps begin and end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from hocket import _native
from hocket.errors import UsageError
from hocket.launch.rendezvous import Job
from hocket.planning.compile import broadcast_program
from hocket.training.buckets import LoadedBucket

Keep = Literal["after_step", "before_forward", "none"]

PRIORITY = 0
"""Most urgent: they leave before the first bucket is complete."""

ALIGNMENT_BYTES = 16

_numbers = itertools.count()
"""Number of the model in this process: equal on all ranks, which distribute their models in one order."""


@dataclass(frozen=True)
class _Place:
    """A buffer's properties on which ranks must agree, and its place in the memory that is sent."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{list(self.shape)} of {str(self.dtype).removeprefix('torch.')}"


@dataclass
class _Sent:
    """The source's last sent bytes, equal on all ranks: live buffers first, then those that never changed."""

    places: list[_Place]
    live_count: int
    memory: _native.Memory
    views: list[torch.Tensor]
    live_bytes: int
    now: torch.Tensor
    """Scratch of the same size for the buffers' current contents."""
    now_views: list[torch.Tensor]
    programs: dict[tuple[int, int], int] = field(default_factory=dict)
    """By source and bytes: a loaded broadcast."""

    @property
    def bytes(self) -> torch.Tensor:
        """All of it."""
        return torch.frombuffer(self.memory, dtype=torch.uint8)


class Buffers:
    """The buffers of one model.

    Collective calls (`send`, `meet`) happen at the same point of the same step on all ranks.

    A session's `Companion`.
    """

    barrier = False

    def __init__(self, model: torch.nn.Module, keep: Keep, job: Job, engine: _native.Engine) -> None:
        """The model's replicas are equal now."""
        self.keep = keep
        self.source = 0
        self._job, self._engine = job, engine
        self._number = next(_numbers)
        self._model = model
        self._under_way: int | None = None
        self._late = False
        self._sent: _Sent | None = None
        if keep != "none" and job.world > 1:
            self._lay_out(_named(model), frozenset())

    @property
    def kept(self) -> bool:
        """Whether there is anything to do."""
        return self._sent is not None

    @property
    def meets(self) -> bool:
        """Where buffers may be reassigned, added or removed."""
        return self.kept

    def begin(self) -> None:
        """Backward begins: the source's live buffers leave."""
        if self._sent is not None and self.keep == "after_step" and not self._late:
            self._launch()

    def end(self) -> bool:
        """Backward is over.

        Returns whether this rank requests a meeting: it is the source and its buffers are not those being sent, or the
        model has other buffers than before.
        """
        sent = self._sent
        if sent is None or self.keep != "after_step":
            return False
        if self._late:
            self._launch()
        current = self._current()
        if current is None:
            return True
        return self._job.rank == self.source and not self._is_sent(sent, current)

    def arrive(self) -> None:
        """Wait for transfers in flight; then every rank holds what the source sent."""
        sent = self._sent
        if sent is None or self.keep != "after_step":
            return
        self._wait()
        current = self._current()
        if current is not None and self._job.rank != self.source:
            self._take(sent, current)

    def launched(self, *, waits: bool) -> None:
        """Gates open in the next forward, which uses buffers: they are awaited now."""
        if not waits:
            self.arrive()

    def reduced(self, bucket: LoadedBucket) -> None:
        """Nothing: gradients are not theirs."""

    def step_ended(self) -> None:
        """Nothing."""

    def meet(self) -> None:
        """Some rank requested it: buffers that changed for the first time travel now, and from now on."""
        sent = self._sent
        assert sent is not None  # noqa: S101  # who has no buffers asks for nothing, and all have the same
        named = _named(self._model)
        places = _places(named)
        known = dict(zip(sent.places, sent.views, strict=True))
        changed = [
            place.name for place in places if place not in known or not _same(known[place], named[place.name])
        ]
        everyone = self._gather({"buffers": _described(places), "changed": changed})
        live = {place.name for place in sent.places[: sent.live_count]}
        changed = everyone[self.source]["changed"]
        # A travelling buffer that changed after it left, as with a checkpoint's second forward, leaves later from now
        # on.
        self._late = self._late or bool(live & set(changed))
        self._lay_out(named, live | set(changed))
        self.send(self.source, everything=True)

    def send(self, source: int, *, everything: bool = False) -> None:
        """Send now, and wait: all ranks hold the source's live buffers, or all of its buffers."""
        if self._sent is None:
            return
        current = self._current()
        if current is None:
            current = self._lay_out_anew()
        self.source = source
        self._launch(everything=everything)
        self._wait()
        if self._job.rank != source:
            self._take(self._sent, current)

    def equal(self) -> None:
        """All ranks' buffers have become equal by other means: record them as sent."""
        if self._sent is not None:
            live = {place.name for place in self._sent.places[: self._sent.live_count]}
            self._lay_out(_named(self._model), live)

    def _gather(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        job = self._job
        key = f"buffers/{self._number}"
        everyone = job.store.gather(key, job.rank, job.world, mine, job.settings.timeout_s)
        _check([each["buffers"] for each in everyone])
        return everyone

    def _lay_out_anew(self) -> list[torch.Tensor]:
        """Buffers were added, removed or changed on all ranks."""
        named = _named(self._model)
        self._gather({"buffers": _described(_places(named))})
        self._lay_out(named, frozenset(named))
        return list(named.values())

    def _launch(self, *, everything: bool = False) -> None:
        sent = self._sent
        assert sent is not None  # noqa: S101  # callers have looked
        size_bytes = len(sent.memory) if everything else sent.live_bytes
        if size_bytes == 0:
            return
        if self._job.rank == self.source:
            current = self._current()
            if current is not None:
                count = len(sent.views) if everything else sent.live_count
                _copy(sent.views[:count], current[:count])
        program = sent.programs.get((self.source, size_bytes))
        if program is None:
            broadcast = broadcast_program(self._job.world, size_bytes, root=self.source)
            program = self._engine.load(broadcast, {0: (sent.memory, 0)}, priority=PRIORITY, label="buffers")
            sent.programs[self.source, size_bytes] = program
        self._engine.launch(program)
        self._under_way = program

    def _wait(self) -> None:
        program, self._under_way = self._under_way, None
        if program is not None:
            self._engine.wait(program, self._job.settings.timeout_s)

    def _lay_out(self, named: dict[str, torch.Tensor], live: Iterable[str]) -> None:
        """Memory for all buffers, with their current contents; live ones first."""
        if self._sent is not None:
            for program in self._sent.programs.values():
                self._engine.unload(program)
        live = frozenset(live)
        order = sorted(named, key=lambda name: name not in live)
        tensors = [named[name] for name in order]
        places = _places({name: named[name] for name in order})
        ends = list(itertools.accumulate(_padded(each) for each in tensors))
        count = sum(place.name in live for place in places)
        if not ends or ends[-1] == 0:
            self._sent = None
            return
        memory = self._engine.allocate(ends[-1])
        flat = torch.frombuffer(memory, dtype=torch.uint8).zero_()
        now = torch.zeros(ends[-1], dtype=torch.uint8)
        self._sent = _Sent(
            places=places,
            live_count=count,
            memory=memory,
            views=_views(flat, ends, tensors),
            live_bytes=ends[count - 1] if count else 0,
            now=now,
            now_views=_views(now, ends, tensors),
        )
        _copy(self._sent.views, tensors)
        modules = {id(each): name for name, each in self._model.named_modules()}
        owners = {
            ".".join(filter(None, (modules[id(module)], key))): (module, key)
            for module in self._model.modules()
            for key in module._buffers
        }
        self._owners = [owners[name] for name in order]
        self._seen = [(each, each._version) for each in tensors]
        self._counts = [
            (module, sum(each is not None for each in module._buffers.values()))
            for module in self._model.modules()
            if module._buffers
        ]

    def _current(self) -> list[torch.Tensor] | None:
        """The buffers as sent, maybe reassigned; None if others were added or removed, or changed shape or type."""
        sent = self._sent
        assert sent is not None  # noqa: S101  # callers have looked
        for module, count in self._counts:
            if sum(each is not None for each in module._buffers.values()) != count:
                return None
        found = []
        for (module, key), view in zip(self._owners, sent.views, strict=True):
            each = module._buffers.get(key)
            if each is None or each.shape != view.shape or each.dtype != view.dtype:
                return None
            found.append(each)
        return found

    def _is_sent(self, sent: _Sent, current: Sequence[torch.Tensor]) -> bool:
        _copy(sent.now_views, current)
        # Bytes: a sent NaN counts as equal.
        return torch.equal(sent.now, sent.bytes)

    def _take(self, sent: _Sent, current: Sequence[torch.Tensor]) -> None:
        """Copy what was sent into buffers that differ."""
        _copy(sent.now_views, current)
        for at, (view, now, tensor) in enumerate(zip(sent.views, sent.now_views, current, strict=True)):
            before, version = self._seen[at]
            if not _same(view, now):
                module, key = self._owners[at]
                if tensor is not before:
                    # Reassigned by the model: the previous one may be part of a graph.
                    tensor = module._buffers[key] = view.clone()  # noqa: PLW2901
                elif tensor._version == version:
                    # Changed without autograd's knowledge, as by batch norm: a graph kept for a second backward stays
                    # valid.
                    tensor.data.copy_(view)
                else:
                    with torch.no_grad():
                        tensor.copy_(view)
            self._seen[at] = tensor, tensor._version


def _padded(tensor: torch.Tensor) -> int:
    size_bytes = tensor.numel() * tensor.element_size()
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _views(flat: torch.Tensor, ends: Sequence[int], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    starts = [0, *ends[:-1]]
    return [
        flat[start : start + each.numel() * each.element_size()].view(each.dtype).view(each.shape)
        for start, each in zip(starts, tensors, strict=True)
    ]


def _copy(views: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for view, tensor in zip(views, tensors, strict=True):
            view.copy_(tensor)


def _named(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    # The class's method: to ask the model itself would open its gates.
    return dict(type(model).named_buffers(model))


def _places(named: dict[str, torch.Tensor]) -> list[_Place]:
    return [_Place(name, tuple(each.shape), each.dtype) for name, each in named.items()]


def _described(places: Iterable[_Place]) -> list[tuple[str, str]]:
    return sorted((place.name, str(place)) for place in places)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the bytes are equal."""
    a, b = (each.detach().contiguous().reshape(-1).view(torch.uint8) for each in (a, b))
    return torch.equal(a, b)


def _check(everyone: Sequence[Sequence[Any]]) -> None:
    """Raise UsageError if a rank has other buffers than rank 0."""
    first = dict(everyone[0])
    for rank, each in enumerate(everyone):
        other = dict(each)
        for name in dict.fromkeys([*first, *other]):
            if first.get(name) != other.get(name):
                raise UsageError(
                    f"the models' buffers differ: `{name}` is {first.get(name, 'not there')} on rank 0 and "
                    f"{other.get(name, 'not there')} on rank {rank}\n"
                    'hint: distribute(…, buffers="none") leaves each rank its own'
                )


class BeforeForward:
    """Sends all of rank 0's buffers before each forward for which DistributedDataParallel would.

    These are not the forwards while gradients accumulate without communication, but for the first of them, and not the
    one after a forward without gradients.
    """

    def __init__(self, model: torch.nn.Module, buffers: Buffers, communicates: Callable[[], bool]) -> None:
        """Hook the model's forward; `communicates`: whether a backward now would."""
        self.suspended = False
        self._buffers, self._communicates = buffers, communicates
        self._due = True
        model.register_forward_pre_hook(Hook(self._before), prepend=True)
        model.register_forward_hook(Hook(self._after))

    def _before(self) -> None:
        if self._due and not self.suspended:
            self._buffers.send(0, everything=True)

    def _after(self) -> None:
        self._due = torch.is_grad_enabled() and self._communicates()


class Hook:
    """A hook of a distributed model. Copies and pickles of the model are not distributed: their hook does nothing."""

    def __init__(self, call: Callable[[], None]) -> None:
        """`call` is called at each forward."""
        self._call = call

    def __call__(self, *_: Any) -> None:
        """A forward begins, or is over."""
        self._call()

    def __reduce__(self) -> tuple[type, tuple[Callable[[], None]]]:
        """How it is copied and pickled."""
        return Hook, (_nothing,)


def _nothing() -> None:
    pass

"""The framework of `tape.py` as `hocket.training` needs it: what a second framework has to write, in NumPy."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from hocket import _native
from hocket.artefacts.learning import Learning
from hocket.errors import UsageError
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.framework import Hints, Hooks, Remote
from hocket.training.memory.gradients import Parameter as Described
from hocket.training.memory.replicas import Piece
from hocket.training.memory.shards import Range, Shard, State
from hocket.training.memory.state_parts import StateBytes
from hocket.training.step.first_gradients import ZERO
from tests.training.tape import Parameter

DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


class Gates:
    """A layer waits for its own bucket, steps it and goes on; `optimizer.step` and `zero_grad` between are put off."""

    def __init__(self, toy: Toy, buckets: Sequence[Sequence[str]], wait, values) -> None:
        self.closed: set[int] = set()
        self._toy, self._buckets, self._wait = toy, buckets, wait
        self._values = values
        self._stepped = self._zeroed = False

    def backward_began(self) -> None:
        if self.closed:
            raise UsageError("a backward began before the gradients of the last one were applied")

    def backward_ended(self) -> None:
        self.closed = set(range(len(self._buckets)))
        self._stepped = self._zeroed = False

    def open_all(self) -> None:
        self._open(sorted(self.closed))

    def before_use(self, names: Iterable[str]) -> None:
        wanted = set(names)
        self._open([at for at in sorted(self.closed) if wanted & set(self._buckets[at])])

    def step(self) -> None:
        if self.closed:
            self._stepped = True
        else:
            self._toy.optimizer_step(None)
        self._toy.step_ended()

    def zero_grad(self) -> None:
        if self.closed:
            self._zeroed = True
        else:
            self._toy.zero_now()

    def _open(self, buckets: Sequence[int]) -> None:
        for at in buckets:
            self._wait(at)
            self.closed.discard(at)
            if self._stepped:
                self._toy.optimizer_step(self._buckets[at])
                self._values.send(at)
                self._values.receive(at)
            if self._zeroed:
                for name in self._buckets[at]:
                    self._toy.drop(name)


class Part(NamedTuple):
    """Elements of a parameter that this rank updates, as a parameter of its own, and the view of their gradient."""

    start: int
    stop: int
    own: Parameter
    gradient: np.ndarray


class Workload:
    """Batches have no dimension of their own here."""

    batch = None

    def __init__(self) -> None:
        self.backwards = 0

    def stop(self) -> None:
        """Counting costs nothing."""


class Unscaled:
    """Factors of a loss that is never scaled."""

    used = False

    def made(self, iteration: int, applied: int) -> None: ...

    def of(self, _iteration: int) -> float:
        return 1.0

    def give(self, mean: LoadedBucket, iterations: range) -> None: ...

    def saved(self) -> dict[int, float]:
        return {}

    def restore(self, saved: Mapping[int, float]) -> None: ...


class Toy:
    """A `tape.Network` and its `tape.Momentum`: gradients are arrays over buckets, to which backward adds."""

    hints = Hints()
    device = None

    scales = Unscaled()

    def __init__(self, network, optimizer) -> None:
        self.network, self.optimizer = network, optimizer
        self.gates: Gates | None = None
        self._ends: list[Callable[[], None]] = []
        self._stepped: list[Callable[[], None]] = []
        self._zeroed: list[Callable[[Sequence[str]], None]] = []
        self._parts: dict[str, list[Part]] = {}
        self._reduced: set[str] = set()
        self._workload = Workload()
        self._made: Callable[[str, int], None] | None = None
        # It is small enough to have no parts.
        self.division = self.looks = self

    # What a script calls.

    def backward(self, tape, loss) -> None:
        """Gradients, and what hangs on the end of a backward."""
        self._workload.backwards += 1
        tape.backward(loss)
        ends, self._ends = self._ends, []
        for call in ends:
            call()

    def step(self) -> None:
        if self.gates is None:
            self.optimizer_step(None)
            self.step_ended()
        else:
            self.gates.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not set_to_none:
            self._fill_with_zeros()
        elif self.gates is None:
            self.zero_now()
        else:
            self.gates.zero_grad()

    def optimizer_step(self, names: Iterable[str] | None) -> None:
        self.optimizer.step(
            [
                part
                for name in (list(self.network.parameters) if names is None else names)
                for part in self._updated(name)
            ]
        )

    def step_ended(self) -> None:
        for call in self._stepped:
            call()

    def zero_now(self) -> None:
        self.optimizer.zero_grad()
        self._reduced = set()

    def _fill_with_zeros(self) -> None:
        made = [name for name, each in self.network.parameters.items() if each.grad is not None]
        for name in made:
            self._of(name).grad[...] = 0
        for call in self._zeroed:
            call(made)

    # What training calls.

    def parameters(self) -> list[Described]:
        return [
            Described(name=name, shape=each.value.shape, dtype=NAMES[each.value.dtype])
            for name, each in self.network.parameters.items()
        ]

    def hook(self, buckets: Sequence[LoadedBucket], readiness: Hooks, *, moves: bool = True) -> None:
        for each in self.network.parameters.values():
            each.hook = None
        for at, bucket in enumerate(buckets):
            for position, (name, view) in enumerate(zip(bucket.names, bucket.views, strict=True)):
                if moves and self._of(name).grad is not None:
                    self.adopt(name, view)
                self._of(name).hook = self._watching(name, readiness.hook(at, position, view))

    def _watching(self, name: str, ready: Callable[[Parameter], None]) -> Callable[[Parameter], None]:
        def hook(parameter: Parameter) -> None:
            if self._made is not None:
                gradient = parameter.grad
                self._made(name, zlib.crc32(gradient.tobytes()) if gradient.any() else ZERO)
            ready(parameter)

        return hook

    def watch_gradients(self, made: Callable[[str, int], None]) -> Callable[[], None]:
        self._made = made

        def stop() -> None:
            self._made = None

        return stop

    def when_backward_ends(self, call: Callable[[], None]) -> None:
        self._ends.append(call)

    def gate(self, buckets: Sequence[Sequence[str]], wait, values) -> Gates:
        if self.gates is not None:
            self.gates.open_all()
        self.gates = Gates(self, buckets, wait, values)
        self.network.before_use = self.gates.before_use
        return self.gates

    def on_zero_grad(self, call: Callable[[Sequence[str]], None]) -> None:
        self._zeroed.append(call)

    def on_step(self, call: Callable[[], None]) -> None:
        self._stepped.append(call)

    def on_save(self, call: Callable[[], None]) -> None:
        """No script takes its state for a file."""

    def remote(self, names: Sequence[str]) -> Remote:
        raise UsageError(f"servers do not know the optimizer of {', '.join(names)}")

    def learning(self) -> Learning:
        return Learning(optimizer="Momentum", rate=self.optimizer.rate, momentum=self.optimizer.momentum)

    def workload(self) -> Workload:
        self._workload = Workload()
        return self._workload

    def optimizer_state(self) -> bytes:
        return pickle.dumps(self.optimizer.moments) if self.optimizer.moments else b""

    def load_optimizer_state(self, saved: bytes) -> None:
        self.optimizer.moments = pickle.loads(saved)  # noqa: S301  # of this test's own rank 0

    def divide(self, buckets: Sequence[LoadedBucket], ranges: Mapping[str, Sequence[Range]]) -> None:
        """`Momentum` updates each element by itself."""
        views = {
            name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)
        }
        for name, own in ranges.items():
            moment = self.optimizer.moments.pop(name, None)
            self._parts[name] = []
            for start, stop, _ in own:
                part = Parameter(f"{name}[{start}:{stop}]", self._of(name).value.reshape(-1)[start:stop])
                self._parts[name].append(Part(start, stop, part, views[name].reshape(-1)[start:stop]))
                self.optimizer.parameters[part.name] = part
                if moment is not None:
                    self.optimizer.moments[part.name] = moment.reshape(-1)[start:stop].copy()

    def reduced(self, bucket: LoadedBucket) -> None:
        self._reduced |= set(bucket.names)

    def shards(self) -> list[Shard]:
        return [
            Shard(name, part.start, part.stop, State({"moment": self.optimizer.moments[part.own.name]}))
            for name, parts in self._parts.items()
            for part in parts
            if part.own.name in self.optimizer.moments
        ]

    def undivide(self, state: Mapping[str, State]) -> None:
        for parts in self._parts.values():
            for part in parts:
                del self.optimizer.parameters[part.own.name]
                self.optimizer.moments.pop(part.own.name, None)
        self._parts, self._reduced = {}, set()
        for name, each in state.items():
            self.optimizer.moments[name] = each.arrays["moment"].reshape(self._of(name).value.shape).copy()

    def forget(self) -> None:
        self.undivide({})

    def array(self, memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> np.ndarray:
        count = int(np.prod(shape))
        if count == 0:
            return np.empty(shape, DTYPES[dtype])
        return np.frombuffer(memoryview(memory), DTYPES[dtype], count, start).reshape(shape)

    def adopt(self, name: str, view: np.ndarray) -> None:
        own = self._of(name)
        if own.grad is view:
            return
        if own.grad is None:
            view[...] = 0
        elif (own.grad.shape, own.grad.dtype) != (view.shape, view.dtype):
            raise UsageError(
                f"the gradient of `{name}` is {own.grad.shape} of {own.grad.dtype}, not {view.shape} of {view.dtype}"
            )
        else:
            view[...] = own.grad
        own.grad = view

    def gradient(self, name: str) -> np.ndarray | None:
        return self._of(name).grad

    def add(self, name: str, view: np.ndarray) -> None:
        own = self._of(name)
        if own.grad is view:
            return
        if own.grad is not None:
            view += own.grad
        own.grad = view

    def show(self, bucket: LoadedBucket, names: Collection[str] | None = None) -> None:
        for name, view in zip(bucket.names, bucket.views, strict=True):
            if names is None or name in names:
                self._of(name).grad = view

    def check_announced(self) -> None:
        """Scripts have no hooks."""

    def rates(self, factors: Mapping[str, float]) -> None:
        self.optimizer.factors = dict(factors)

    def drop(self, name: str) -> None:
        self._of(name).grad = None
        self._reduced.discard(name)

    def rows(self, name: str, factor: float):
        own = self._of(name)
        grad = np.zeros_like(own.value) if own.grad is None else own.grad
        flat = grad.reshape(len(grad), int(np.prod(grad.shape[1:])))
        numbers = np.flatnonzero(flat.any(axis=1))
        return numbers, (flat[numbers] * grad.dtype.type(factor)).view(np.uint8)

    def set_rows(self, name: str, numbers, rows) -> None:
        own = self._of(name)
        own.grad = np.zeros_like(own.value) if own.grad is None else own.grad
        own.grad[...] = 0
        own.grad[numbers] = rows.view(own.value.dtype).reshape(len(numbers), *own.value.shape[1:])

    def check_in_place(self, buckets: Sequence[LoadedBucket]) -> None:
        """Nothing moves a NumPy array."""

    def hold_parameters(self, buckets: Sequence[LoadedBucket]) -> None:
        for bucket in buckets:
            for name, view in zip(bucket.names, bucket.views, strict=True):
                view[...] = self._of(name).value
                self._of(name).value = view

    def options(self) -> list[dict[str, float]]:
        return [{"rate": self.optimizer.rate, "momentum": self.optimizer.momentum}]

    def held(self) -> dict[str, int]:
        return {name: each.value.nbytes for name, each in self.network.parameters.items()}

    def digests(self, pieces: Sequence[Piece]) -> list[int]:
        bytes_of = {piece.name: self._of(piece.name).value.reshape(-1).view(np.uint8) for piece in pieces}
        addresses = {name: each.__array_interface__["data"][0] for name, each in bytes_of.items()}
        return _native.digests([(addresses[name] + start, stop - start) for name, start, stop in pieces])

    def state(self) -> list[StateBytes]:
        return [each.value.reshape(-1).view(np.uint8) for each in self.network.parameters.values()]

    @contextmanager
    def filling(self) -> Iterator[list[StateBytes]]:
        yield self.state()

    def _of(self, name: str):
        return self.network.parameters[name]

    def _updated(self, name: str) -> list[str]:
        own = self._of(name)
        if name not in self._parts:
            return [name]
        if own.grad is not None and name not in self._reduced:
            raise UsageError(f"step with a gradient of `{name}` that its owners did not reduce")
        for part in self._parts[name]:
            part.own.grad = None if own.grad is None else part.gradient
        return [part.own.name for part in self._parts[name]]

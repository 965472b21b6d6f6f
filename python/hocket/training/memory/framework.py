"""The interface between training and a framework: PyTorch, JAX, TensorFlow or the toy in the tests.

A framework supplies six things: its parameters, a hook for gradients, gates for layers, the optimizer's step, steps of parts of
parameters, and arrays over memory. Every implementation passes `tests/training/test_conformance.py`.

Gradients and parameters are identified by name. Only the framework knows what an array is: training stores arrays and hands
them back. All calls come from the thread that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hocket import _native
from hocket.artefacts.learning import Learning
from hocket.parameter_server.description import Group
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.gathered import HasRows
from hocket.training.memory.gradients import Parameter
from hocket.training.memory.replicas import Options, Piece
from hocket.training.memory.shards import Range, Shard, State

Array = Any
"""The framework's own array over a bucket's memory, or over a part of it."""

StateBytes = npt.NDArray[np.uint8]
"""Shape (size in bytes,)."""


class Gates(Protocol):
    """Gates let each layer's forward wait for its own parameters; without them, the end of backward waits for all."""

    @property
    def closed(self) -> Collection[int]:
        """The buckets whose gates are closed."""

    def backward_began(self) -> None:
        """The first gradient of a backward has been made. UsageError: a gate is still closed."""

    def backward_ended(self) -> None:
        """All buckets of a backward have been launched: closes all gates."""

    def open_all(self) -> None:
        """Wait for all buckets and apply them."""


class Values(Protocol):
    """What gates do about values of buckets that their owners update (`hocket.training.step.owners`); of others, nothing."""

    def ready(self, bucket: int) -> bool:
        """Whether owners update some of the bucket, and its gradients are reduced: stepping it now lets its values leave early."""

    def send(self, bucket: int) -> None:
        """A step that was put off has been applied to the bucket: what this rank owns of it leaves."""

    def receive(self, bucket: int) -> None:
        """Returns when what was sent of the bucket is here: its layers may use it."""


class Hooks(Protocol):
    """Counts gradients (`hocket.training.step.places`)."""

    def hook(self, bucket: int, index: int, view: Array) -> Callable[[Any], None]:
        """The callable to call after each accumulation of gradient `index` of a bucket, with an object whose `grad` it is."""


class Remote(Protocol):
    """An optimizer that parameter servers run, for the parameters that they hold.

    Attributes:
        kind: what `hocket.training.servers.serve.MakeShard` knows it as.
        groups: options of its groups of parameters when the model was distributed.
        group_of: by parameter, its group.
    """

    @property
    def kind(self) -> str:
        """As above."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """As above."""

    @property
    def group_of(self) -> Mapping[str, int]:
        """As above."""

    def numbers(self) -> list[float]:
        """Current numbers of all groups, as `Group.flat` orders them. UsageError: another option was changed."""

    def give(self, name: str, into: Array) -> None:
        """Write the parameter's value."""

    def take(self, name: str, value: Array) -> None:
        """The parameter gets this value, and has no gradient."""


class Workload(Protocol):
    """What an iteration computes on this rank.

    Attributes:
        batch: samples of the last training forward; None: not known.
        backwards: since the framework was asked to look.
    """

    @property
    def batch(self) -> int | None:
        """As above."""

    @property
    def backwards(self) -> int:
        """As above."""

    def stop(self) -> None:
        """Look no longer."""


@dataclass(frozen=True)
class Hints:
    """Advice to users of a framework, shown after `hint:` in error messages."""

    unequal_batches: str = "give every rank the same number of batches"
    non_finite: str = ""
    """Appended to a warning if non-finite gradients can be harmless."""
    made_twice: str = "let each backward make each gradient once"


class Model(Protocol):
    """What every framework supplies, also one whose gradients come out of compiled functions: parameters, and the state that
    all ranks start from."""

    def parameters(self) -> Sequence[Parameter]:
        """Parameters in the order of registration, then buffers; the same on all ranks."""

    def remote(self, names: Sequence[str]) -> Remote:
        """The optimizer of these parameters, which servers hold from now on: the optimizer's step passes them over. UsageError:
        servers cannot run it."""

    def optimizer_state(self) -> bytes:
        """The optimizer's state, serialised; empty if there is none."""

    def load_optimizer_state(self, saved: bytes) -> None:
        """Load what `optimizer_state` returned on another rank."""

    def options(self) -> Options:
        """The optimizer's options, group by group, without the parameters: what is a number, a word or a list of such. None for an
        optimizer that is the script's own."""

    def state(self) -> Sequence[StateBytes]:
        """The bytes of all parameters and buffers, an array for each. They may be views."""

    def filling(self) -> AbstractContextManager[Sequence[StateBytes]]:
        """Arrays like those of `state`, to be filled with another rank's. At its end the model has what they hold."""


class Framework(Model, HasRows, Protocol):
    """A model and its optimizer."""

    hints: Hints

    # Hook.

    def hook(self, buckets: Sequence[LoadedBucket], readiness: Hooks, *, moves: bool = True) -> None:
        """Count these buckets' gradients from now on, instead of those of an earlier call.

        After each accumulation of gradient `i` of bucket `b`, on any thread, the framework calls `readiness.hook(b, i, views[i])`
        with an object whose attribute `grad` is the gradient. Existing gradients move into the buckets, as by `adopt`, other than
        those of sparse buckets; without `moves`, they stay where they are."""

    def when_backward_ends(self, call: Callable[[], None]) -> None:
        """Call `call()` once, when the running backward has made all of its gradients. Used within a hook."""

    # Gate.

    def gate(
        self,
        buckets: Sequence[Sequence[str]],
        wait: Callable[[int], None],
        values: Values | None = None,
    ) -> Gates:
        """Gates for the parameters of each bucket, all open. A further call opens and replaces the earlier gates.

        `wait(b)` returns when the gradients of bucket b are reduced. Where a step that was put off has been applied to bucket b,
        `values.send(b)` comes after it, and `values.receive(b)` before its layers; None: nothing has owners. Raises UsageError
        if the framework has no gates.
        """

    # Step.

    def on_zero_grad(self, call: Callable[[Sequence[str]], None]) -> None:
        """Call `call(names)` after the optimizer has filled these gradients with zeros, where scripts can have it do that instead
        of removing them."""

    def on_step(self, call: Callable[[], None]) -> None:
        """Call `call()` after each step of the optimizer; of a step that gates put off, as it is put off."""

    def on_save(self, call: Callable[[], None]) -> None:
        """Call `call()` when a script is about to take the model's state, for a file."""

    def rates(self, factors: Mapping[str, float]) -> None:
        """The optimizer's next step, and it alone, multiplies its learning rate by a factor for each of these parameters.

        From the first call on, UsageError for steps that need more than one backward, or whose gradients have another scale.
        """

    def step(self) -> None:
        """The optimizer's step, as a script calls it."""

    def learning(self) -> Learning | None:
        """What the optimizer multiplies gradients and its last move with; None: not known. Without what nobody has measured yet."""

    def workload(self) -> Workload:
        """Begin to look at what an iteration computes."""

    # Steps of parts.

    def divide(self, buckets: Sequence[LoadedBucket], ranges: Mapping[str, Sequence[Range]]) -> None:
        """From now on the optimizer steps these ranges alone of these parameters, flattened, with their gradients in the buckets,
        and keeps state of them alone, which begins as that of the whole parameter. Steps without gradients that were
        `divided` raise UsageError. UsageError: the optimizer is not known to update each element by itself, or lacks one of
        the parameters."""

    def divided(self, bucket: LoadedBucket) -> None:
        """Of the bucket's parameters that are divided, this rank has means in its ranges alone, until they are zeroed: no script
        should take what is in the views for gradients."""

    def shards(self) -> Sequence[Shard]:
        """The optimizer's state of each range, where there is any."""

    def undivide(self, state: Mapping[str, State]) -> None:
        """The optimizer steps whole parameters again, with this state of those that were divided; gradients that were `divided` are
        whole in their views."""

    # Replicas.

    def watch_gradients(self, made: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `made(name, digest)` for each gradient that a backward makes on this rank, before anything is reduced, until the
        callable that is returned is called. The digest is `ZERO` or `UNKNOWN` (`first_gradients`) if the gradient is."""

    def held(self) -> Mapping[str, int]:
        """By name, the bytes of each parameter, trained or not, that `digests` can look at."""

    def digests(self, pieces: Sequence[Piece]) -> list[int]:
        """The CRC32C of these pieces of parameters, whose bytes are in the order of the elements."""

    # Arrays and memory.

    def array(self, memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> Array:
        """An array over `memory` from byte `start` on, without a copy. The memory is zero at first."""

    def adopt(self, name: str, view: Array) -> None:
        """Move the gradient of `name` into `view`, which is the gradient from now on. A missing gradient becomes zero.
        UsageError: shape or type differ."""

    def gradient(self, name: str) -> Array | None:
        """The gradient of `name`, be it of zeros; None: there is none, and the optimizer skips the parameter."""

    def add(self, name: str, view: Array) -> None:
        """The gradient of `name` is added to what is in `view`, if it is elsewhere, and is that array from now on.
        UsageError: shape or type is another."""

    def show(self, bucket: LoadedBucket, names: Collection[str] | None = None) -> None:
        """Gradients of a bucket, all or those of these names, are its views, as they are."""

    def drop(self, name: str) -> None:
        """Remove the gradient of `name`, which no rank made, so that the optimizer skips the parameter."""

    def check_announced(self) -> None:
        """When backward has ended. UsageError names the first gradient that the script has changed in it after the gradient's hook
        was called, if scripts can do that."""

    def check_in_place(self, buckets: Sequence[LoadedBucket]) -> None:
        """Before the first launch of a backward: gradients that the user's script has moved out of their buckets are back there.
        UsageError names one of another type."""

    def hold_parameters(self, buckets: Sequence[LoadedBucket]) -> None:
        """Move the parameters themselves, with their values, into the buckets, as far as they are not there; they are the views
        from now on."""

"""The interface between training and a framework: PyTorch, JAX, TensorFlow or the toy in the tests.

A framework supplies six things: its parameters, a hook for gradients, gates for layers, the optimizer's step, steps of parts of
parameters, and arrays over memory. Implementations with hooks pass `tests/training/test_conformance.py`.

Gradients and parameters are identified by name. Only the framework knows what an array is: training stores arrays and hands
them back. All calls come from the thread that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from hocket import _native
from hocket.artefacts.learning import Learning
from hocket.parameter_server.description import Group
from hocket.training.memory.anchor import Anchor, LocalAnchor
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import Device
from hocket.training.memory.gathered import HasRows
from hocket.training.memory.gradients import Parameter
from hocket.training.memory.replicas import Looked, Options
from hocket.training.memory.shards import Range, Shard, State
from hocket.training.memory.state_parts import StateBytes

Array = Any
"""Array of the framework's own over a bucket's memory, or over a part of it."""


class Scales(Protocol):
    """Factor of each iteration's gradients, as far as these are not applied: the same on all ranks. Without a scaler, each is 1."""

    @property
    def used(self) -> bool:
        """True if a scaler is in use, so that sums may overflow."""

    def made(self, iteration: int, applied: int) -> None:
        """Note the factor of an iteration whose backward ends. `applied`: iterations before this one are of no interest."""

    def of(self, iteration: int) -> float:
        """Return the factor of the gradients of a turn which ends with this iteration."""

    def give(self, mean: LoadedBucket, iterations: range) -> None:
        """Bring a turn's mean to the factor of the last iteration, by which the script's next step divides it."""

    def saved(self) -> Mapping[int, float]:
        """Return the factors of iterations whose gradients are not applied."""

    def restore(self, saved: Mapping[int, float]) -> None:
        """Restore what was saved."""


class Gates(Protocol):
    """Gates, which let each layer's forward wait for its own parameters; without gates, the end of backward waits for all."""

    @property
    def closed(self) -> Collection[int]:
        """Buckets whose gates are closed."""

    def backward_began(self) -> None:
        """Note that the first gradient of a backward has been made. UsageError: a gate is still closed."""

    def backward_ended(self) -> None:
        """Close all gates: all buckets of a backward have been launched."""

    def open_all(self) -> None:
        """Wait for all buckets and apply them."""


class Values(Protocol):
    """Calls of gates for values of buckets that owners update (`hocket.training.step.owners`); without effect for other buckets."""

    def ready(self, bucket: int) -> bool:
        """Return whether owners update some of the bucket and its gradients are reduced: stepping it now sends its values early."""

    def send(self, bucket: int) -> None:
        """Send this rank's part of the bucket's values: a step that was put off has been applied to the bucket."""

    def receive(self, bucket: int) -> None:
        """Wait until the values that were sent of the bucket are here: its layers may use it."""


class Hooks(Protocol):
    """Counter of gradients (`hocket.training.step.updates`)."""

    def hook(self, bucket: int, index: int, view: Array) -> Callable[[Any], None]:
        """Return the callable to call after each accumulation of gradient `index` of a bucket, with an object that has it as
        `grad`."""


class Remote(Protocol):
    """Optimizer that parameter servers run, for the parameters that they hold.

    Attributes:
        kind: its name for `hocket.training.servers.serve.MakeShard`.
        groups: options of its groups of parameters when the model was distributed.
        group_of: by parameter, its group.
    """

    @property
    def kind(self) -> str: ...

    @property
    def groups(self) -> tuple[Group, ...]: ...

    @property
    def group_of(self) -> Mapping[str, int]: ...

    def numbers(self) -> list[float]:
        """Return the current numbers of all groups, as `Group.flat` orders them. UsageError: another option was changed."""

    def give(self, name: str, into: Array) -> None:
        """Write the parameter's value."""

    def take(self, name: str, value: Array) -> None:
        """Set the parameter to this value, and its gradient to None."""


class Workload(Protocol):
    """Work of an iteration on this rank.

    Attributes:
        batch: samples of the last training forward; None: not known.
        samples: samples of all training forwards since the framework was asked to look, as far as known.
        backwards: number of backwards since the framework was asked to look.
    """

    @property
    def batch(self) -> int | None: ...

    @property
    def samples(self) -> int: ...

    @property
    def backwards(self) -> int: ...

    def stop(self) -> None:
        """Stop looking."""


@dataclass(frozen=True)
class Hints:
    """Advice to users of a framework, shown after `hint:` in error messages."""

    unequal_batches: str = "give every rank the same number of batches"
    non_finite: str = ""
    """Appended to a warning if non-finite gradients can be harmless."""
    made_twice: str = "let each backward make each gradient once"


class Model(Protocol):
    """Parameters, and the state that all ranks start from: supplied by every framework, also one whose gradients come out of
    compiled functions."""

    def parameters(self) -> Sequence[Parameter]:
        """Return parameters in the order of registration, then buffers; the same on all ranks."""

    def remote(self, names: Sequence[str]) -> Remote:
        """Return the optimizer of these parameters, which servers hold from now on: the optimizer's step passes them over.
        UsageError: servers cannot run it."""

    def optimizer_state(self) -> bytes:
        """Return the serialised optimizer state; empty if there is none."""

    def load_optimizer_state(self, saved: bytes) -> None:
        """Load optimizer state that `optimizer_state` returned on another rank."""

    def options(self) -> Options:
        """Return the optimizer's options by group, without the parameters: numbers, words and lists of them. None for an optimizer
        that is the script's own."""

    def state(self) -> Sequence[StateBytes]:
        """Return the bytes of all parameters and buffers, one array each. The arrays may be views."""

    def filling(self) -> AbstractContextManager[Sequence[StateBytes]]:
        """Yield arrays like those of `state`, to be filled with another rank's; the model takes their values when the context
        ends."""


class Division(Protocol):
    """Optimizer's steps of parts of parameters; at first, it steps whole ones."""

    def divide(self, buckets: Sequence[LoadedBucket], ranges: Mapping[str, Sequence[Range]]) -> None:
        """Step only these ranges of these parameters, flattened, with their gradients in the buckets, and keep optimizer state of
        these ranges alone, which begins as that of the whole parameter. Steps without gradients that were `reduced` raise
        UsageError. UsageError: the optimizer is not known to update each element by itself, or lacks one of the parameters."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """Note that this rank has means only in its ranges of the bucket's divided parameters, until they are zeroed: scripts
        should not take the contents of the views for gradients."""

    def shards(self, *, undivided: bool = False) -> Sequence[Shard]:
        """Return the optimizer state of each range that has any. `undivided`: also that of parameters that are not divided."""

    def add(self, ranges: Mapping[str, Sequence[Range]]) -> None:
        """Step these ranges of divided parameters, too, which begin without optimizer state."""

    def put(self, shards: Iterable[Shard]) -> None:
        """Set optimizer state, as far as this rank steps what it is of: one array may come in several shards."""

    def whole(self, shards: Iterable[Shard]) -> dict[str, State]:
        """Return the state of whole parameters, of which these are all the parts."""

    def forget(self) -> None:
        """Step whole parameters again, without the state of those that were divided."""

    def packed(self, shards: Iterable[Shard]) -> bytes:
        """Return shards as bytes."""

    def unpacked(self, data: bytes) -> list[Shard]:
        """Return shards that another rank has packed."""

    def count(self, counted: Callable[[str, int], bool] | None) -> None:
        """Count a range of a parameter that starts there, in norms of all ranks' gradients, only where `counted` says so; None: all
        that no other rank updates."""

    def undivide(self, state: Mapping[str, State]) -> None:
        """Step whole parameters again, with this state of those that were divided; gradients that were `reduced` are whole in their
        views."""


class Looks(Looked, Protocol):
    """Parts of a model that ranks compare."""

    def watch_gradients(self, made: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `made(name, digest)` for each gradient that a backward makes on this rank, before anything is reduced, until the
        callable that is returned is called. The digest is `ZERO` or `UNKNOWN` (`first_gradients`) if the gradient is."""


class Framework(Model, HasRows, Protocol):
    """Model and optimizer of a framework."""

    hints: Hints

    @property
    def division(self) -> Division:
        """Optimizer's steps of parts."""

    @property
    def looks(self) -> Looks:
        """Digests of parameters and gradients."""

    @property
    def device(self) -> Device | None:
        """Device on which `array` makes arrays; None: they lie in registered memory itself."""

    @property
    def anchor(self) -> Anchor:
        """Anchor for late gradients; without effect until its first call."""

    @property
    def scales(self) -> Scales:
        """Factors by which the script scales its loss; asked where gradients may be merged or late."""

    @property
    def local(self) -> LocalAnchor:
        """Anchor for ranks that step alone between exchanges; without effect until its first call."""

    # Hook.

    def hook(self, buckets: Sequence[LoadedBucket], readiness: Hooks, *, moves: bool = True) -> None:
        """Count these buckets' gradients from now on, instead of those of an earlier call.

        After each accumulation of gradient `i` of bucket `b`, on any thread, the framework calls `readiness.hook(b, i, views[i])`
        with an object whose attribute `grad` is the gradient. Existing gradients, but those of sparse buckets, move into the
        buckets as by `adopt`; without `moves`, they stay where they are.
        """

    def when_backward_ends(self, call: Callable[[], None]) -> None:
        """Call `call()` once, when the running backward has made all of its gradients. Used within a hook."""

    # Gate.

    def gate(
        self,
        buckets: Sequence[Sequence[str]],
        wait: Callable[[int], None],
        values: Values | None = None,
    ) -> Gates:
        """Return gates for the parameters of each bucket, all open. A further call opens and replaces the earlier gates.

        `wait(b)` returns when the gradients of bucket b are reduced. Where a step that was put off has been applied to bucket b,
        `values.send(b)` comes after it, and `values.receive(b)` before its layers; None: nothing has owners. Raises UsageError if
        the framework has no gates.
        """

    # Step.

    def on_zero_grad(self, call: Callable[[Sequence[str]], None]) -> None:
        """Call `call(names)` after the optimizer has filled these gradients with zeros, if scripts can choose that over removing
        them."""

    def on_step(self, call: Callable[[], None]) -> None:
        """Call `call()` after each optimizer step, or when gates put a step off."""

    def on_save(self, call: Callable[[], None]) -> None:
        """Call `call()` when a script is about to take the model's state, for a file."""

    def rates(self, factors: Mapping[str, float]) -> None:
        """Multiply the learning rate by a factor for each of these parameters, in the next optimizer step alone.

        From the first call on, UsageError for steps that need more than one backward.
        """

    def step(self) -> None:
        """Run the optimizer's step with the means that were given, as a script calls it; those that overflowed are left out."""

    def learning(self) -> Learning | None:
        """Return the optimizer's factors of gradients and of its last move, as far as measured; None: not known."""

    def workload(self, *, gradients: bool = True) -> Workload:
        """Begin to look at the work of an iteration; `gradients`: and count how often gradients are made."""

    # Arrays and memory.

    def array(self, memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> Array:
        """Return an array over `memory`, or over the device's twin of it, from byte `start` on, without a copy. It is zero at
        first."""

    def adopt(self, name: str, view: Array) -> None:
        """Move the gradient of `name` into `view`, which is the gradient from now on. A missing gradient becomes zero. UsageError:
        shape or type differ."""

    def gradient(self, name: str) -> Array | None:
        """Return the gradient of `name`, even if all zeros; None: there is none, and the optimizer skips the parameter."""

    def add(self, name: str, view: Array) -> None:
        """Add the gradient of `name` to `view`, if it lies elsewhere; `view` is the gradient from now on. UsageError: shape or type
        differ."""

    def show(self, bucket: LoadedBucket, names: Collection[str] | None = None) -> None:
        """Set the bucket's gradients, all or those of these names, to its views, as they are."""

    def drop(self, name: str) -> None:
        """Remove the gradient of `name`, which no rank made, so that the optimizer skips the parameter."""

    def check_announced(self) -> None:
        """Check gradients when backward has ended. UsageError names the first gradient that the script changed in this backward
        after the gradient's hook was called, if scripts can do that."""

    def check_in_place(self, buckets: Sequence[LoadedBucket]) -> None:
        """Move gradients that the user's script has moved out of their buckets back, before the first launch of a backward.
        UsageError names one of another type."""

    def hold_parameters(self, buckets: Sequence[LoadedBucket]) -> None:
        """Move the parameters themselves, with their values, into the buckets, as far as they are not there; they are the views
        from now on."""

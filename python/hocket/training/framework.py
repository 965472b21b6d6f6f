"""The seam between training and a framework: what PyTorch, JAX, TensorFlow or a toy in the tests supplies, and nothing else.

Five things, each a few lines of a framework's own: which parameters there are; a hook for gradients; gates for layers; the
optimizer's step; and arrays over memory. Whatever implements them passes `tests/training/test_conformance.py`.

Gradients and parameters have names. What an array is, only the framework knows: training keeps the arrays that it was given and
hands them back. All calls come from the thread that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hocket import _native
from hocket.training.buckets import LoadedBucket
from hocket.training.gradients import Parameter

Array = Any
"""The framework's own array over a bucket's memory, or over a part of it."""


class Gates(Protocol):
    """Where layers wait for their own parameters alone, instead of all layers at the end of backward for all of them."""

    @property
    def closed(self) -> Collection[int]:
        """The buckets whose gates are closed."""

    def backward_began(self) -> None:
        """The first gradient of a backward has come. UsageError: a gate is still closed."""

    def backward_ended(self) -> None:
        """All buckets of a backward are on their way: all gates are closed."""

    def open_all(self) -> None:
        """Wait for all buckets and apply them."""


class Hooks(Protocol):
    """What counts gradients (`hocket.training.places`)."""

    def hook(self, bucket: int, index: int, view: Array) -> Callable[[Any], None]:
        """What is called with an object whose `grad` is the gradient, after each accumulation of gradient `index` of a bucket."""


@dataclass(frozen=True)
class Hints:
    """What users of a framework can do about an error, in the words after `hint:`."""

    unequal_batches: str = "give every rank the same number of batches"
    non_finite: str = ""
    """Appended to a warning, when this is nothing to worry about."""
    made_twice: str = "let each backward make each gradient once"


class Framework(Protocol):
    """A model and its optimizer, as training needs them."""

    hints: Hints

    # Parameters.

    def parameters(self) -> Sequence[Parameter]:
        """What all ranks must have alike: parameters in the order of their registration, then buffers."""

    # Hook.

    def hook(self, buckets: Sequence[LoadedBucket], readiness: Hooks) -> None:
        """From now on these buckets' gradients are counted: after each accumulation of gradient `i` of bucket `b`, on whatever
        thread, `readiness.hook(b, i, views[i])` is called with an object whose attribute `grad` is the gradient. Hooks of an
        earlier call end. Gradients that exist now move into the buckets, as by `adopt`."""

    def when_backward_ends(self, call: Callable[[], None]) -> None:
        """Called within a hook: `call()` once, when the backward that runs now has made all of its gradients."""

    # Gate.

    def gate(
        self,
        buckets: Sequence[Sequence[str]],
        wait: Callable[[int], None],
        zero: Callable[[int], None],
    ) -> Gates:
        """Gates for the parameters of each bucket, all open. A second call opens the gates of the first, and is of other buckets.

        `wait(b)` returns when the gradients of bucket b are reduced, and `zero(b)` zeroes them. Raises UsageError where a
        framework has no gates.
        """

    # Step.

    def on_zero_grad(self, zero: Callable[[], None]) -> None:
        """The optimizer's `zero_grad` calls `zero` for gradients that are hooked, and zeroes the others itself."""

    def on_step(self, call: Callable[[], None]) -> None:
        """Call `call()` after each step of the optimizer."""

    def optimizer_state(self) -> bytes:
        """The optimizer's state, serialised; empty where there is none."""

    def load_optimizer_state(self, saved: bytes) -> None:
        """Take over what `optimizer_state` gave on another rank."""

    # Arrays and memory.

    def array(self, memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> Array:
        """The array over `memory` from byte `start` on, without a copy. It is zero-filled at first."""

    def adopt(self, name: str, view: Array) -> None:
        """The gradient of `name` moves into `view`, if it is elsewhere, and is that array from now on; one that does not exist
        becomes zero. UsageError: shape or type is another."""

    def zero(self, bucket: LoadedBucket) -> None:
        """All gradients of a bucket become zero, and are the bucket's views."""

    def drop(self, name: str) -> None:
        """`name` has no gradient, as no rank made one: the optimizer is to leave it alone."""

    def check_in_place(self, buckets: Sequence[LoadedBucket]) -> None:
        """UsageError names the first gradient whose array the user's script moved out of its bucket, where that can be."""

    def hold_parameters(self, buckets: Sequence[LoadedBucket]) -> None:
        """The parameters themselves move into the buckets, with their values, and are the views from now on."""

    def state_bytes(self) -> int:
        """Size of what `write_state` writes: all parameters and buffers."""

    def write_state(self, into: memoryview) -> None:
        """Their bytes, one after the other."""

    def read_state(self, saved: memoryview) -> None:
        """Take over what `write_state` wrote on another rank, bit for bit."""

"""Gates instead of a barrier between backward and the next forward: a layer waits for its own parameters alone.

A gate opens when the parameter's bucket is reduced and the optimizer has applied it. The end of a backward closes it,
and the forward pre-hook of the first layer that uses it opens it; any other access to parameters opens all gates. This
file knows modules, the optimizer and `wait(bucket)`; it must not know how gradients are reduced.

Cost when all gates are open: one Python call and one test per forward of a module with parameters, 1.1 µs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.utils import clip_grad

from hocket.errors import Error, UsageError
from hocket.torch import optimizers
from hocket.torch.announced import Sealed
from hocket.torch.forward_hooks import check_hooks
from hocket.torch.observer import Observer
from hocket.torch.patches import Patches
from hocket.torch.placement import Layer, Placement
from hocket.torch.put_off import PutOff
from hocket.torch.scales import Look
from hocket.training.memory.framework import Values

_alive: WeakSet[Gates] = WeakSet()


class _Gate:
    """Forward pre-hook of one module."""

    def __init__(self, gates: Gates, layer: Layer) -> None:
        self.gates, self.layer = gates, layer

    def __call__(self, module: torch.nn.Module, _inputs: Any) -> None:
        if self.gates.closed:
            self.gates.arrive(self.layer, module)


class Gates:
    """Gates of one model and its optimizer.

    `optimizer.step()` after a backward is deferred: it keeps the hyperparameters of the call and returns at once. Each
    bucket is awaited and stepped when forward reaches the first layer that uses one of its parameters. The first
    training forward reveals that layer; until one has succeeded, and in every forward without gradients, in evaluation
    mode or of a submodule by itself, all gates open first. Gates of unused parameters open when forward begins.

    All gates also open for `state_dict`, `load_state_dict`, copies and pickles of the model, its submodules and the optimizer,
    for `parameters()`, `buffers()` and their named forms of the model and its submodules outside forward (so that
    `torch.nn.utils.clip_grad_norm_(model.parameters(), 1)` sees reduced gradients), for `zero_grad` without a step before it,
    before a fork, and before a `GradScaler` looks at gradients. After a deferred `step`, `zero_grad` sets gradients to None at
    once, and fills them with zeros when they are stepped.

    Accesses that cannot be noticed need `open_all()` first: `layer.weight`, `layer.weight.grad`, a buffer of a layer,
    `optimizer.state` and `optimizer.param_groups[0]["params"]` read by hand between backward and the next forward; a second
    backward without a forward between. A layer that uses a parameter of a module which it does not call, and did not in the
    observed forward, may get the previous step's value.

    Attributes:
        barrier_reason: reason why the last `step()` was not deferred, or why the first one will not be. None: it was, or will be.
        closed: buckets whose gates are closed.
        patches: hooks and replaced attributes of the model and its optimizer.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        buckets: Sequence[Sequence[torch.nn.Parameter]],
        wait: Callable[[int], None],
        *,
        values: Values | None = None,
        updated: Callable[[torch.Tensor], Sequence[torch.Tensor]] = optimizers.itself,
        zeroed: Callable[[Iterable[torch.Tensor]], None] | None = None,
    ) -> None:
        """Hook the model and wrap the optimizer; all gates are open.

        Args:
            model: the model whose forward opens the gates.
            optimizer: over all parameters in `buckets`; if it lacks some, another one may step the rest, and
                `backward_ended` waits for everything.
            buckets: the parameters of each bucket; a parameter is in one at most.
            wait: `wait(b)` returns when bucket b's gradients of the last backward are reduced, with `grad` None if no
                rank made one. It is called with the GIL, until it has returned once after each backward.
            values: what owners of buckets do after a deferred step. Buckets whose gradients are reduced are stepped
                when the first gate opens, so that their values travel while forward runs.
            updated: returns the tensors that a deferred step updates in place of a parameter.
            zeroed: called with parameters whose gradients were filled with zeros after a deferred step.
        """
        self.closed: set[int] = set()
        self._model = model
        self._optimizer = optimizer
        self._wait = wait
        self._values, self._updated, self._zeroed = values, updated, zeroed
        self._applied: set[int] = set()
        self._sealed: dict[int, Sealed] = {}
        self._work = PutOff(zeroed)
        self._in_forward = self._in_step = False
        self._removed = False
        self._thread = threading.get_ident()
        self._placement = Placement(model, buckets)
        self.patches = Patches()
        self._install_on_model()
        self._install_on_optimizer()
        self.barrier_reason = self._placement.stranger(self._optimizer) or optimizers.barrier_reason(
            optimizer
        )
        _alive.add(self)

    def __deepcopy__(self, _memo: object) -> Gates:
        """Return the same gates: a copied hook still belongs to those of the original; copies of modules have none."""
        return self

    def backward_began(self) -> None:
        """Check that all gates are open when the first gradient of a backward arrives.

        Raises:
            UsageError: a gate is closed: the gradient was added to one that is still being reduced.
        """
        if self.closed:
            first = self._placement.label(min(self.closed))
            raise UsageError(
                f"a backward began before the gradients of the last one were applied: gate of {first}"
                "\nhint: call the model once for each backward, or `open_all()` of its gates between two of them"
            )

    def backward_ended(self) -> None:
        """Close all gates: a backward with communication is over, and its buckets are in flight."""
        self.backward_began()
        self._thread = threading.get_ident()
        # An interrupt in the middle of forward leaves the flag set.
        self._in_forward = False
        self._close()
        self._sealed = {at: Sealed(bucket) for at, bucket in enumerate(self._placement.buckets)}
        # A step that runs backward, as a closure does, reads gradients next.
        if self._in_step or self._placement.stranger(self._optimizer) is not None:
            self.open_all()

    def _close(self) -> None:
        self.closed.update(range(len(self._placement.buckets)))
        self._applied = set()

    def rebucket(self, buckets: Sequence[Sequence[torch.nn.Parameter]]) -> None:
        """Open all gates, and assign other buckets to them from the next backward on."""
        self.open_all()
        self._placement.assign(buckets)
        self._placement.place()

    def open_all(self) -> None:
        """Wait for all gradients and apply them: the code that follows sees the same state as without gates.

        Raises:
            PeerError: a rank died; the message names the parameter whose gate could not open. That gate stays closed.
        """
        for bucket in sorted(self.closed):
            self._open(bucket, self._placement.label(bucket))

    def remove(self) -> None:
        """Open all gates, then remove all hooks and wrappers.

        A wrapper that others have wrapped in the meantime, as a scheduler does with `optimizer.step`, stays and passes
        calls on.
        """
        self.open_all()
        self._removed = True
        self.patches.remove()
        _alive.discard(self)

    def arrive(self, layer: Layer, module: torch.nn.Module) -> None:
        """Open the gates of a module that forward reaches."""
        if not self._in_forward or self._placement.uses is None:
            self.open_all()
            return
        for bucket, name in layer.needed(module).items():
            self._open(bucket, name)

    def open_before_fork(self) -> None:
        """Open all gates: the child must see applied values. The next gate in the parent reports an error."""
        if self._thread == threading.get_ident():
            with contextlib.suppress(Exception):
                self.open_all()

    def forget(self) -> None:
        """Open all gates without waiting: a forked child will never get these gradients reduced."""
        self.closed.clear()
        self._work = PutOff(self._zeroed)

    def outside_forward(self) -> None:
        """Open all gates when parameters are requested outside forward; inside it, gates open as the model proceeds."""
        if self.closed and not self._in_forward:
            self.open_all()

    def _open(self, bucket: int, name: str) -> None:
        if bucket not in self.closed:
            return
        try:
            self._apply(bucket)
            if self._values is not None:
                if self._work.step is not None:
                    for other in sorted(self.closed):
                        if self._values.ready(other):
                            self._apply(other)
                self._values.receive(bucket)
            self.closed.discard(bucket)
        except Error as error:
            raise error.reworded(f"gate of {name}: {error}") from error
        except Exception as error:
            error.add_note(f"gate of {name}")
            raise
        finally:
            if not self.closed:
                self._work = PutOff(self._zeroed)

    def _apply(self, bucket: int) -> None:
        """Wait for the bucket's gradients, step them if a step is deferred, and send the values that this rank owns."""
        if bucket in self._applied:
            return
        self._work.restore(self._placement.buckets[bucket])
        self._check_sealed(bucket)
        self._wait(bucket)
        self._applied.add(bucket)
        try:
            stepped = self._work.apply(bucket, self._placement.buckets[bucket])
        except BaseException:
            self.closed.discard(bucket)
            raise
        if stepped and self._values is not None:
            self._values.send(bucket)

    def _check_sealed(self, bucket: int) -> None:
        sealed = self._sealed.pop(bucket, None)
        changed = None if sealed is None else sealed.changed()
        if changed is not None:
            # Raised once: closed gates still open later, if only when the process ends.
            self._sealed = {}
            name = self._placement.name(changed)
            raise UsageError(
                f"the gradient of `{name}` was changed while it was reduced: with gates, that goes on after "
                "backward\nhint: hk.clip_grad_norm_(model, …) and model.parameters() wait for gradients, and zero_grad() of the "
                "model or its optimizer zeroes them after their step"
            )

    def _install_on_model(self) -> None:
        model = self._model
        check_hooks(model)
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):
                # A ScriptModule calls no hooks: parameters that it uses are ready when the model's forward begins.
                continue
            if next(module.parameters(), None) is None and module is not model:
                continue
            self._gate(module)
            opens: Callable[..., None] = functools.partial(_open_all, self)
            self.patches.keep(module.register_state_dict_pre_hook(opens))
            # The public name is younger than the oldest torch that we support.
            self.patches.keep(module._register_load_state_dict_pre_hook(opens))
            for name in ("named_parameters", "named_buffers"):
                self.patches.replace(module, name, functools.partial(_named, self, module, name))
            self.patches.replace(module, "__getstate__", functools.partial(_state, self, module))
            if hasattr(type(module), "__deepcopy__"):
                self.patches.replace(module, "__deepcopy__", functools.partial(_deepcopy, self, module))
        self.patches.keep(model.register_forward_pre_hook(self._on_forward, prepend=True))
        self.patches.keep(model.register_forward_hook(self._on_forward_left, prepend=True, always_call=True))
        self.patches.keep(model.register_forward_hook(self._on_forward_end, prepend=True))
        forward = functools.partial(self._observed, model.forward)
        self.patches.replace(model, "forward", functools.update_wrapper(forward, model.forward))
        # The class's method: the model's own would open the gates.
        zero_grad = functools.partial(
            self._on_zero_grad, model.zero_grad, lambda: type(model).named_parameters(model)
        )
        self.patches.replace(model, "zero_grad", zero_grad)

    def _gate(self, module: torch.nn.Module) -> None:
        # The gate precedes all pre-hooks, since those of weight_norm compute with the parameters.
        layer = self._placement.layers[module] = Layer()
        self.patches.keep(module.register_forward_pre_hook(_Gate(self, layer), prepend=True))

    def _install_on_optimizer(self) -> None:
        optimizer = self._optimizer
        opens: Callable[..., None] = functools.partial(_open_all, self)
        self.patches.keep(Look(optimizer, self.open_all))
        self.patches.keep(optimizer.register_state_dict_pre_hook(opens, prepend=True))
        self.patches.keep(optimizer.register_load_state_dict_pre_hook(opens, prepend=True))
        self.patches.replace(optimizer, "__getstate__", functools.partial(_state, self, optimizer))

        zero_grad = functools.partial(
            self._on_zero_grad, optimizer.zero_grad, lambda: enumerate(optimizers.all_parameters(optimizer))
        )
        self.patches.replace(optimizer, "zero_grad", functools.update_wrapper(zero_grad, optimizer.zero_grad))
        self.patches.replace(optimizer, "step", optimizers.wrapped_step(optimizer, self._on_step))

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._removed:
            return plain(*args, **kwargs)
        reason = optimizers.call_reason(self._optimizer, plain, [*args, *kwargs.values()])
        self.barrier_reason = self._placement.stranger(self._optimizer) or reason
        if not self.closed or self._work.step is not None or self.barrier_reason is not None:
            self.open_all()
            self._in_step = True
            try:
                return plain(*args, **kwargs)
            finally:
                self._in_step = False
        return optimizers.announced(self._optimizer, self._put_off)

    def _put_off(self, optimizer: torch.optim.Optimizer) -> None:
        self._work.step = optimizers.Step(optimizer, self._placement.bucket_of, self._updated)
        self._work.step.apply(optimizers.NO_BUCKET)
        # Where a gate is open already, only the step must be awaited.
        self._close()
        self._sealed = {
            at: Sealed(bucket) for at, bucket in enumerate(self._placement.buckets)
        } | self._sealed

    def _on_zero_grad(
        self, plain: Callable[[bool], None], parameters: Callable[[], Any], set_to_none: bool = True
    ) -> None:
        if self._work.step is None:
            # Gradients in flight would be lost.
            self.open_all()
            plain(set_to_none)
            return
        own = [each for _, each in parameters()]
        waiting = [each for each in own if self._placement.bucket_of.get(id(each)) in self.closed]
        self._work.zero(waiting, set_to_none)
        others = [each for each in own if self._placement.bucket_of.get(id(each)) not in self.closed]
        optimizers.zero(others, set_to_none)
        if self._zeroed is not None and not set_to_none:
            self._zeroed(others)

    def _on_forward(self, model: torch.nn.Module, _inputs: Any) -> None:
        self._in_forward = True
        if self.closed and not (
            self._placement.uses is not None and model.training and torch.is_grad_enabled()
        ):
            self.open_all()

    def _on_forward_end(self, *_: Any) -> None:
        # Gradients that this forward did not use must be applied before backward adds to them.
        self.open_all()

    def _on_forward_left(self, *_: Any) -> None:
        self._in_forward = False

    def _observed(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the model's forward, and observe it until that has succeeded once."""
        if self._placement.uses is not None or not self._model.training or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        observer = Observer(self._model, (each for bucket in self._placement.buckets for each in bucket))
        with observer.watching():
            output = forward(*args, **kwargs)
        for module in {user for users in observer.uses.values() for user in users}:
            if module not in self._placement.layers:
                self._gate(module)
        self._placement.observed(observer)
        self.patches.put_back(self._model, "forward", self._model.__dict__)
        return output


def clip_grad_norm_(
    gates: Gates,
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    **options: Any,
) -> torch.Tensor:
    """Clip reduced gradients with `torch.nn.utils.clip_grad_norm_`, between backward and `optimizer.step()`.

    The norm covers all gradients, so it waits for all: the following `step()` has nothing left to wait for and runs at
    once.

    Args:
        gates: the model's gates.
        parameters: parameters whose gradients are clipped, in place.
        max_norm: upper limit of the norm of all gradients together; they are scaled down to it.
        norm_type: the norm's order.
        options: `error_if_nonfinite` and `foreach`, as in torch.

    Returns the norm before clipping; raises PeerError when a rank died.
    """
    gates.open_all()
    norm: torch.Tensor = clip_grad.clip_grad_norm_(parameters, max_norm, norm_type, **options)
    return norm


def _open_all(gates: Gates, *_: Any) -> None:
    gates.open_all()


def _named(gates: Gates, module: torch.nn.Module, name: str, *args: Any, **kwargs: Any) -> Any:
    gates.outside_forward()
    return getattr(type(module), name)(module, *args, **kwargs)


def _state(gates: Gates, owner: Any) -> Any:
    gates.open_all()
    getstate: Any = type(owner).__getstate__  # the owner's own is this function
    state = getstate(owner)
    return gates.patches.without(owner, state) if isinstance(state, dict) else state


def _deepcopy(gates: Gates, module: Any, memo: Any) -> Any:
    gates.open_all()
    return type(module).__deepcopy__(module, memo)


def _each(call: Callable[[Gates], None]) -> None:
    for gates in list(_alive):
        call(gates)


os.register_at_fork(
    before=functools.partial(_each, Gates.open_before_fork),
    after_in_child=functools.partial(_each, Gates.forget),
)

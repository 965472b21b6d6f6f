"""Splitting of one `optimizer.step()`: the same update, bucket by bucket, with the hyperparameters of the call.

This file knows optimizers and lists of parameters; `gates` decides when a bucket's turn comes. An update that reads one
parameter, its gradient and its state gives the same bits in any order of parameters; every other one needs all
gradients at once and is named by `barrier_reason`.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch.optim import optimizer as internals

from hocket.errors import UsageError
from hocket.torch.scales import Scales

# Each optimizer updates a parameter from that parameter, its gradient and its state alone. Missing: LBFGS, whose state is of all
# parameters together, and SparseAdam, whose gradients are not dense.
PER_PARAMETER = frozenset(
    {"ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon"}
    | {"NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
)
READERS = frozenset({"SGD", "Adam", "AdamW"})
"""Optimizers whose steps do not write to gradients, but for what `only_reads_gradients` names."""

NO_BUCKET = -1


def rates_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the numbers of the optimizer's groups, which schedulers change."""
    groups = optimizer.param_groups
    return [{name: value for name, value in group.items() if name != "params"} for group in groups]


def set_rates_of(optimizer: torch.optim.Optimizer, rates: Sequence[Mapping[str, Any]]) -> None:
    """Set the numbers of the optimizer's groups from another rank's."""
    for group, given in zip(optimizer.param_groups, rates, strict=True):
        group.update(given)


def itself(parameter: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the parameter, which is updated as a whole."""
    return (parameter,)


def barrier_reason(optimizer: torch.optim.Optimizer) -> str | None:
    """Return why `optimizer.step()` needs all gradients at once and all parameters right after; None if it does not.

    `optimizer.needs_all_gradients = False` declares that a foreign optimizer updates each parameter by itself; `True`
    keeps the barrier of any optimizer. A step hook may read gradients or parameters, so it keeps the barrier too,
    unless the function has the attribute `reads_nothing = True`.
    """
    kind = type(optimizer)
    name = kind.__name__
    hinted = getattr(optimizer, "needs_all_gradients", None)
    if hinted is not None:
        reason = f"{name}.needs_all_gradients is set" if hinted else None
    elif not _of_torch(optimizer):
        reason = f"{name} is not known to update each parameter by itself; if so, needs_all_gradients = False says it"
    else:
        reason = None
    if reason is None and any(group.get("differentiable") for group in optimizer.param_groups):
        reason = f"{name} is differentiable: its step is part of a graph"
    if reason is None and any(
        getattr(optimizer, each, None) is not None for each in ("grad_scale", "found_inf")
    ):
        reason = "a GradScaler decides from all gradients whether to step"
    return reason or _hook_reason(optimizer)


def call_reason(
    optimizer: torch.optim.Optimizer, plain: Callable[..., Any], arguments: Iterable[Any]
) -> str | None:
    """Return a reason as `barrier_reason` does, for a call of `step(*arguments)` in front of the method `plain`."""
    if any(each is not None for each in arguments):
        return "step() was called with a closure"
    if getattr(plain, "__self__", None) is not optimizer and not hasattr(plain, "_wrapped_by_lr_sched"):
        return f"step() was replaced by `{getattr(plain, '__qualname__', plain)}`"
    return barrier_reason(optimizer)


def of_closure(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the loss of the closure among the arguments of `step`; None: there is none. The closure is called once, as
    optimizers of `PER_PARAMETER` do before they read a gradient.
    """
    closure = next((each for each in (*args, *kwargs.values()) if each is not None), None)
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def loss_of_closure(optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the loss of the closure among the arguments of `step`, called once. UsageError: the optimizer may call it again."""
    if not _of_torch(optimizer):
        raise UsageError(
            f"{type(optimizer).__name__} was called with a closure, and gradients are merged or late: a closure that is "
            "called more than once needs those of its own backward\n"
            "hint: a plan without merged or late gradients"
        )
    return of_closure(args, kwargs)


def missing(optimizer: torch.optim.Optimizer, parameters: Iterable[int]) -> int | None:
    """Return the first of these `id`s of parameters that the optimizer lacks."""
    own = {id(each) for each in all_parameters(optimizer)}
    return next((key for key in parameters if key not in own), None)


def all_parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Return the parameters of all groups, in order."""
    return (each for group in optimizer.param_groups for each in group["params"])


def wrapped_step(
    optimizer: torch.optim.Optimizer,
    on_step: Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any],
) -> Callable[..., Any]:
    """Return a `step` method that calls `on_step(the previous method, args, kwargs)`."""
    plain = optimizer.step

    # Schedulers require a method whose function they can bind again, and look for their mark on the function. Of a method, the
    # signature would lack one argument.
    @functools.wraps(getattr(plain, "__func__", plain))
    def step(_optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        return on_step(plain, args, kwargs)

    return types.MethodType(step, optimizer)


def before_other_hooks(
    optimizer: torch.optim.Optimizer, call: Callable[..., None]
) -> torch.utils.hooks.RemovableHandle:
    """Call `call` after each step, before hooks that were registered earlier."""
    handle: torch.utils.hooks.RemovableHandle = optimizer.register_step_post_hook(call)
    optimizer._optimizer_step_post_hooks.move_to_end(handle.id, last=False)  # type: ignore[attr-defined]  # an OrderedDict
    return handle


def unwrap_step(optimizer: torch.optim.Optimizer, step: Callable[..., Any], before: Any) -> None:
    """Restore the `step` that was there before `wrapped_step`; None: the class's own. If others have wrapped this one since, it
    stays, and passes calls on."""
    if optimizer.__dict__.get("step") is not step:
        return
    if before is None:
        del optimizer.step
    else:
        optimizer.step = before  # type: ignore[method-assign]


def put_back(
    optimizer: torch.optim.Optimizer, zero_grad: Callable[..., None], before: Callable[..., None]
) -> None:
    """Restore the earlier `zero_grad`, unless others have wrapped this one in the meantime."""
    if optimizer.__dict__.get("zero_grad") is not zero_grad:
        return
    if getattr(before, "__func__", None) is type(optimizer).zero_grad:
        del optimizer.zero_grad
    else:
        optimizer.zero_grad = before  # type: ignore[method-assign]


def announced(optimizer: torch.optim.Optimizer, put_off: Callable[[torch.optim.Optimizer], None]) -> None:
    """Call `put_off(optimizer)` as torch calls a step: recorded by its profiler, with hooks, and noticed by schedulers."""
    # The state that a scheduler's wrapper below this one would have noted.
    optimizer._opt_called = True  # type: ignore[attr-defined]
    torch.optim.Optimizer.profile_hook_step(put_off)(optimizer)


def zero(parameters: Iterable[torch.Tensor], set_to_none: bool) -> None:
    """Apply `Optimizer.zero_grad` to some parameters."""
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            # A view, such as a gradient in a bucket, cannot be detached in place; it has no graph either.
            gradient = parameter.grad if parameter.grad.grad_fn is None else parameter.grad.detach_()
            gradient.requires_grad_(False).zero_()


def _of_torch(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether it is PyTorch's own optimizer of a kind that updates each parameter by itself."""
    kind = type(optimizer)
    return kind.__name__ in PER_PARAMETER and getattr(torch.optim, kind.__name__, None) is kind


def only_reads_gradients(optimizer: torch.optim.Optimizer, groups: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a step with these groups is known to leave gradients as they are. Nesterov's momentum is added to them where
    tensors are stepped in lists, and so is a weight decay that is a tensor; a fused step with a scale divides them by it."""
    return (
        _of_torch(optimizer)
        and type(optimizer).__name__ in READERS
        and getattr(optimizer, "grad_scale", None) is None
        and not any(
            group.get("nesterov") or isinstance(group.get("weight_decay"), torch.Tensor) for group in groups
        )
    )


def _hook_reason(optimizer: torch.optim.Optimizer) -> str | None:
    hooks = chain(
        internals._global_optimizer_pre_hooks.values(),
        internals._global_optimizer_post_hooks.values(),
        optimizer._optimizer_step_pre_hooks.values(),
        optimizer._optimizer_step_post_hooks.values(),
    )
    for hook in hooks:
        if not getattr(hook, "reads_nothing", False):
            name = getattr(hook, "__qualname__", type(hook).__name__)
            return f"the step hook `{name}` may read gradients or parameters; if not, set its reads_nothing = True"
    return None


class Step:
    """One call of `optimizer.step()` that waits for its buckets; each parameter is updated once."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        bucket_of: Mapping[int, int],
        updated: Callable[[torch.Tensor], Sequence[torch.Tensor]] = itself,
    ) -> None:
        """Keep the current hyperparameters.

        Args:
            optimizer: an optimizer without a `barrier_reason`.
            bucket_of: from a parameter's `id` to its bucket; parameters without one are applied as `NO_BUCKET`.
            updated: returns the tensors to update in place of a parameter; called when its bucket is applied.
        """
        self._optimizer, self._updated = optimizer, updated
        self._hyperparameters = [options_of(group) for group in optimizer.param_groups]
        self._parts: dict[int, dict[int, list[torch.Tensor]]] = {}
        for index, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                part = self._parts.setdefault(bucket_of.get(id(parameter), NO_BUCKET), {})
                part.setdefault(index, []).append(parameter)

    def apply(self, bucket: int) -> bool:
        """Update the bucket's parameters, and return whether it did; a second call does nothing, also after a failed step."""
        part = self._parts.pop(bucket, None)
        if part is None:
            return False
        optimizer = self._optimizer
        groups = [
            {
                **self._hyperparameters[index],
                "params": [each for parameter in parameters for each in self._updated(parameter)],
            }
            for index, parameters in part.items()
        ]
        with Regrouped(optimizer, groups), outside_forward():
            without_hooks(optimizer)(optimizer)
        return True


class Regrouped:
    """Body in which the optimizer has other groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
        """Change nothing before the body."""
        self._optimizer, self._others = optimizer, groups

    def __enter__(self) -> None:
        """Give the optimizer these groups."""
        self._groups, self._optimizer.param_groups = self._optimizer.param_groups, self._others

    def __exit__(self, *_: object) -> None:
        """Restore the groups."""
        self.end()

    def end(self) -> None:
        """Restore the groups before the body ends."""
        self._optimizer.param_groups = self._groups


class Rates:
    """Factors of learning rates, one for each parameter, in one optimizer's steps: rates for batches of other sizes."""

    def __init__(self, optimizer: torch.optim.Optimizer, scales: Scales) -> None:
        """Wrap the optimizer's `step`; until factors are given, nothing changes."""
        self._optimizer, self._scales = optimizer, scales
        self._factors: Mapping[int, float] = {}
        self._awaited = self._ended = False
        optimizer.step = wrapped_step(optimizer, self._on_step)  # type: ignore[method-assign]

    def of_next_step(self, factors: Mapping[int, float]) -> None:
        """Set factors of the next step by parameters' `id`; other parameters keep their rate."""
        self._factors = {key: factor for key, factor in factors.items() if factor != 1}
        self._awaited = True
        self._scales.await_step()

    def end(self) -> None:
        """Use no more factors."""
        self._ended = True

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._ended:
            return plain(*args, **kwargs)
        optimizer = self._optimizer
        if any(each is not None for each in [*args, *kwargs.values()]):
            loss = loss_of_closure(optimizer, args, kwargs)
            self._on_step(plain, (), {})
            return loss
        if not self._awaited:
            return plain(*args, **kwargs)
        factors, self._factors, self._awaited = self._factors, {}, False
        skips = self._scales.skips(self._scales.called())
        if not factors and not skips:
            return plain(*args, **kwargs)
        groups = [part for group in optimizer.param_groups for part in _by_factor(group, factors)]
        if skips:
            groups = [{**group, "params": []} for group in optimizer.param_groups]
        with Regrouped(optimizer, groups):
            return plain(*args, **kwargs)


def _by_factor(group: dict[str, Any], factors: Mapping[int, float]) -> Iterator[dict[str, Any]]:
    """Yield a group in parts with one learning rate each."""
    parts: dict[float, list[torch.Tensor]] = {}
    for parameter in group["params"]:
        parts.setdefault(factors.get(id(parameter), 1.0), []).append(parameter)
    for factor, parameters in parts.items():
        yield {**group, "params": parameters, "lr": group["lr"] * factor}


@contextlib.contextmanager
def outside_forward() -> Iterator[None]:
    """Run code inside as between two forwards, whatever mode the forward around it has."""
    with contextlib.ExitStack() as modes:
        # State made in inference mode could never be updated again.
        if torch.is_inference_mode_enabled():
            modes.enter_context(torch.inference_mode(False))
        # Adafactor and Muon multiply matrices.
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                modes.enter_context(torch.autocast(device, enabled=False))
        yield


def without_hooks(optimizer: torch.optim.Optimizer) -> Callable[[torch.optim.Optimizer], Any]:
    """Return the class's own update: hooks run once per logical step, not once per bucket."""
    step: Any = type(optimizer).step
    update: Callable[[torch.optim.Optimizer], Any] = (
        step.__wrapped__ if getattr(step, "hooked", False) else step
    )
    return update


def options_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's options as they are now, without its parameters."""
    return {key: kept(value) for key, value in group.items() if key != "params"}


def kept(value: Any) -> Any:
    """Return a hyperparameter's current value; schedulers change tensors in place."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(kept(each) for each in value)
    return value

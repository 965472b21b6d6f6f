"""A `GradScaler` where gradients are merged or late: which factor gradients of each iteration have, and what the scaler is told.

A scaler looks at the gradients that a step has. Where means arrive later, these are the rank's own, or there are none. So the steps
that it makes come here (`Scales.called`): they look at the means that arrive, which are the same bits on all ranks, and tell
the scaler whether those have overflowed. Thus the factor is the same on all ranks in each iteration.

A turn of several iterations is as an accumulated step: its sum has one factor, that of its last iteration, and one gradient that
overflows leaves all of it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import ref

import torch
from torch.amp.grad_scaler import OptState

from hocket.errors import UsageError
from hocket.training.memory.buckets import LoadedBucket

_latest: ref[torch.amp.GradScaler] | None = None
"""Scaler that has scaled or stepped last."""

LOOKS = "_hocket_looks"
"""Attribute of an optimizer: calls before a scaler looks at its gradients."""


class Call:
    """Step of the optimizer that a scaler makes."""

    def __init__(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        """Take over from the scaler, which calls `step`."""
        self._scaler, self._optimizer = scaler, optimizer
        self._unscaled = optimizer.grad_scale is None  # type: ignore[attr-defined]
        # Fused optimizers would unscale by these, and the others do not know them. The scaler removes them.
        optimizer.grad_scale = optimizer.found_inf = None  # type: ignore[attr-defined]

    def unscale(self) -> bool:
        """Unscale the gradients, unless the script has; return whether all are finite."""
        if not self._unscaled:
            self._scaler.unscale_(self._optimizer)
        return not any(bool(each.item()) for each in self._found.values())

    def tell(self, overflowed: bool) -> None:
        """Tell the scaler whether gradients have overflowed, in place of what it has found."""
        device = torch.device(self._scaler._device)
        self._found.clear()
        self._found[device] = torch.full((), float(overflowed), device=device)

    @property
    def _found(self) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = self._scaler._found_inf_per_device(  # type: ignore[assignment]  # of devices
            self._optimizer
        )
        return found


class Scales:
    """Factors of one optimizer's gradients; see `hocket.training.memory.framework.Scales`.

    The scaler is known from its first step on. In an iteration before, it is the one that has scaled a loss last.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        """Begin without a scaler."""
        self._optimizer = optimizer
        self._own: ref[torch.amp.GradScaler] | None = None
        self._known = False
        self._of: dict[int, float] = {}
        self._now: float | None = None
        self._given: list[int] = []
        """Iterations whose means the optimizer is given."""
        self._relied = self._overflowed = self._awaits = self._by_hand = False
        """True if sums of other iterations were changed for `_now`; if an overflow is to be told; if steps come to `called`; in a
        step that is not the script's."""

    @property
    def used(self) -> bool:
        """True if the last step was a scaler's, or if none was made and there is a scaler."""
        return self._scaler() is not None

    @property
    def unscaled(self) -> bool:
        """True if the script has unscaled the gradients that it has now."""
        scaler = self._scaler()
        if scaler is None:
            return False
        states = scaler._per_optimizer_states
        key = id(self._optimizer)
        return key in states and states[key]["stage"] is OptState.UNSCALED

    @property
    def now(self) -> float:
        """Factor of the gradients of the iteration that is under way."""
        if self._now is None:
            self._now = self._factor()
        return self._now

    @property
    def last(self) -> float | None:
        """Factor of the last iteration whose backward has ended; None: there was none."""
        return self._of[max(self._of)] if self._of else None

    def carry(self, sum_: torch.Tensor) -> None:
        """Bring a sum of gradients up to the last iteration to the factor of the one under way, whose gradient is to be added."""
        self._relied = True
        if self.last is not None and self.now != self.last:
            sum_.mul_(self.now / self.last)

    def made(self, iteration: int, applied: int) -> None:
        """Note the factor of an iteration."""
        self._of = {at: factor for at, factor in self._of.items() if at >= applied}
        self._of[iteration] = self.now

    def of(self, iteration: int) -> float:
        """Return the factor of a turn that ends with this iteration."""
        return self._of.get(iteration, 1.0)

    def give(self, mean: LoadedBucket, iterations: range) -> None:
        """Bring a mean to the factor of the last iteration."""
        self._given += iterations
        self._relied = self._relied or iterations[-1] != max(self._of, default=iterations[-1])
        factor = (self.last or 1.0) / self.of(iterations[-1])
        if factor != 1.0:
            torch._foreach_mul_(list(mean.views), factor)

    def step(self) -> None:
        """Step with the means that were given, without a step of the script's. Those that overflowed are left out."""
        optimizer = self._optimizer
        if self.used:
            gradients = [
                each.grad
                for group in optimizer.param_groups
                for each in group["params"]
                if each.grad is not None
            ]
            torch._foreach_mul_(gradients, 1 / (self.last or 1.0))
            if not finite(gradients):
                self.overflow(self._given)
                for group in optimizer.param_groups:
                    for each in group["params"]:
                        each.grad = None
        self._by_hand = True
        try:
            optimizer.step()
        finally:
            self._by_hand, self._given = False, []

    def saved(self) -> Mapping[int, float]:
        """Return the factors of iterations whose gradients are not applied."""
        return dict(self._of)

    def restore(self, saved: Mapping[int, float]) -> None:
        """Restore what was saved."""
        self._of = dict(saved)

    # Steps.

    def await_step(self) -> None:
        """Let the optimizer's next step be one in which a scaler asks `called`."""
        if not self._awaits:
            # A scaler steps such an optimizer whatever it finds in gradients.
            self._before = self._optimizer.__dict__.get("_step_supports_amp_scaling")
            self._optimizer._step_supports_amp_scaling = self._awaits = True  # type: ignore[attr-defined]

    def called(self) -> Call | None:
        """Return the scaler's call if this step is one. UsageError: gradients have another factor than sums on their way."""
        self.forget_step()
        if self._by_hand:
            return None
        optimizer, call, factor = self._optimizer, None, 1.0
        scaler = None if _latest is None else _latest()
        if getattr(optimizer, "found_inf", None) is None:
            scaler = None
        elif scaler is not None:
            call, factor = Call(scaler, optimizer), scaler.get_scale()
        if factor != self.now and self._relied:
            raise UsageError(
                f"gradients are scaled by {factor:g} in this step, and merged or late ones were taken to be by {self.now:g}\n"
                "hint: hk.flush(model) before a GradScaler is used for the first time, or no longer; update() after step()"
            )
        if self._of:
            self._of[max(self._of)] = factor
        self._own, self._known = None if scaler is None else ref(scaler), True
        self._now, self._relied = None, False
        return call

    def overflow(self, iterations: Iterable[int]) -> None:
        """Note that means of these iterations have overflowed, to be told with the next call. If their factor was larger than it is
        now, that says nothing of it."""
        self._overflowed = self._overflowed or max(map(self.of, iterations)) <= self._factor()

    def skips(self, call: Call | None) -> bool:
        """Return whether the means that were given have overflowed, so that the call leaves them out; tell the scaler so."""
        given, self._given = self._given, []
        if call is None:
            return False
        skips = not call.unscale()
        if skips:
            self.overflow(given)
        self.tell(call)
        return skips

    def tell(self, call: Call) -> None:
        """Tell the scaler of overflows that were noted since the last call."""
        call.tell(self._overflowed)
        self._overflowed = False

    def forget_step(self) -> None:
        """Let scalers step the optimizer as they would without Hocket."""
        if not self._awaits:
            return
        self._awaits = False
        if self._before is None:
            del self._optimizer._step_supports_amp_scaling  # type: ignore[attr-defined]
        else:
            self._optimizer._step_supports_amp_scaling = self._before  # type: ignore[attr-defined]

    def _factor(self) -> float:
        scaler = self._scaler()
        return 1.0 if scaler is None else scaler.get_scale()

    def _scaler(self) -> torch.amp.GradScaler | None:
        known = self._own if self._known else _latest
        return None if known is None else known()


def finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether all elements are finite."""
    if not tensors:
        return True
    largest = torch._foreach_norm(list(tensors), torch.inf)
    return bool(torch.stack(list(largest)).isfinite().all())


def _noting(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def noting(scaler: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> Any:
        global _latest  # noqa: PLW0603
        if scaler.is_enabled():
            _latest = ref(scaler)
            for call in tuple(getattr(args[0], LOOKS, {}).values()) if args else ():
                call()
        return plain(scaler, *args, **kwargs)

    return noting


class Look:
    """Call before a scaler looks at an optimizer's gradients, until `remove`."""

    def __init__(self, optimizer: torch.optim.Optimizer, call: Callable[[], object]) -> None:
        """Have it called from now on."""
        self._optimizer, self.id = optimizer, id(self)
        optimizer.__dict__.setdefault(LOOKS, {})[self.id] = call

    def remove(self) -> None:
        """Have it called no longer, and leave nothing; idempotent."""
        calls = self._optimizer.__dict__.get(LOOKS, {})
        calls.pop(self.id, None)
        if not calls:
            self._optimizer.__dict__.pop(LOOKS, None)


# A scaler leaves no other mark on a loss or an optimizer.
torch.amp.GradScaler.scale = _noting(torch.amp.GradScaler.scale)  # type: ignore[method-assign]
torch.amp.GradScaler.unscale_ = _noting(torch.amp.GradScaler.unscale_)  # type: ignore[method-assign]
torch.amp.GradScaler.step = _noting(torch.amp.GradScaler.step)  # type: ignore[method-assign]

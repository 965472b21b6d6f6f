"""Anchor of a model whose gradients arrive late, and the working copies with which its script trains.

The script's own parameters and optimizer state are the *working* ones. The anchor has a copy of both (`anchor_values`), and is what
others see: in `state_dict` of the model and of the optimizer, and in digests that ranks compare. Each step of the optimizer by
the script is either an own step or, for parameters whose turn arrives, a step of the anchor, from which own steps start anew.

An iteration's options (learning rate, decay, betas) are those of the script's call of `step` in that iteration, whenever the
anchor steps with its gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.anchor_values import Groups, Values, copy_state
from hocket.torch.clips import Clip, Clips
from hocket.torch.forward_hooks import WithArguments
from hocket.torch.own_gradients import OwnGradients
from hocket.torch.packing import packed, unpacked
from hocket.torch.scaled_rates import as_in_step
from hocket.torch.scales import Scales, finite
from hocket.training.memory.anchor import Arrival, Pending


class Anchor:
    """Anchor of one model and its optimizer; see `hocket.training.memory.anchor.Anchor`. `gradients`: the rank's own."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        trained: Mapping[str, torch.nn.Parameter],
        scales: Scales,
    ) -> None:
        """Change nothing until `begin`."""
        self._model, self._optimizer, self._trained = model, optimizer, trained
        self._scales, self._unscaled = scales, True
        self.gradients = OwnGradients(trained, scales)
        self._values = Values(optimizer, trained)
        self._clips = Clips()
        self._options: dict[int, Groups] = {}
        self._next: tuple[int, Sequence[Arrival]] | None = None
        self._lacks = self._lacked = range(0)
        """Iterations of which the anchor lacks gradients, after the next step and after the last one."""
        self._on = self._ends = False
        self._under_way: optimizers.Regrouped | None = None
        self._left: dict[str, tuple[int, int]] = {}
        """Version and place of each parameter after the last step, by which changes of the script are noticed."""
        self._undo: list[Callable[[], None]] = []
        self._unwrap: Callable[[], None] | None = None
        """Function that takes the optimizer's `step` from this; None: it has its own."""

    @property
    def awaits_step(self) -> bool:
        """True if gradients are the rank's own, and wait for the optimizer's step."""
        return self._next is not None

    def values(self) -> Mapping[str, torch.Tensor]:
        """Return the anchor's parameters by name, as far as they are not the script's own."""
        return self._values.parameters

    @property
    def held_bytes(self) -> int:
        """Bytes of the anchor's parameters and state."""
        return self._values.held_bytes

    def begin(self) -> None:
        """Expect own gradients from the next backward on, which may be in a closure of the next step."""
        self._on, self._ends = True, False
        if self._unwrap is None:
            optimizer = self._optimizer
            before = optimizer.__dict__.get("step")
            step = optimizers.wrapped_step(optimizer, self._on_step)
            optimizer.step = step  # type: ignore[method-assign]
            self._unwrap = functools.partial(optimizers.unwrap_step, optimizer, step, before)

    def next_step(self, iteration: int, arrivals: Sequence[Arrival], *, lacks: range) -> None:
        """Let the optimizer's next step go on from own gradients, and take the arrivals."""
        self._install()
        self._next, self._lacks = (iteration, arrivals), lacks
        self._scales.await_step()
        self.gradients.seal()

    def settle(self, rounds: Sequence[Sequence[Arrival]]) -> None:
        """Take arrivals without a step of the script."""
        self._copy_anew()
        for arrivals in rounds:
            self._arrive(arrivals, replays=False)
        self._lacks = range(0)
        self._note()

    def end(self) -> None:
        """Let the rank train at the anchor itself, once it lacks nothing."""
        self._on, self._ends = False, True
        if self._next is None:
            self._drop()

    def release(self) -> None:
        """Leave the model and its optimizer as they were before, with the values that the script has."""
        for undo in reversed(self._undo):
            undo()
        if self._unwrap is not None:
            self._unwrap()
        self._undo, self._unwrap, self._on = [], None, False
        self._drop()

    def clip(self, max_norm: float, norm_type: float) -> torch.Tensor:
        """Clip the gradients that the next step applies: own ones now, those of the anchor when they arrive. Return an estimate of
        the norm that the mean will have. UsageError: there are none."""
        if self._next is None:
            raise UsageError(
                "clip: no backward has made gradients\nhint: call it after backward, before step()"
            )
        gradients = [each.grad for each in self._trained.values() if each.grad is not None]
        self._unscaled = self._scales.unscaled
        norm = self._clips.ask(self._next[0], max_norm, norm_type, gradients)
        self.gradients.seal()
        return norm

    # The step.

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        loss = None
        if self._on and any(each is not None for each in (*args, *kwargs.values())):
            loss = optimizers.loss_of_closure(self._optimizer, args, kwargs)
            args, kwargs = (), {}
        if self._next is None:
            if self._on and self._values.parameters:
                raise UsageError(
                    "optimizer.step() without a backward that communicates since the last one: own gradients are stepped once\n"
                    "hint: one step after each backward; `with model.no_sync():` around those that only accumulate"
                )
            return plain(*args, **kwargs)
        self.gradients.check_sealed()
        (iteration, arrivals), self._next = self._next, None
        call = self._scales.called()
        if call is not None and iteration in self._clips.asked and not self._unscaled:
            raise UsageError(
                "clip: gradients are scaled by a GradScaler, and were clipped as they are\n"
                "hint: scaler.unscale_(optimizer) before hk.clip_grad_norm_(model, …)"
            )
        fits = call is None or call.unscale()
        self._copy_anew()
        with as_in_step(self._optimizer):
            self._options[iteration] = [
                optimizers.options_of(group) for group in self._optimizer.param_groups
            ]
        arrived = self._arrive(arrivals, replays=True)
        if call is not None:
            self._scales.tell(call)
        others = [
            {**group, "params": [each for each in group["params"] if fits and id(each) not in arrived]}
            for group in self._optimizer.param_groups
        ]
        self._under_way = optimizers.Regrouped(self._optimizer, others)
        with self._under_way:
            plain()
            self._after_step()
        return loss

    def _after_step(self, *_: object) -> None:
        """Note what the step under way has left: before other hooks of the step, which may flush."""
        if self._under_way is not None:
            self._under_way.end()
            self._under_way = None
            self._note()

    def _arrive(self, arrivals: Sequence[Arrival], *, replays: bool) -> set[int]:
        """Step the anchor by the arrivals, and start own steps anew from there; return the `id`s of their parameters."""
        known = self._values.parameters
        named = [name for each in arrivals for name in each.mean.names if name in known]
        with torch.no_grad(), optimizers.outside_forward():
            if self._fit(arrivals):
                self._step_anchor(arrivals)
            self._values.give(named)
            if replays:
                self._replay(arrivals)
        return {id(self._trained[name]) for name in named}

    def _fit(self, arrivals: Sequence[Arrival]) -> bool:
        """Unscale what arrives; return whether all means are finite, without which none is stepped with: the same on all ranks."""
        if not self._scales.used:
            return True
        for each in arrivals:
            factor = 1 / self._scales.of(each.iterations[-1])
            torch._foreach_mul_([*each.mean.views, *each.own.views], factor)
        fit = finite([view for each in arrivals for view in each.mean.views])
        if not fit:
            self._scales.overflow(iteration for each in arrivals for iteration in each.iterations)
        return fit

    def _step_anchor(self, arrivals: Sequence[Arrival]) -> None:
        self._clips.arrive(arrivals)
        for at in range(max((len(each.iterations) for each in arrivals), default=0)):
            # Steps of one iteration, in which all have the same options, are one.
            steps: dict[tuple[int, float], dict[str, torch.Tensor]] = {}
            for each in arrivals:
                if at < len(each.iterations):
                    means = steps.setdefault((each.iterations[at], each.factor), {})
                    means |= self._stepping(each.mean.names, each.mean.views, each.unmade)
            for (iteration, factor), means in steps.items():
                scale = self._clips.of_mean(iteration)
                self._values.step(means, self._options.get(iteration), scale, factor)

    def _replay(self, arrivals: Sequence[Arrival]) -> None:
        """Step with the rank's own gradients of the turns that the anchor lacks."""
        own = {name: each.grad for name, each in self._trained.items()}
        for at in range(max((len(each.pending) for each in arrivals), default=0)):
            turns = [each.pending[at] for each in arrivals if at < len(each.pending)]
            means = [self._own_mean(turn) for turn in turns]
            if self._scales.used and not finite([each for mean in means for each in mean.values()]):
                # All ranks will leave this turn out.
                continue
            for place in range(max(len(turn.iterations) for turn in turns)):
                steps: dict[int, dict[str, torch.Tensor]] = {}
                for turn, mean in zip(turns, means, strict=True):
                    if place < len(turn.iterations):
                        steps.setdefault(turn.iterations[place], {}).update(mean)
                for iteration, gradients in steps.items():
                    scale = self._clips.of_own(iteration)
                    self._values.step_own(gradients, self._options.get(iteration), scale)
        for name, gradient in own.items():
            self._trained[name].grad = gradient

    def _own_mean(self, turn: Pending) -> dict[str, torch.Tensor]:
        own = self._stepping(turn.sums.names, turn.sums.views, turn.unmade)
        count = len(turn.iterations) * self._scales.of(turn.iterations[-1])
        return own if count == 1 else {name: each / count for name, each in own.items()}

    def _stepping(
        self, names: Sequence[str], views: Sequence[torch.Tensor], unmade: Iterable[str]
    ) -> dict[str, torch.Tensor]:
        """Return gradients of parameters that the optimizer has, without those that were not made."""
        left = set(unmade)
        known = self._values.parameters
        return {
            name: view for name, view in zip(names, views, strict=True) if name in known and name not in left
        }

    # Begin and end.

    def _copy_anew(self) -> None:
        """Copy what the script has, unless that was done and nothing has changed since. UsageError: it has changed, and means
        are on their way for what it was."""
        changed = next((name for name, at in self._left.items() if at != _place(self._trained[name])), None)
        if changed is not None and self._lacked:
            raise UsageError(
                f"`{changed}` was changed between two steps, while gradients are on their way: means of all ranks will be "
                "applied to it as it was\nhint: hk.flush(model) before parameters are changed or loaded"
            )
        if changed is not None or not self._values.parameters:
            self._values.copy()

    def _note(self) -> None:
        """Note what a step has left."""
        self._lacked = self._lacks
        for iteration in self._options.keys() - set(self._lacked):
            del self._options[iteration]
        for iteration in self._clips.asked.keys() - set(self._lacked):
            del self._clips.asked[iteration]
        self._left = {name: _place(self._trained[name]) for name in self._values.parameters}
        self.gradients.stepped()
        if self._ends:
            self._drop()

    def _drop(self) -> None:
        """Forget the anchor: the script's own parameters are that."""
        self._values.drop()
        self._clips = Clips()
        self.gradients.forget()
        self._options, self._left = {}, {}
        self._next, self._ends, self._lacks, self._lacked = None, False, range(0), range(0)

    # What others see.

    def _install(self) -> None:
        """Add hooks, unless they are there. `begin` cannot: it may be called from a hook of the step."""
        if self._undo:
            return
        optimizer = self._optimizer
        handles = [
            optimizers.before_other_hooks(optimizer, self._after_step),
            self._model.register_state_dict_post_hook(WithArguments(self._values.in_model_state)),
            optimizer.register_state_dict_post_hook(self._values.in_optimizer_state),
            optimizer.register_load_state_dict_post_hook(self._loaded),
        ]
        self._undo = [handle.remove for handle in handles]

    def _loaded(self, _optimizer: torch.optim.Optimizer) -> None:
        if self._lacked:
            raise UsageError(
                "optimizer.load_state_dict while gradients are on their way\nhint: hk.flush(model) before it"
            )
        self._values.drop()

    # Checkpoints.

    def saved(self) -> npt.NDArray[np.uint8]:
        """Return the working copies, and options of iterations that the anchor lacks."""
        names = self._values.parameters
        if not names:
            return np.empty(0, np.uint8)
        held = {
            "working": {name: self._trained[name].detach() for name in names},
            "states": {name: dict(self._optimizer.state.get(self._trained[name], {})) for name in names},
            "options": self._options,
            "clips": {at: tuple(each) for at, each in self._clips.asked.items()},
            "growth": self._clips.growth,
            "lacked": (self._lacked.start, self._lacked.stop),
        }
        return np.frombuffer(packed(held), np.uint8)

    def restore(self, saved: npt.NDArray[np.uint8]) -> None:
        """Go on from what was saved. UsageError: it is of another model."""
        if not saved.size:
            return
        held = unpacked(saved.tobytes())
        self._install()
        self._values.copy()
        if held["working"].keys() != self._values.parameters.keys():
            raise UsageError("load_state_dict: a rank's own parameters are those of another model")
        with torch.no_grad():
            for name, value in held["working"].items():
                self._trained[name].copy_(value)
                copy_state(held["states"][name], self._optimizer.state[self._trained[name]])
        self._options = dict(held["options"])
        self._clips.asked = {at: Clip(*each) for at, each in held["clips"].items()}
        self._clips.growth, self._lacks = held["growth"], range(*held["lacked"])
        self._note()


def _place(parameter: torch.Tensor) -> tuple[int, int]:
    return parameter._version, parameter.data_ptr()

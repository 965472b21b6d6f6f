"""Anchor of a model whose gradients arrive late, and the working copies with which its script trains.

The script's own parameters and optimizer state are the *working* ones. The anchor has a copy of both, and is what others see: in
`state_dict` of the model and of the optimizer, and in digests that ranks compare. Each step of the optimizer by the script
is either an own step or, for parameters whose turn arrives, a step of the anchor, from which own steps start anew.

An iteration's options (learning rate, decay, betas) are those of the script's call of `step` in that iteration, whenever the
anchor steps with its gradients.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt
import torch

from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.announced import Sealed
from hocket.torch.forward_hooks import WithArguments
from hocket.training.memory.anchor import Arrival, Pending

Groups = list[dict[str, Any]]
"""Options of the optimizer's groups, without parameters."""


class Clip:
    """Request to clip the gradients of one iteration, and the norm of the rank's own ones."""

    def __init__(self, max_norm: float, norm_type: float, own: float) -> None:
        self.max_norm, self.norm_type, self.own = max_norm, norm_type, own

    def factor(self, norm: float) -> float:
        """Return the factor of gradients with this norm."""
        return min(1.0, self.max_norm / (norm + 1e-6))


class Anchor:
    """Anchor of one model and its optimizer."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        trained: Mapping[str, torch.nn.Parameter],
    ) -> None:
        """Change nothing until the first `next_step`."""
        self._model, self._optimizer, self._trained = model, optimizer, trained
        self._values: dict[str, torch.nn.Parameter] = {}
        """Anchor's parameters by name; empty: the script's own are the anchor."""
        self._state: dict[torch.Tensor, Any] = defaultdict(dict)
        self._next: tuple[int, Sequence[Arrival]] | None = None
        self._options: dict[int, Groups] = {}
        self._clips: dict[int, Clip] = {}
        self._norms: dict[tuple[str, ...], tuple[float, float]] = {}
        """By the names of a turn's gradients, the norms of the last mean and of this rank's own one."""
        self._lacks = self._lacked = range(0)
        """Iterations of which the anchor lacks gradients, after the next step and after the last one."""
        self._on = self._ends = False
        self._sealed: Sealed | None = None
        self._stepped: dict[str, Any] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._undo: list[Callable[[], None]] = []
        self._growth = 1.0
        """Norm of the mean over that of this rank's own gradients, as they arrived last."""
        self._saved: Mapping[str, Any] | None = None

    @property
    def awaits_step(self) -> bool:
        """True if gradients are the rank's own, and wait for the optimizer's step."""
        return self._next is not None

    def values(self) -> Mapping[str, torch.Tensor]:
        """Return the anchor's parameters by name, as far as they differ from the script's."""
        return self._values

    def begin(self) -> None:
        """See `hocket.training.memory.anchor.Anchor`."""
        if not self._undo:
            self._install()
        self._on, self._ends = True, False

    def next_step(self, iteration: int, arrivals: Sequence[Arrival], *, lacks: range) -> None:
        """See `hocket.training.memory.anchor.Anchor`."""
        self._next, self._lacks = (iteration, arrivals), lacks
        self._sealed = Sealed(self._trained.values())

    def settle(self, rounds: Sequence[Sequence[Arrival]]) -> None:
        """See `hocket.training.memory.anchor.Anchor`."""
        self._check_places()
        for arrivals in rounds:
            self._arrive(arrivals, replays=False)
        self._lacks = range(0)
        self._note()
        if self._ends:
            self._drop()

    def end(self) -> None:
        """See `hocket.training.memory.anchor.Anchor`."""
        self._on, self._ends = False, True
        if self._next is None:
            self._drop()

    def release(self) -> None:
        """Leave the model and its optimizer as they were before, with the values that the script has."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        self._drop()

    # Gradients.

    def copy(self, name: str, view: torch.Tensor, *, add: bool) -> None:
        """See `hocket.training.memory.anchor.Anchor`."""
        gradient = self._trained[name].grad
        if gradient is None:
            if not add:
                view.zero_()
            return
        before = self._stepped.pop(name, None)
        if before is not None and before() is gradient:
            raise UsageError(
                f"the gradient of `{name}` is that of the last step, or was added to it\n"
                "hint: optimizer.zero_grad() before each backward"
            )
        if gradient.dtype != view.dtype or gradient.shape != view.shape:
            raise UsageError(
                f"the gradient of `{name}` is {list(gradient.shape)} of {gradient.dtype}, it was {list(view.shape)} of "
                f"{view.dtype} when the model was distributed\nhint: change the model before `distribute`"
            )
        with torch.no_grad():
            dense = gradient.to_dense() if gradient.is_sparse else gradient
            if add:
                view.add_(dense)
            else:
                view.copy_(dense)

    def detach(self, name: str) -> None:
        """Move the gradient out of memory in which sums travel."""
        parameter = self._trained[name]
        if parameter.grad is not None:
            parameter.grad = parameter.grad.detach().clone()

    def zeroed(self, names: Iterable[str]) -> None:
        """See `hocket.training.memory.anchor.Anchor`."""
        for name in names:
            self._stepped.pop(name, None)

    def clip(self, max_norm: float, norm_type: float) -> torch.Tensor:
        """Clip the gradients that the next step applies: own ones now, those of the anchor when they arrive. Return an estimate of
        the norm that the mean will have."""
        if self._next is None:
            raise UsageError("clip_grad_norm_: no backward has made gradients\nhint: call it after backward, before step()")
        owned = [each.grad for each in self._trained.values() if each.grad is not None]
        norm = torch.nn.utils.get_total_norm(owned, norm_type)
        made = Clip(max_norm, norm_type, float(norm))
        self._clips[self._next[0]] = made
        _scale(owned, made.factor(made.own * self._growth))
        self._sealed = Sealed(self._trained.values())
        return norm * self._growth

    # The step.

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        loss = None
        if self._on and any(each is not None for each in (*args, *kwargs.values())):
            loss = optimizers.loss_of_closure(self._optimizer, args, kwargs)
            args, kwargs = (), {}
        if self._next is None:
            if self._on:
                raise UsageError(
                    "optimizer.step() without a backward since the last one: each rank steps with its own gradients, which are "
                    "counted\nhint: one step after each backward that communicates"
                )
            return plain(*args, **kwargs)
        iteration, arrivals = self._next
        changed = None if self._sealed is None else self._sealed.changed()
        if changed is not None:
            raise UsageError(
                f"the gradient of `{self._name(changed)}` was changed between backward and step: that is this rank's own one, and "
                "the mean of all ranks, which arrives later, would not be changed\n"
                "hint: hk.clip_grad_norm_(model, …) clips both; or a plan without late gradients"
            )
        self._next = self._sealed = None
        self._begin()
        self._options[iteration] = [_options(group) for group in self._optimizer.param_groups]
        arrived = self._arrive(arrivals, replays=True)
        if arrived:
            groups = self._optimizer.param_groups
            self._optimizer.param_groups = [
                {**group, "params": [each for each in group["params"] if id(each) not in arrived]}
                for group in groups
            ]
            try:
                plain()
            finally:
                self._optimizer.param_groups = groups
        else:
            plain()
        self._note()
        if self._ends:
            self._drop()
        return loss

    def _arrive(self, arrivals: Sequence[Arrival], *, replays: bool) -> set[int]:
        """Step the anchor by the arrivals, and start own steps anew from there; return the `id`s of their parameters."""
        named = [each for arrival in arrivals for each in arrival.mean.names if each in self._values]
        with torch.no_grad(), optimizers.outside_forward():
            self._step_anchor(arrivals)
            self._start_anew(named)
            if replays:
                self._replay(arrivals)
        return {id(self._trained[name]) for name in named}

    def _step_anchor(self, arrivals: Sequence[Arrival]) -> None:
        clip = self._clip_of(arrivals)
        norm = 0.0 if clip is None else self._arrived_norm(arrivals, clip.norm_type)
        for at in range(max((len(each.iterations) for each in arrivals), default=0)):
            steps: dict[tuple[int, float], dict[str, torch.Tensor]] = {}
            for each in arrivals:
                if at < len(each.iterations):
                    found = steps.setdefault((each.iterations[at], each.factor), {})
                    found.update(
                        (name, view)
                        for name, view in zip(each.mean.names, each.mean.views, strict=True)
                        if name in self._values and name not in each.unmade
                    )
            for (iteration, factor), means in steps.items():
                asked = self._clips.get(iteration)
                scaled = _scaled(means, 1.0 if asked is None else asked.factor(norm))
                stepped = {name: self._values[name] for name in means}
                for name, anchor in stepped.items():
                    anchor.grad = scaled[name]
                with self._as_state(self._state):
                    self._step(iteration, stepped, factor)
                for anchor in stepped.values():
                    anchor.grad = None

    def _arrived_norm(self, arrivals: Sequence[Arrival], norm_type: float) -> float:
        """Return the norm of the mean over all parameters: as it arrived last, where nothing arrives now."""
        for each in arrivals:
            own = _norm(each.own.views, norm_type) / len(each.iterations)
            self._norms[tuple(each.mean.names)] = _norm(each.mean.views, norm_type), own
        norm, own = (
            _norm([torch.tensor(each) for each in norms], norm_type)
            for norms in zip(*self._norms.values(), strict=True)
        )
        self._growth = norm / own if own > 0 and math.isfinite(norm / own) else 1.0
        return norm

    def _start_anew(self, names: Sequence[str]) -> None:
        """Set working parameters and their state to the anchor's."""
        if not names:
            return
        torch._foreach_copy_(
            [self._trained[name].detach() for name in names], [self._values[name].detach() for name in names]
        )
        state = self._optimizer.state
        for name in names:
            _copy_state(self._state.get(self._values[name], {}), state[self._trained[name]])

    def _replay(self, arrivals: Sequence[Arrival]) -> None:
        """Step with the rank's own gradients of the turns that the anchor lacks."""
        own = {name: each.grad for name, each in self._trained.items()}
        for at in range(max((len(each.pending) for each in arrivals), default=0)):
            turns = [each.pending[at] for each in arrivals if at < len(each.pending)]
            means = [self._own_mean(turn) for turn in turns]
            for place in range(max(len(turn.iterations) for turn in turns)):
                steps: dict[int, dict[str, torch.Tensor]] = {}
                for turn, mean in zip(turns, means, strict=True):
                    if place < len(turn.iterations):
                        steps.setdefault(turn.iterations[place], {}).update(mean)
                for iteration, gradients in steps.items():
                    asked = self._clips.get(iteration)
                    factor = 1.0 if asked is None else asked.factor(asked.own * self._growth)
                    for name, gradient in _scaled(gradients, factor).items():
                        self._trained[name].grad = gradient
                    self._step(iteration, {name: self._trained[name] for name in gradients}, 1.0)
        for name, gradient in own.items():
            self._trained[name].grad = gradient

    def _own_mean(self, turn: Pending) -> dict[str, torch.Tensor]:
        count = len(turn.iterations)
        return {
            name: view if count == 1 else view / count
            for name, view in zip(turn.sums.names, turn.sums.views, strict=True)
            if name in self._values and name not in turn.unmade
        }

    def _step(self, iteration: int, stepped: Mapping[str, torch.Tensor], factor: float) -> None:
        """Step these tensors in place of the parameters of their names, as the optimizer would have in that iteration."""
        optimizer = self._optimizer
        groups = optimizer.param_groups
        options = self._options.get(iteration) or [_options(group) for group in groups]
        of = {id(self._trained[name]): each for name, each in stepped.items()}
        optimizer.param_groups = []
        for at, group in enumerate(groups):
            own = dict(options[at] if at < len(options) else _options(group))
            if factor != 1:
                own["lr"] = own["lr"] * factor
            own["params"] = [of[id(each)] for each in group["params"] if id(each) in of]
            optimizer.param_groups.append(own)
        try:
            optimizers.without_hooks(optimizer)(optimizer)
        finally:
            optimizer.param_groups = groups

    @contextlib.contextmanager
    def _as_state(self, state: Any) -> Iterator[None]:
        before, self._optimizer.state = self._optimizer.state, state
        try:
            yield
        finally:
            self._optimizer.state = before

    def _clip_of(self, arrivals: Sequence[Arrival]) -> Clip | None:
        return next(
            (self._clips[at] for each in arrivals for at in each.iterations if at in self._clips), None
        )

    # Begin and end.

    def _begin(self) -> None:
        """Copy the parameters and their state, unless that was done, or they were changed since."""
        if self._values:
            self._check_places()
            return
        optimizer = self._optimizer
        stepped = {id(each) for each in optimizers.all_parameters(optimizer)}
        self._values = {
            name: torch.nn.Parameter(each.detach().clone(), requires_grad=False)
            for name, each in self._trained.items()
            if id(each) in stepped
        }
        self._state = defaultdict(dict)
        for name, anchor in self._values.items():
            own = optimizer.state.get(self._trained[name])
            if own:
                _copy_state(own, self._state[anchor])
        saved, self._saved = self._saved, None
        if saved is not None:
            self._take(saved)

    def _check_places(self) -> None:
        """Go on from values that the script has changed. UsageError: gradients are under way that were made with the old ones."""
        changed = next(
            (name for name, place in self._places.items() if place != _place(self._trained[name])), None
        )
        if changed is None:
            return
        if self._lacked:
            raise UsageError(
                f"`{changed}` was changed between two steps, while gradients are on their way: the mean of all ranks will be "
                "applied to the parameters as they were\nhint: hk.flush(model) before parameters are changed or loaded"
            )
        self._values = {}
        self._begin()

    def _note(self) -> None:
        """Note what the step has left."""
        self._places = {name: _place(self._trained[name]) for name in self._values}
        self._lacked = self._lacks
        for kept in (self._options, self._clips):
            for iteration in kept.keys() - set(self._lacked):
                del kept[iteration]
        self._stepped = {
            name: ref(each.grad) for name, each in self._trained.items() if each.grad is not None
        }

    def _drop(self) -> None:
        self._values, self._places, self._stepped = {}, {}, {}
        self._state = defaultdict(dict)
        self._options, self._clips, self._norms = {}, {}, {}
        self._next, self._ends = None, False
        self._lacks = self._lacked = range(0)

    def _name(self, parameter: torch.Tensor) -> str:
        return next(name for name, each in self._trained.items() if each is parameter)

    # What others see.

    def _install(self) -> None:
        optimizer, model = self._optimizer, self._model
        before = optimizer.__dict__.get("step")
        optimizer.step = optimizers.wrapped_step(optimizer, self._on_step)  # type: ignore[method-assign]
        mine = optimizer.step

        def unwrapped() -> None:
            if optimizer.__dict__.get("step") is mine:
                if before is None:
                    del optimizer.step
                else:
                    optimizer.step = before  # type: ignore[method-assign]

        handles = [
            model.register_state_dict_post_hook(WithArguments(self._in_model_state)),
            optimizer.register_state_dict_post_hook(self._in_optimizer_state),
            optimizer.register_load_state_dict_post_hook(self._loaded),
        ]
        self._undo = [unwrapped, *(handle.remove for handle in handles)]

    def _in_model_state(
        self, module: torch.nn.Module, state: dict[str, Any], prefix: str, _metadata: object
    ) -> None:
        if not self._values:
            return
        names = {id(each): name for name, each in self._trained.items()}
        for key, each in module.named_parameters(remove_duplicate=False):
            name = names.get(id(each))
            if name in self._values and prefix + key in state:
                state[prefix + key] = self._values[name].detach()

    def _in_optimizer_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        if not self._values:
            return
        names = {id(each): name for name, each in self._trained.items()}
        of = dict(state["state"])
        for at, each in enumerate(optimizers.all_parameters(optimizer)):
            name = names.get(id(each))
            if name in self._values:
                own = self._state.get(self._values[name])
                if own:
                    of[at] = dict(own)
                else:
                    of.pop(at, None)
        state["state"] = of

    def _loaded(self, _optimizer: torch.optim.Optimizer) -> None:
        if not self._values:
            return
        if self._lacked:
            raise UsageError(
                "optimizer.load_state_dict while gradients are on their way\nhint: hk.flush(model) before it"
            )
        self._values = {}

    # Checkpoints.

    def saved(self) -> npt.NDArray[np.uint8]:
        """See `hocket.training.memory.anchor.Anchor`."""
        if not self._values:
            return np.empty(0, np.uint8)
        working = {name: self._trained[name].detach() for name in self._values}
        states = {name: dict(self._optimizer.state.get(self._trained[name], {})) for name in self._values}
        clips = {at: (each.max_norm, each.norm_type, each.own) for at, each in self._clips.items()}
        buffer = io.BytesIO()
        torch.save(
            {
                "working": working,
                "states": states,
                "options": self._options,
                "clips": clips,
                "growth": self._growth,
                "lacked": (self._lacked.start, self._lacked.stop),
            },
            buffer,
        )
        return np.frombuffer(buffer.getvalue(), np.uint8)

    def restore(self, saved: npt.NDArray[np.uint8]) -> None:
        """See `hocket.training.memory.anchor.Anchor`. UsageError: the state is of another model."""
        if not saved.size:
            return
        held = torch.load(io.BytesIO(saved.tobytes()), map_location="cpu", weights_only=True)
        if not held["working"].keys() <= self._trained.keys():
            raise UsageError("load_state_dict: parameters of a rank's own are those of another model")
        self._saved = held
        if not self._undo:
            self._install()
        self._begin()
        self._note()

    def _take(self, saved: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, value in saved["working"].items():
                self._trained[name].copy_(value)
                _copy_state(saved["states"][name], self._optimizer.state[self._trained[name]])
        self._options = dict(saved["options"])
        self._clips = {at: Clip(*each) for at, each in saved["clips"].items()}
        self._growth, self._lacks = saved["growth"], range(*saved["lacked"])


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: optimizers.kept(value) for key, value in group.items() if key != "params"}


def _place(parameter: torch.Tensor) -> tuple[int, int]:
    return parameter._version, parameter.data_ptr()


def _norm(gradients: Sequence[torch.Tensor], norm_type: float) -> float:
    return float(torch.nn.utils.get_total_norm(list(gradients), norm_type))


def _scale(gradients: Sequence[torch.Tensor], factor: float) -> None:
    if factor != 1.0 and gradients:
        torch._foreach_mul_(list(gradients), factor)


def _scaled(gradients: Mapping[str, torch.Tensor], factor: float) -> Mapping[str, torch.Tensor]:
    """Return gradients times a factor, which does not change them in place."""
    return gradients if factor == 1.0 else {name: each * factor for name, each in gradients.items()}


def _copy_state(source: Mapping[str, Any], target: dict[str, Any]) -> None:
    """Set state to a copy of another, in place where tensors have the same shapes."""
    for key in [each for each in target if each not in source]:
        del target[key]
    for key, value in source.items():
        before = target.get(key)
        if not isinstance(value, torch.Tensor):
            target[key] = optimizers.kept(value)
        elif isinstance(before, torch.Tensor) and before.shape == value.shape and before.dtype == value.dtype:
            before.copy_(value)
        else:
            target[key] = value.detach().to(before.device if isinstance(before, torch.Tensor) else value.device).clone()



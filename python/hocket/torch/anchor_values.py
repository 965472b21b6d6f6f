"""Values of an anchor: parameters and optimizer state that are the same on all ranks, beside those with which the script trains."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from hocket.torch import optimizers

Groups = Sequence[Mapping[str, Any]]
"""Options of the optimizer's groups, without parameters."""


class Values:
    """Copy of the parameters that an optimizer steps, and of their state.

    Attributes:
        parameters: the copies by name; empty: there is none, and the script's own parameters are the anchor.
        state: of the copies, as an optimizer keeps it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.nn.Parameter]) -> None:
        """Copy nothing at first."""
        self._optimizer, self._trained = optimizer, trained
        self.drop()

    def drop(self) -> None:
        """Forget the copies."""
        self.parameters: dict[str, torch.nn.Parameter] = {}
        self.state: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)

    @property
    def held_bytes(self) -> int:
        """Bytes of the copies and of their state."""
        state = (each for own in self.state.values() for each in own.values())
        held = (*self.parameters.values(), *(each for each in state if isinstance(each, torch.Tensor)))
        return sum(each.numel() * each.element_size() for each in held)

    def copy(self) -> None:
        """Copy what the script has."""
        self.drop()
        stepped = {id(each) for each in optimizers.all_parameters(self._optimizer)}
        for name, each in self._trained.items():
            if id(each) in stepped:
                anchor = self.parameters[name] = torch.nn.Parameter(
                    each.detach().clone(), requires_grad=False
                )
                copy_state(self._optimizer.state.get(each, {}), self.state[anchor])

    def give(self, names: Sequence[str]) -> None:
        """Set the script's parameters of these names, and their state, to the anchor's."""
        if not names:
            return
        torch._foreach_copy_(
            [self._trained[name].detach() for name in names],
            [self.parameters[name].detach() for name in names],
        )
        for name in names:
            copy_state(self.state.get(self.parameters[name], {}), self._optimizer.state[self._trained[name]])

    def step(
        self, gradients: Mapping[str, torch.Tensor], options: Groups | None, scale: float, factor: float
    ) -> None:
        """Step the anchor's parameters of these names once, by gradients times `scale`, which stay as they are. `options`: those of
        the groups; None: as they are now; `factor`: of the learning rates."""
        stepped = {name: self.parameters[name] for name in gradients}
        with self._as_state():
            self._step(stepped, gradients, options, scale, factor)
        for each in stepped.values():
            each.grad = None

    def step_own(self, gradients: Mapping[str, torch.Tensor], options: Groups | None, scale: float) -> None:
        """Step the script's parameters of these names once, by gradients times `scale`, which stay as they are."""
        self._step({name: self._trained[name] for name in gradients}, gradients, options, scale, 1.0)

    def in_model_state(
        self, module: torch.nn.Module, state: dict[str, Any], prefix: str, _metadata: object
    ) -> None:
        """Replace the script's parameters in `state_dict` of the model."""
        in_model_state(self.parameters, self._trained, module, state, prefix)

    def in_optimizer_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Replace state of the script's parameters in `state_dict` of the optimizer."""
        names = {id(self._trained[name]): name for name in self.parameters}
        state["state"] = dict(state["state"])
        for at, each in enumerate(optimizers.all_parameters(optimizer)):
            if id(each) in names:
                state["state"].pop(at, None)
                own = self.state.get(self.parameters[names[id(each)]])
                if own:
                    state["state"][at] = dict(own)

    def _step(
        self,
        stepped: Mapping[str, torch.Tensor],
        gradients: Mapping[str, torch.Tensor],
        options: Groups | None,
        scale: float,
        factor: float,
    ) -> None:
        optimizer, groups = self._optimizer, []
        of = {id(self._trained[name]): each for name, each in stepped.items()}
        for at, group in enumerate(optimizer.param_groups):
            # A group that the script has added since has no older options.
            own = dict(
                options[at] if options is not None and at < len(options) else optimizers.options_of(group)
            )
            if factor != 1:
                own["lr"] = own["lr"] * factor
            own["params"] = [of[id(each)] for each in group["params"] if id(each) in of]
            groups.append(own)
        # They are stepped with again, on this rank's parameters or in the next of several steps.
        reads = optimizers.only_reads_gradients(optimizer, groups)
        for name, gradient in gradients.items():
            if scale != 1.0:
                stepped[name].grad = gradient * scale
            else:
                stepped[name].grad = gradient if reads else gradient.clone()
        with optimizers.Regrouped(optimizer, groups):
            optimizers.without_hooks(optimizer)(optimizer)

    @contextlib.contextmanager
    def _as_state(self) -> Iterator[None]:
        before = self._optimizer.state
        self._optimizer.state = self.state  # type: ignore[assignment]
        try:
            yield
        finally:
            self._optimizer.state = before


def in_model_state(
    anchor: Mapping[str, torch.Tensor],
    trained: Mapping[str, torch.nn.Parameter],
    module: torch.nn.Module,
    state: dict[str, Any],
    prefix: str,
) -> None:
    """Replace parameters that the anchor has in `state_dict` of the model."""
    names = {id(trained[name]): name for name in anchor}
    for key, each in module.named_parameters(remove_duplicate=False) if names else ():
        if id(each) in names and prefix + key in state:
            state[prefix + key] = anchor[names[id(each)]].detach()


def copy_state(source: Mapping[str, Any], target: dict[str, Any]) -> None:
    """Set a parameter's state to a copy of another's, in place where tensors are alike."""
    for key in target.keys() - source.keys():
        del target[key]
    for key, value in source.items():
        before = target.get(key)
        if not isinstance(value, torch.Tensor):
            target[key] = optimizers.kept(value)
        elif isinstance(before, torch.Tensor) and before.shape == value.shape and before.dtype == value.dtype:
            before.copy_(value)
        else:
            target[key] = value.detach().clone()

"""Anchor of a model whose ranks step alone between exchanges.

The script's parameters and optimizer are this rank's own. The anchor is a copy of the parameters that an outer optimizer steps with
the mean of what ranks have moved, the same bits on all ranks; it is what `model.state_dict` returns, and what digests that ranks
compare are of. The state of the script's optimizer is never averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hocket.artefacts.plan import Outer
from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.anchor_values import in_model_state
from hocket.torch.forward_hooks import WithArguments
from hocket.torch.packing import packed, unpacked
from hocket.training.memory.anchor import Arrival
from hocket.training.memory.buckets import LoadedBucket


def sgd(parameters: Iterable[torch.nn.Parameter], outer: Outer) -> torch.optim.SGD:
    """Make the outer optimizer of these parameters."""
    return torch.optim.SGD(parameters, lr=outer.rate, momentum=outer.momentum, nesterov=outer.nesterov)


def begin_anew(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer's state be as if it had not stepped.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> sgd = torch.optim.SGD([weight], momentum=0.9)
    >>> weight.sum().backward()
    >>> sgd.step()
    >>> begin_anew(sgd)
    >>> len(sgd.state)
    0
    """
    if not isinstance(optimizer, torch.optim.Adagrad):
        optimizer.state.clear()
        return
    # Its state begins when it is made.
    for group in optimizer.param_groups:
        for state in (optimizer.state[each] for each in group["params"]):
            state["step"].zero_()
            state["sum"].fill_(group["initial_accumulator_value"])


class Local:
    """Anchor of one model and its optimizer; see `hocket.training.memory.anchor.LocalAnchor`.

    Attributes:
        came: by parameter, the gradient of the anchor's last step, until the next exchange.
        before_step: called when a step of the script's optimizer begins, before anything else.
        moves: by parameter, how often the anchor has changed: once for each step, twice for each change by the script.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        trained: Mapping[str, torch.nn.Parameter],
    ) -> None:
        """Change nothing until `begin`."""
        self._model, self._optimizer, self._trained = model, optimizer, trained
        self._anchor: dict[str, torch.nn.Parameter] = {}
        self._outer: torch.optim.SGD | None = None
        self._mix: float | None = None
        self._on = self._apart = False
        """True if ranks step alone, and if this rank has stepped since the anchor was all that it has."""
        self._undo: list[Callable[[], None]] = []
        self.before_step: Callable[[], None] | None = None
        self.came: dict[str, torch.Tensor] = {}
        self.moves: Counter[str] = Counter()

    def values(self) -> Mapping[str, torch.Tensor]:
        """Return the anchor's parameters by name; none: the script's own are the anchor."""
        return self._anchor

    @property
    def outer(self) -> torch.optim.SGD | None:
        """Optimizer of the anchor; None: ranks step together."""
        return self._outer

    @property
    def held_bytes(self) -> int:
        """Bytes of the anchor's parameters and of the outer optimizer's state."""
        held = [*self._anchor.values(), *(each for own in self._moments().values() for each in own.values())]
        return sum(each.numel() * each.element_size() for each in held)

    def begin(self, outer: Outer) -> None:
        """Take what the script has before its next step as the anchor."""
        if not self._undo:
            self._install()
        self._on, self._apart, self._mix = True, False, outer.mix
        self._anchor = {
            name: torch.nn.Parameter(each.detach().clone()) for name, each in self._trained.items()
        }
        self._outer = sgd(self._anchor.values(), outer)

    def depart(
        self, bucket: LoadedBucket, under_way: Sequence[tuple[LoadedBucket, float]], weight: float = 1.0
    ) -> None:
        """Write how far the rank came since its last part of an exchange, times its weight."""
        if not self._apart:
            # The rank has not stepped since, and may come too late to this exchange.
            self._take()
        with torch.no_grad():
            for at, (name, view) in enumerate(zip(bucket.names, bucket.views, strict=True)):
                torch.sub(self._anchor[name], self._trained[name], out=view)
                for each, by in under_way:
                    if by > 0:
                        view.sub_(each.views[at], alpha=1 / by)
                if weight != 1:
                    view.mul_(weight)

    def arrive(self, arrivals: Sequence[Arrival], *, lacks: range) -> None:
        """Step the anchor with these means, and go on from there."""
        self.came = {}
        with torch.no_grad(), optimizers.outside_forward():
            for each in arrivals:
                self._arrive(each)
        self._apart = len(lacks) > 0 or self._mix is not None or any(each.ahead for each in arrivals)

    def settle(self) -> None:
        """Go on from the anchor itself."""
        if not self._apart:
            # A script may have changed parameters, which are the anchor from the next step on.
            return
        with torch.no_grad():
            for name, each in self._anchor.items():
                self._trained[name].copy_(each)
        self._apart = False

    def distance(self) -> float:
        """Return the distance of the rank's parameters to the anchor."""
        with torch.no_grad():
            squares = [(self._trained[name] - each).square().sum() for name, each in self._anchor.items()]
            return (
                float(torch.stack([each.double().cpu() for each in squares]).sum().sqrt()) if squares else 0.0
            )

    def discard(self) -> None:
        """Go on from the anchor as it is, with an optimizer that has not stepped."""
        with torch.no_grad():
            for name, each in self._anchor.items():
                self._trained[name].copy_(each)
        begin_anew(self._optimizer)
        self._apart = False

    def _arrive(self, arrival: Arrival) -> None:
        names = arrival.mean.names
        own, anchor = self._own(names), self._of(names)
        ahead = arrival.ahead or any(turn.iterations for turn in arrival.pending)
        if self._mix is not None:
            self._step(arrival)
            torch._foreach_lerp_(own, anchor, 1 - self._mix)
        elif ahead:
            if arrival.weight > 0:
                torch._foreach_add_(own, list(arrival.own.views), alpha=1 / arrival.weight)
            torch._foreach_sub_(own, anchor)
            self._step(arrival)
            torch._foreach_add_(own, anchor)
        else:
            # With nothing since, parameters are the anchor's own bits.
            self._step(arrival)
            torch._foreach_copy_(own, anchor)

    def end(self) -> None:
        """Let the script's own parameters be the anchor."""
        self._on = self._apart = False
        self._anchor, self._outer, self.came = {}, None, {}

    def release(self) -> None:
        """Leave the model and its optimizer as they were before, with the values that the script has."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        self.end()

    def saved(self) -> npt.NDArray[np.uint8]:
        """Return the rank's own parameters, and the outer optimizer's momentum."""
        held = {
            "own": {name: each.detach() for name, each in self._trained.items()} if self._apart else {},
            "moments": self._moments(),
        }
        return np.frombuffer(packed(held), np.uint8)

    def restore(self, saved: npt.NDArray[np.uint8], *, apart: bool) -> None:
        """Go on from what was saved. UsageError: it is of another model."""
        held = unpacked(saved.tobytes())
        shapes = {name: each.shape for name, each in self._trained.items()}
        for kept in (held["own"], {name: own["momentum_buffer"] for name, own in held["moments"].items()}):
            if kept and {name: each.shape for name, each in kept.items()} != shapes:
                raise UsageError("load_state_dict: an outer optimizer's state is that of another model")
        self._take()
        outer = self._outer
        if outer is not None:
            for name, own in held["moments"].items():
                anchor = self._anchor[name]
                outer.state[anchor] = {key: each.to(anchor.device) for key, each in own.items()}
        with torch.no_grad():
            for name, each in held["own"].items() if apart else ():
                self._trained[name].copy_(each)
                self._apart = True

    def go_on_from(self, outer: torch.optim.Optimizer) -> None:
        """Take over the state of an optimizer that has stepped the script's parameters as the anchor's."""
        if self._outer is not None:
            for name, anchor in self._anchor.items():
                self._outer.state[anchor] = outer.state.get(self._trained[name], {})

    def _step(self, arrival: Arrival) -> None:
        """Step the anchor once with a turn's mean, of which one iteration has its share alone."""
        for name, view in zip(arrival.mean.names, arrival.mean.views, strict=True):
            self._anchor[name].grad = self.came[name] = view.mul_(len(arrival.iterations) * arrival.factor)
        if self._outer is not None:
            self._outer.step()
        for name in arrival.mean.names:
            self._anchor[name].grad = None
        self.moves.update(arrival.mean.names)

    def _own(self, names: Sequence[str]) -> list[torch.Tensor]:
        return [self._trained[name].detach() for name in names]

    def _of(self, names: Sequence[str]) -> list[torch.Tensor]:
        return [self._anchor[name].detach() for name in names]

    def _moments(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the outer optimizer's state by parameter."""
        if self._outer is None:
            return {}
        state = {name: self._outer.state.get(each, {}) for name, each in self._anchor.items()}
        return {
            name: {key: each for key, each in own.items() if isinstance(each, torch.Tensor)}
            for name, own in state.items()
            if own.get("momentum_buffer") is not None
        }

    def _take(self) -> None:
        """Take what the script has now as the anchor's values."""
        with torch.no_grad():
            for name, each in self._anchor.items():
                if not torch.equal(each, self._trained[name]):
                    each.copy_(self._trained[name])
                    self.moves[name] += 2

    def _install(self) -> None:
        def stepping(*_: object) -> None:
            if self.before_step is not None:
                self.before_step()
            if self._on and not self._apart:
                # A script may load or change parameters wherever the anchor is all that there is.
                self._take()
                self._apart = True

        stepping.reads_nothing = True  # type: ignore[attr-defined]
        show = WithArguments(self._in_model_state)
        self._undo = [
            self._optimizer.register_step_pre_hook(stepping).remove,
            self._model.register_state_dict_post_hook(show).remove,
            self._model.register_load_state_dict_post_hook(self._loaded).remove,
        ]

    def _in_model_state(
        self, module: torch.nn.Module, state: dict[str, Any], prefix: str, _metadata: object
    ) -> None:
        in_model_state(self._anchor if self._apart else {}, self._trained, module, state, prefix)

    def _loaded(self, *_: object) -> None:
        if self._apart:
            raise UsageError(
                "model.load_state_dict while ranks step alone: the next exchange would not know what they moved\n"
                "hint: hk.flush(model) before it"
            )

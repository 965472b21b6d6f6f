"""A model's training step for planners: the sizes of gradients and when each is ready."""

from __future__ import annotations

from msgspec import Struct

from hocket.artefacts import gradient
from hocket.artefacts.learning import Learning


class Gradient(gradient.Gradient, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One parameter's gradient. Times are seconds since the step's forward began, medians over steps.

    `touched`: how many of its rows are not zero on a rank, the most of all ranks' medians; None: nobody has looked.
    """

    ready_s: float
    needed_s: float
    touched: int | None = None


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training step without communication, under the load of all ranks of a host together.

    `gradients` are in the order of `model.named_parameters()`. `batch`: samples of a rank's forward; `accumulation`: backwards of a
    step; None: nobody has looked, or ranks or steps differ. `learning`: what was seen of how the model learns; None: nothing.
    """

    version: int = 1
    model: str
    world: int
    steps: int
    forward_s: float
    backward_s: float
    optimizer_s: float
    step_s: float
    gradients: tuple[Gradient, ...]
    batch: int | None = None
    accumulation: int | None = None
    learning: Learning | None = None

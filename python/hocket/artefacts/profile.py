"""A model's training step for planners: the sizes of gradients and when each is ready."""

from __future__ import annotations

from msgspec import Struct

from hocket.artefacts import gradient
from hocket.artefacts.learning import Learning
from hocket.artefacts.numbers import Amount, Ranks, Seconds
from hocket.errors import ArtefactError


class Gradient(gradient.Gradient, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One parameter's gradient. Times are seconds since the step's forward began, medians over steps.

    `touched`: how many of its rows are not zero on a rank, the most of all ranks' medians; None: nobody has looked.
    """

    ready_s: Seconds
    needed_s: Seconds
    touched: Amount | None = None


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training step without communication, under the load of all ranks of a host together.

    `gradients` are in the order of `model.named_parameters()`. `batch`: samples of a rank's forward; `accumulation`: backwards of a
    step; None: nobody has looked, or ranks or steps differ. `learning`: what was seen of how the model learns; None: nothing.
    """

    version: int = 1
    model: str
    world: Ranks
    steps: Amount
    forward_s: Seconds
    backward_s: Seconds
    optimizer_s: Seconds
    step_s: Seconds
    gradients: tuple[Gradient, ...]
    batch: Amount | None = None
    accumulation: Amount | None = None
    learning: Learning | None = None


ELEMENTS_MAX = 1 << 50
"""Of all gradients together."""


def check(profile: Profile, *, name: str = "profile") -> None:
    """Raises ArtefactError: two gradients have one name, or all have more elements than can be."""
    names = [gradient.name for gradient in profile.gradients]
    if len(set(names)) != len(names):
        twice = next(each for at, each in enumerate(names) if each in names[:at])
        raise ArtefactError(f"{name}: gradient {twice} is there twice")
    if sum(gradient.elements for gradient in profile.gradients) > ELEMENTS_MAX:
        raise ArtefactError(
            f"{name}: its gradients have more than profile.ELEMENTS_MAX = {ELEMENTS_MAX} elements"
        )

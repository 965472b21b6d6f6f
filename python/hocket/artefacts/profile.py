"""Training step of a model for planners: the sizes of gradients and when each is ready."""

from __future__ import annotations

from msgspec import Struct

from hocket.artefacts import gradient
from hocket.artefacts.learning import Learning
from hocket.artefacts.numbers import Amount, BytesPerS, Ranks, Seconds
from hocket.errors import ArtefactError


class Gradient(gradient.Gradient, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gradient of one parameter. Times are seconds since the step's forward began, medians over steps.

    `touched`: number of its rows that are not zero on a rank, the most of all ranks' medians; None: not measured.
    """

    ready_s: Seconds
    needed_s: Seconds
    touched: Amount | None = None


class RankStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step of one rank, which waits for nobody. `batch`: samples of its forward; None: not measured, or steps differ."""

    step_s: Seconds
    batch: Amount | None = None


class Bus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Path between a rank's host and the device that its gradients are on (`crates/network/src/bus.rs`): rates down to the host and
    up to the device, which do not slow each other down, and the time of each copy beside its bytes."""

    down_bytes_per_s: BytesPerS
    up_bytes_per_s: BytesPerS
    copy_s: Seconds


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training step without communication, under the load of all ranks of a host together.

    `gradients` are in the order of `model.named_parameters()`. `batch`: samples of a rank's forward; `accumulation`: backwards of a
    step; None: not measured, or ranks or steps differ. `learning`: facts seen of how the model learns; None: none. `ranks`: the
    step of each rank, of which all other times are means; none: not known. `bus`: that of the slowest rank; None: gradients are in
    the host's memory, or it was not measured.
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
    ranks: tuple[RankStep, ...] = ()
    bus: Bus | None = None


ELEMENTS_MAX = 1 << 50
"""Limit of the elements of all gradients together."""


def check(profile: Profile, *, name: str = "profile") -> None:
    """Raise ArtefactError if two gradients have one name, all together have more elements than the limit, or steps are of other
    ranks."""
    names = [gradient.name for gradient in profile.gradients]
    if len(set(names)) != len(names):
        twice = next(each for at, each in enumerate(names) if each in names[:at])
        raise ArtefactError(f"{name}: gradient {twice} is there twice")
    if profile.ranks and len(profile.ranks) != profile.world:
        raise ArtefactError(
            f"{name}: it has steps of {len(profile.ranks)} ranks, and was made by {profile.world}"
        )
    if sum(gradient.elements for gradient in profile.gradients) > ELEMENTS_MAX:
        raise ArtefactError(
            f"{name}: its gradients have more than profile.ELEMENTS_MAX = {ELEMENTS_MAX} elements"
        )

"""Models that exist as a profile alone, for planners and for ranks whose computation is a wait."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.artefacts.profile import Gradient, Profile


def layered(model: str, elements: Sequence[int], *, forward_s: float, backward_s: float) -> Profile:
    """A model of layers with these numbers of f32 parameters, each of which computes equally long.

    >>> [each.ready_s for each in layered("two", [8, 4], forward_s=1.0, backward_s=2.0).gradients]
    [3.0, 2.0]
    """
    layers = len(elements)
    return Profile(
        model=model,
        world=1,
        steps=0,
        forward_s=forward_s,
        backward_s=backward_s,
        optimizer_s=0.0,
        step_s=forward_s + backward_s,
        gradients=tuple(
            Gradient(
                name=f"{at}.weight",
                shape=(count,),
                dtype="f32",
                ready_s=forward_s + backward_s * (layers - at) / layers,
                needed_s=forward_s * at / layers,
            )
            for at, count in enumerate(elements)
        ),
    )

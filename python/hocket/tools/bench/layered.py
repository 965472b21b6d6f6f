"""Models that exist as a profile alone, for planners and for ranks whose computation is a wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.artefacts.profile import Gradient, Profile


def layered(
    model: str, layers: Iterable[tuple[str, tuple[int, ...]]], *, forward_s: float, backward_s: float
) -> Profile:
    """Return a model of layers with f32 parameters of these names and shapes, which all compute equally long.

    >>> [each.ready_s for each in layered("two", weights([8, 4]), forward_s=1.0, backward_s=2.0).gradients]
    [3.0, 2.0]
    """
    shapes = list(layers)
    count = len(shapes)
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
                name=name,
                shape=shape,
                dtype="f32",
                ready_s=forward_s + backward_s * (count - at) / count,
                needed_s=forward_s * at / count,
            )
            for at, (name, shape) in enumerate(shapes)
        ),
    )


def weights(elements: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """Return layers with these numbers of parameters.

    >>> weights([8, 4])
    [('0.weight', (8,)), ('1.weight', (4,))]
    """
    return [(f"{at}.weight", (count,)) for at, count in enumerate(elements)]

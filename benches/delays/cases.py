"""Models and networks of `python -m benches delays`: layers whose computation is a wait, on a star whose links take a multiple of
an iteration's computation.

The coverage rate is the time that gradients travel over the time of forward and backward. It is for gradients in f16, the shortest
form that contenders may use, around a ring, which sends the least that an all-reduce can.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from msgspec import Struct

from benches.emulated import hosts
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Gradient, Profile

WORLD = 4
FORWARD_S, BACKWARD_S = 0.07, 0.14

SENT_BYTES = 2
"""Bytes of an element in f16."""

WIDTH, BLOCKS, VOCABULARY, CONTEXT = 256, 4, 256, 128
"""Sizes of the demo's transformer."""


class Layer(Struct, frozen=True, kw_only=True):
    """Gradients that backward produces together, and the layer's share of computation."""

    share: float
    shapes: tuple[tuple[int, ...], ...]


def profile_of(
    model: str, layers: Sequence[Layer], *, forward_s: float = FORWARD_S, backward_s: float = BACKWARD_S
) -> Profile:
    """A model of these layers, in the order of forward; gradients are named `layer.number`.

    >>> made = profile_of("two", [Layer(share=1, shapes=((2, 2), (2,))), Layer(share=3, shapes=((4,),))], forward_s=4, backward_s=8)
    >>> [(each.name, each.needed_s, each.ready_s) for each in made.gradients]
    [('0.0', 0.0, 12.0), ('0.1', 0.0, 12.0), ('1.0', 1.0, 10.0)]
    """
    whole = sum(layer.share for layer in layers)
    before = list(itertools.accumulate((layer.share / whole for layer in layers), initial=0.0))
    return Profile(
        model=model,
        world=WORLD,
        steps=0,
        forward_s=forward_s,
        backward_s=backward_s,
        optimizer_s=0.0,
        step_s=forward_s + backward_s,
        gradients=tuple(
            Gradient(
                name=f"{at}.{number}",
                shape=shape,
                dtype="f32",
                ready_s=forward_s + backward_s * (1 - before[at]),
                needed_s=forward_s * before[at],
            )
            for at, layer in enumerate(layers)
            for number, shape in enumerate(layer.shapes)
        ),
    )


def transformer(width: int = WIDTH, blocks: int = BLOCKS) -> Profile:
    """The demo's byte-level transformer: 3.3 M parameters, or 25.5 M in 8 blocks of width 512. Computation is proportional to
    elements, and short for embeddings."""

    def linear(inputs: int, outputs: int) -> Layer:
        return Layer(share=inputs * outputs, shapes=((outputs, inputs), (outputs,)))

    norm = Layer(share=width * 8, shapes=((width,), (width,)))
    block = [
        norm,
        linear(width, 3 * width),
        linear(width, width),
        norm,
        linear(width, 4 * width),
        linear(4 * width, width),
    ]
    embeddings = Layer(share=width * 8, shapes=((VOCABULARY, width), (CONTEXT, width)))
    head = Layer(share=width * VOCABULARY, shapes=((VOCABULARY, width),))
    return profile_of("transformer", [embeddings, *block * blocks, norm, head])


def imbalanced() -> Profile:
    """VGG-like model, 3.6 M parameters: eight convolutions compute nearly all the time, and one fully connected layer has 71 % of
    the parameters."""
    channels = (3, 16, 16, 32, 32, 64, 64, 128, 128)
    shares = (2, 20, 10, 20, 10, 20, 5, 10)
    convolutions = [
        Layer(share=share, shapes=((after, before, 3, 3), (after,)))
        for share, (before, after) in zip(shares, itertools.pairwise(channels), strict=True)
    ]
    connected = [
        Layer(share=share, shapes=((outputs, inputs), (outputs,)))
        for share, inputs, outputs in ((2, 1568, 1640), (0.5, 1640, 400), (0.1, 400, 100))
    ]
    return profile_of("vgg", [*convolutions, *connected])


def star(profile: Profile, coverage: float) -> Cluster:
    """Cluster on whose links the profile's gradients take `coverage` times an iteration's computation."""
    elements = sum(math.prod(each.shape) for each in profile.gradients)
    travels_s = coverage * (profile.forward_s + profile.backward_s)
    ring_bytes = SENT_BYTES * elements * 2 * (WORLD - 1) / WORLD
    return hosts([8 * ring_bytes / travels_s] * WORLD)

"""Models of DeFT's Table I, which gives totals of forward, backward and communication, divided among layers.

A layer's computation is assumed proportional to its multiplications, and its communication to its parameters. The table is assumed
to be for 40 Gbit/s, the paper's fastest network. All sizes and rates are divided by SCALE: totals are unchanged, and processor time
for bytes and messages, which differs from that of GPUs, matters little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benches.delays.cases import Layer, profile_of
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.profile import Profile

WORLD, NODES = 16, 2
TABLE_GBIT_PER_S = 40
SCALE = 50
ITEM_BYTES = 4


class Total(NamedTuple):
    """Seconds of an iteration in Table I."""

    forward_s: float
    backward_s: float
    communication_s: float


TABLE = {
    "ResNet-101": Total(0.059, 0.118, 0.242),
    "VGG-19": Total(0.037, 0.093, 0.258),
    "GPT-2": Total(0.169, 0.381, 0.5464),
}


def profile(model: str) -> Profile:
    """A model of TABLE, a gradient for each layer."""
    total = TABLE[model]
    return profile_of(model, list(_LAYERS[model]()), forward_s=total.forward_s, backward_s=total.backward_s)


def cluster(model: str, gbit_per_s: float) -> Cluster:
    """Two nodes of eight ranks, on whose links a ring of all gradients takes the table's time at 40 Gbit/s."""
    elements = sum(each.elements for each in profile(model).gradients)
    ring_bits = 8 * ITEM_BYTES * elements * 2 * (WORLD - 1) / WORLD
    rate = ring_bits / TABLE[model].communication_s * gbit_per_s / TABLE_GBIT_PER_S
    each = WORLD // NODES
    return Cluster(
        hosts=tuple(Host(name=f"node{at}", slots=each, bandwidth_bit_per_s=rate) for at in range(NODES))
    )


def _layer(parameters: float, multiplications: float) -> Layer:
    return Layer(share=multiplications, shapes=((max(1, round(parameters / SCALE)),),))


def _convolution(size: int, before: int, after: int, extent: int) -> Layer:
    """Convolution with `extent` x `extent` outputs."""
    parameters = size * size * before * after
    return _layer(parameters, parameters * extent * extent)


def _resnet_101() -> Iterator[Layer]:
    """Layers of He et al., 2016, table 1."""
    yield _convolution(7, 3, 64, 112)
    before = 64
    for width, blocks, extent in ((64, 3, 56), (128, 4, 28), (256, 23, 14), (512, 3, 7)):
        for block in range(blocks):
            yield _convolution(1, before, width, extent)
            yield _convolution(3, width, width, extent)
            yield _convolution(1, width, 4 * width, extent)
            if block == 0:
                yield _convolution(1, before, 4 * width, extent)
            before = 4 * width
    yield _layer(2048 * 1000, 2048 * 1000)


def _vgg_19() -> Iterator[Layer]:
    """Layers of Simonyan and Zisserman, 2015, configuration E."""
    before = 3
    for width, layers, extent in ((64, 2, 224), (128, 2, 112), (256, 4, 56), (512, 4, 28), (512, 4, 14)):
        for _ in range(layers):
            yield _convolution(3, before, width, extent)
            before = width
    for inputs, outputs in ((25_088, 4096), (4096, 4096), (4096, 1000)):
        yield _layer(inputs * outputs, inputs * outputs)


def _gpt_2() -> Iterator[Layer]:
    """Layers of Radford et al., 2019, the small model. Its head multiplies with the embeddings, whose gradient is ready last."""
    width, blocks, vocabulary, context = 768, 12, 50_257, 1024
    yield _layer((vocabulary + context) * width, width)
    for _ in range(blocks):
        for parameters in (3 * width**2, width**2, 4 * width**2, 4 * width**2):
            yield _layer(parameters, parameters)
    yield _layer(2 * width, vocabulary * width)


_LAYERS = {"ResNet-101": _resnet_101, "VGG-19": _vgg_19, "GPT-2": _gpt_2}

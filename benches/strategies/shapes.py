"""Parameters of well-known models, as their papers and reference implementations define them, in the order of forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Shape = tuple[str, tuple[int, ...]]
"""Name and shape of a parameter."""


def _conv(name: str, out: int, into: int, height: int, width: int | None = None) -> Iterator[Shape]:
    """Convolution without bias, and its batch norm."""
    yield f"{name}.weight", (out, into, height, height if width is None else width)
    yield f"{name}.norm.weight", (out,)
    yield f"{name}.norm.bias", (out,)


def _linear(name: str, out: int, into: int) -> Iterator[Shape]:
    yield f"{name}.weight", (out, into)
    yield f"{name}.bias", (out,)


def vgg16() -> Iterator[Shape]:
    """VGG-16 of Simonyan and Zisserman 2015, configuration D: 138 M parameters.

    >>> sum(count(shape) for _, shape in vgg16())
    138357544
    """
    into = 3
    for stage, (blocks, out) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for block in range(blocks):
            yield f"conv{stage}.{block}.weight", (out, into, 3, 3)
            yield f"conv{stage}.{block}.bias", (out,)
            into = out
    yield from _linear("fc6", 4096, 512 * 7 * 7)
    yield from _linear("fc7", 4096, 4096)
    yield from _linear("fc8", 1000, 4096)


def resnet101() -> Iterator[Shape]:
    """ResNet-101 of He et al. 2016: 44.5 M parameters.

    >>> sum(count(shape) for _, shape in resnet101())
    44549160
    """
    yield from _conv("conv1", 64, 3, 7)
    into = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (23, 256), (3, 512))):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            yield from _conv(f"{name}.conv1", width, into, 1)
            yield from _conv(f"{name}.conv2", width, width, 3)
            yield from _conv(f"{name}.conv3", 4 * width, width, 1)
            if block == 0:
                yield from _conv(f"{name}.shortcut", 4 * width, into, 1)
            into = 4 * width
    yield from _linear("fc", 1000, into)


def densenet121() -> Iterator[Shape]:
    """DenseNet-121 of Huang et al. 2017, growth rate 32: 8.0 M parameters.

    >>> sum(count(shape) for _, shape in densenet121())
    7978856
    """
    yield from _conv("conv0", 64, 3, 7)
    into = 64
    for stage, blocks in enumerate((6, 12, 24, 16)):
        for block in range(blocks):
            name = f"block{stage}.{block}"
            yield f"{name}.norm1.weight", (into,)
            yield f"{name}.norm1.bias", (into,)
            yield from _conv(f"{name}.conv1", 128, into, 1)
            yield f"{name}.conv2.weight", (32, 128, 3, 3)
            into += 32
        yield f"transition{stage}.norm.weight", (into,)
        yield f"transition{stage}.norm.bias", (into,)
        if stage < 3:
            yield f"transition{stage}.conv.weight", (into // 2, into, 1, 1)
            into //= 2
    yield from _linear("classifier", 1000, into)


def inception_v3() -> Iterator[Shape]:
    """Inception v3 of Szegedy et al. 2016, without the auxiliary classifier: 23.8 M parameters.

    >>> sum(count(shape) for _, shape in inception_v3())
    23834568
    """
    stem = ((32, 3, 3), (32, 32, 3), (64, 32, 3), (80, 64, 1), (192, 80, 3))
    for at, (out, into, size) in enumerate(stem):
        yield from _conv(f"stem{at}", out, into, size)
    for at, (into, pool) in enumerate(((192, 32), (256, 64), (288, 64))):
        name = f"a{at}"
        yield from _conv(f"{name}.1x1", 64, into, 1)
        yield from _conv(f"{name}.5x5.0", 48, into, 1)
        yield from _conv(f"{name}.5x5.1", 64, 48, 5)
        yield from _conv(f"{name}.3x3.0", 64, into, 1)
        yield from _conv(f"{name}.3x3.1", 96, 64, 3)
        yield from _conv(f"{name}.3x3.2", 96, 96, 3)
        yield from _conv(f"{name}.pool", pool, into, 1)
    yield from _conv("b.3x3", 384, 288, 3)
    yield from _conv("b.double.0", 64, 288, 1)
    yield from _conv("b.double.1", 96, 64, 3)
    yield from _conv("b.double.2", 96, 96, 3)
    for at, narrow in enumerate((128, 160, 160, 192)):
        name = f"c{at}"
        yield from _conv(f"{name}.1x1", 192, 768, 1)
        yield from _conv(f"{name}.7.0", narrow, 768, 1)
        yield from _conv(f"{name}.7.1", narrow, narrow, 1, 7)
        yield from _conv(f"{name}.7.2", 192, narrow, 7, 1)
        yield from _conv(f"{name}.double.0", narrow, 768, 1)
        yield from _conv(f"{name}.double.1", narrow, narrow, 7, 1)
        yield from _conv(f"{name}.double.2", narrow, narrow, 1, 7)
        yield from _conv(f"{name}.double.3", narrow, narrow, 7, 1)
        yield from _conv(f"{name}.double.4", 192, narrow, 1, 7)
        yield from _conv(f"{name}.pool", 192, 768, 1)
    yield from _conv("d.3x3.0", 192, 768, 1)
    yield from _conv("d.3x3.1", 320, 192, 3)
    yield from _conv("d.7x7.0", 192, 768, 1)
    yield from _conv("d.7x7.1", 192, 192, 1, 7)
    yield from _conv("d.7x7.2", 192, 192, 7, 1)
    yield from _conv("d.7x7.3", 192, 192, 3)
    for at, into in enumerate((1280, 2048)):
        name = f"e{at}"
        yield from _conv(f"{name}.1x1", 320, into, 1)
        yield from _conv(f"{name}.3x3.0", 384, into, 1)
        yield from _conv(f"{name}.3x3.1", 384, 384, 1, 3)
        yield from _conv(f"{name}.3x3.2", 384, 384, 3, 1)
        yield from _conv(f"{name}.double.0", 448, into, 1)
        yield from _conv(f"{name}.double.1", 384, 448, 3)
        yield from _conv(f"{name}.double.2", 384, 384, 1, 3)
        yield from _conv(f"{name}.double.3", 384, 384, 3, 1)
        yield from _conv(f"{name}.pool", 192, into, 1)
    yield from _linear("fc", 1000, 2048)


def bert_large() -> Iterator[Shape]:
    """BERT-large of Devlin et al. 2019: 24 layers of 1024, with pooler: 335 M parameters.

    >>> sum(count(shape) for _, shape in bert_large())
    335141888
    """
    width = 1024
    yield "words.weight", (30522, width)
    yield "positions.weight", (512, width)
    yield "types.weight", (2, width)
    yield from _norm("embeddings.norm", width)
    for layer in range(24):
        for name in ("query", "key", "value", "output"):
            yield from _linear(f"{layer}.{name}", width, width)
        yield from _norm(f"{layer}.norm1", width)
        yield from _linear(f"{layer}.up", 4 * width, width)
        yield from _linear(f"{layer}.down", width, 4 * width)
        yield from _norm(f"{layer}.norm2", width)
    yield from _linear("pooler", width, width)


def _norm(name: str, width: int) -> Iterator[Shape]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def ncf() -> Iterator[Shape]:
    """Neural collaborative filtering (He et al. 2017) for the users and items of MovieLens-20M: ten variables. AutoDist's has 122 M
    parameters; its widths are not given, and these were chosen to match.

    >>> round(sum(count(shape) for _, shape in ncf()) / 1e6), len(list(ncf()))
    (123, 10)
    """
    users, items, factors, hidden = 138_493, 26_744, 226, 512
    yield "factors.users", (users, factors)
    yield "factors.items", (items, factors)
    yield "hidden.users", (users, hidden)
    yield "hidden.items", (items, hidden)
    yield from _linear("fc1", hidden, 2 * hidden)
    yield from _linear("fc2", hidden // 2, hidden)
    yield from _linear("score", 1, factors + hidden // 2)


def lm1b() -> Iterator[Shape]:
    """The language model of Jozefowicz et al. 2016 with one LSTM of 2048 and a projection to 512, words of 512: 823 M parameters; a
    step touches few rows.

    >>> round(sum(count(shape) for _, shape in lm1b()) / 1e6)
    823
    """
    words, width, state = 793_470, 512, 2048
    yield "words.weight", (words, width)
    yield "lstm.weight", (4 * state, 2 * width)
    yield "lstm.bias", (4 * state,)
    yield "lstm.projection", (width, state)
    yield "softmax.weight", (words, width)
    yield "softmax.bias", (words,)


def count(shape: tuple[int, ...]) -> int:
    found = 1
    for each in shape:
        found *= each
    return found


MODELS: dict[str, Callable[[], Iterator[Shape]]] = {
    "BERT-large": bert_large,
    "DenseNet121": densenet121,
    "InceptionV3": inception_v3,
    "LM1B": lm1b,
    "NCF": ncf,
    "ResNet101": resnet101,
    "VGG16": vgg16,
}

"""The models, and what SketchDLC's paper measured of them. Loads no framework."""

from __future__ import annotations

from msgspec import Struct


class Figures(Struct, frozen=True, kw_only=True):
    """Numbers in a trace: sizes of one iteration of a worker, means over iterations and over keys of servers; None: not told."""

    tensors: int
    volume_mb: float
    shortest_push_bytes: int
    longest_push_bytes: int
    iterations: int | None = None
    computation_ms: float | None = None
    communication_ms: float | None = None
    overlap_percent: float | None = None
    update_us: float | None = None
    search_us: float | None = None
    synchronisation_us: float | None = None


class Model(Struct, frozen=True, kw_only=True):
    """A model and its data; `real`: scikit-learn's digits, else random images. `iterations`: what is affordable on two cores."""

    title: str
    shape: tuple[int, int, int]
    classes: int
    batch: int
    iterations: int
    learning_rate: float
    real: bool
    paper: Figures | None


MODELS = {
    "lenet5": Model(
        title="LeNet-5",
        shape=(1, 28, 28),
        classes=10,
        batch=64,
        iterations=380,
        learning_rate=0.02,
        real=True,
        paper=Figures(
            tensors=8,
            volume_mb=1.72,
            shortest_push_bytes=73,
            longest_push_bytes=1_600_033,
            iterations=380,
            computation_ms=4.74,
            communication_ms=8.82,
            overlap_percent=11.97,
            update_us=564,
            search_us=1007,
            synchronisation_us=1068,
        ),
    ),
    "resnet50": Model(
        title="ResNet-50",
        shape=(3, 224, 224),
        classes=1000,
        batch=2,
        iterations=12,
        learning_rate=0.01,
        real=False,
        paper=Figures(
            tensors=157,
            volume_mb=102.21,
            shortest_push_bytes=47,
            longest_push_bytes=9_440_000,
            iterations=165,
            computation_ms=676,
            communication_ms=487,
            overlap_percent=65.72,
            update_us=6262,
            search_us=3078,
            synchronisation_us=27975,
        ),
    ),
    "vgg19": Model(
        title="VGG-19",
        shape=(3, 224, 224),
        classes=1000,
        batch=1,
        iterations=3,
        learning_rate=0.001,
        real=False,
        paper=None,
    ),
}
"""The paper's figures are of two workers and one server, on machines with a 1 Gbit/s network."""

"""Tasks of the learners of `python -m benches delays`: a model, its batches, and its quality. Each takes minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hocket.tools.demo import data
from hocket.tools.demo.models import DigitsNet, Transformer

SEED = 9
WORKERS, BATCH = 4, 16
"""Number of workers, and samples of a worker's batch."""

BYTES_WIDTH, BYTES_LAYERS, BYTES_HEADS, BYTES_CONTEXT = 64, 2, 4, 32


class Batch(NamedTuple):
    """Samples of one iteration, on all workers or on one, with their loss."""

    loss_of: Callable[..., torch.Tensor]
    samples: tuple[torch.Tensor, ...]

    def __call__(self, model: nn.Module) -> torch.Tensor:
        return self.loss_of(model, *self.samples)

    def shares(self, count: int) -> list[Batch]:
        """Return the batches of so many workers."""
        chunks = (each.chunk(count) for each in self.samples)
        return [Batch(self.loss_of, share) for share in zip(*chunks, strict=True)]


@dataclass(frozen=True)
class Task:
    """`batches(seed)`: batches of iterations, on all workers; `loss` and `error` use a fixed
    set of samples that are not used for training, if there are any; `error`: fraction of wrong samples."""

    name: str
    model: Callable[[], nn.Module]
    batches: Callable[[int], Iterator[Batch]]
    loss: Callable[[nn.Module], float]
    error: Callable[[nn.Module], float] | None = None

    def started(self, seed: int) -> nn.Module:
        """Make the model with the seed's initial values."""
        torch.manual_seed(seed)
        return self.model()


class Bowl(nn.Module):
    """Quadratic of 20 directions, with curvatures from 0.1 to 1."""

    def __init__(self) -> None:
        """Begin at distance 1 from the minimum in each direction."""
        super().__init__()
        self.place = nn.Parameter(torch.ones(20))
        self.curved = torch.linspace(0.1, 1.0, 20)

    def loss_from(self, centre: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = 0.5 * (self.curved * (self.place - centre).square()).sum()
        return loss


class Residual(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, channels: int) -> None:
        """Begin with group norms: statistics of small batches are noise."""
        super().__init__()
        self.parts = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.GroupNorm(4, channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x + self.parts(x))


def small_resnet() -> nn.Module:
    """ResNet for the digits: 3 blocks, 0.03 million parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        Residual(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.ReLU(),
        Residual(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def bowl() -> Task:
    """Quadratic with a noisy centre on each worker; losses are relative to the minimum."""

    def loss_from(model: nn.Module, centres: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = model.loss_from(centres.mean(0))  # type: ignore[operator]  # a Bowl
        return made

    def batches(seed: int) -> Iterator[Batch]:
        draw = torch.Generator().manual_seed(seed)
        while True:
            centres = 0.1 * torch.randn(WORKERS, 20, generator=draw) / BATCH**0.5
            yield Batch(loss_from, (centres,))

    def loss(model: nn.Module) -> float:
        with torch.no_grad():
            return float(loss_from(model, torch.zeros(1, 20)))

    return Task("quadratic", Bowl, batches, loss)


def logistic() -> Task:
    """The digits without a hidden layer, a third with a random label: otherwise a perfect separation would be flat."""
    return _digits("logistic", lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), at_random=1 / 3)


def digits_cnn() -> Task:
    return _digits("digits CNN", DigitsNet)


def digits_resnet() -> Task:
    return _digits("digits ResNet", small_resnet)


def bytes_transformer() -> Task:
    """The demo's transformer, smaller, on the text of Python's library."""
    text, held_out = data.library_text()

    def pieces(of: np.ndarray, starts: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.stack([of[at : at + BYTES_CONTEXT + 1] for at in starts]).astype(np.int64))

    def loss_of(model: nn.Module, piece: torch.Tensor) -> torch.Tensor:
        made = model(piece[:, :-1])
        return functional.cross_entropy(made.flatten(0, 1), piece[:, 1:].flatten())

    def batches(seed: int) -> Iterator[Batch]:
        chance = np.random.default_rng(seed)
        while True:
            drawn = pieces(text, chance.integers(len(text) - BYTES_CONTEXT - 1, size=WORKERS * BATCH))
            yield Batch(loss_of, (drawn,))

    every = np.arange(0, len(held_out) - BYTES_CONTEXT - 1, 128)
    fixed = pieces(held_out, every)

    def loss(model: nn.Module) -> float:
        with torch.no_grad():
            return float(loss_of(model, fixed))

    return Task(
        "byte transformer", lambda: Transformer(BYTES_WIDTH, BYTES_LAYERS, BYTES_HEADS), batches, loss
    )


def _digits(name: str, model: Callable[[], nn.Module], at_random: float = 0.0) -> Task:
    (images, labels), (others, other_labels) = (tuple(map(torch.from_numpy, each)) for each in data.digits())

    draw = torch.Generator().manual_seed(SEED)
    labels, other_labels = (
        torch.where(
            torch.rand(each.shape, generator=draw) < at_random,
            each[torch.randperm(len(each), generator=draw)],
            each,
        )
        for each in (labels, other_labels)
    )

    def loss_of(model: nn.Module, samples: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(samples), wanted)

    def batches(seed: int) -> Iterator[Batch]:
        for at in data.draws(seed, 0, len(images), WORKERS * BATCH):
            yield Batch(loss_of, (images[at], labels[at]))

    def loss(model: nn.Module) -> float:
        with torch.no_grad():
            return float(loss_of(model, others, other_labels))

    def error(model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(others).argmax(1) != other_labels).float().mean())

    return Task(name, model, batches, loss, error)

"""Training task: a model, its optimizer, the batches of each rank, and its quality on held-out data.

The task is equal for all strategies: seed and rank determine all randomness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from hocket.tools.demo import data
from hocket.tools.demo.models import CONTEXT_BYTES, DigitsNet, Transformer

WINDOWS_PER_STEP = 1
"""Batch of each rank: 128 bytes per step and rank take about 0.1 s with 4 ranks on 2 cores."""

IMAGES_PER_STEP = 64
EVALUATED_AT_ONCE = 16

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Score:
    """Part of a held-out metric: parts add up, and the metric is `total / count`."""

    total: float
    count: int


class Task(Protocol):
    """Model of the demo with its data."""

    metric_name: str

    def model(self, seed: int) -> nn.Module:
        """Return a new model, initialised from the seed."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the model's optimizer."""

    def batches(self, seed: int, rank: int) -> Iterator[Batch]:
        """Yield inputs and targets of each step of a rank, endlessly."""

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the mean loss over the batch."""

    def score(self, model: nn.Module, rank: int, world: int) -> Score:
        """Return this rank's share of the held-out metric."""


class ByteModelling:
    """Task: predict the next byte of the standard library's text."""

    metric_name = "bits per byte"

    def model(self, seed: int) -> nn.Module:
        """Return a model of 3.3 million parameters."""
        torch.manual_seed(seed)
        return Transformer()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))

    def batches(self, seed: int, rank: int) -> Iterator[Batch]:
        """Yield windows from anywhere in the training text, with targets one byte later."""
        text = torch.from_numpy(data.library_text()[0].copy())
        for starts in data.draws(seed, rank, len(text) - CONTEXT_BYTES, WINDOWS_PER_STEP):
            windows = torch.stack([text[start : start + CONTEXT_BYTES + 1] for start in starts]).long()
            yield windows[:, :-1], windows[:, 1:]

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss in nats per byte."""
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    def score(self, model: nn.Module, rank: int, world: int) -> Score:
        """Return bits, and their number of bytes, over every `world`-th window of the held-out text."""
        text = torch.from_numpy(data.library_text()[1].copy()).long()
        windows = text.unfold(0, CONTEXT_BYTES + 1, CONTEXT_BYTES)[rank::world]
        bits, count = 0.0, 0
        with torch.no_grad():
            for part in torch.split(windows, EVALUATED_AT_ONCE):
                target = part[:, 1:]
                bits += self.loss(model(part[:, :-1]), target).item() * target.numel() / math.log(2)
                count += target.numel()
        return Score(bits, count)


class DigitRecognition:
    metric_name = "accuracy"

    def model(self, seed: int) -> nn.Module:
        """Return a model of 0.15 million parameters."""
        torch.manual_seed(seed)
        return DigitsNet()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=2e-3)

    def batches(self, seed: int, rank: int) -> Iterator[Batch]:
        """Yield images drawn with replacement."""
        images, labels = map(torch.from_numpy, data.digits()[0])
        for chosen in data.draws(seed, rank, len(labels), IMAGES_PER_STEP):
            yield images[chosen], labels[chosen]

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss in nats per image."""
        return functional.cross_entropy(output, target)

    def score(self, model: nn.Module, rank: int, world: int) -> Score:
        """Return the number of images recognised, of every `world`-th held-out one."""
        images, labels = (torch.from_numpy(each[rank::world]) for each in data.digits()[1])
        with torch.no_grad():
            right = (model(images).argmax(1) == labels).sum().item()
        return Score(right, len(labels))


TASKS: dict[str, Task] = {"transformer": ByteModelling(), "digits": DigitRecognition()}

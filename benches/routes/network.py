"""A network like VGG with embeddings beside it, its batches, and the plan that sends each part of it another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Bucket, Owned, Owner, Part, Plan, Route, TwoLevel
from hocket.planning.buckets import plan_of
from hocket.planning.rows import rows_bucket

CLASSES = 10
IMAGE = 16
"""Pixels a side."""

ORDER, STATIONS = (0, 2, 1, 3), (2, 2)
"""Of hosts that alternate between two racks, rack by rack."""

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Images, words of each, and labels."""


@dataclass(frozen=True)
class Size:
    """Channels after the convolutions, width of the large layer, rows and width of the embedding, images and words a batch."""

    channels: int
    hidden: int
    rows: int
    row: int
    images: int
    words: int


SIZES = {
    "small": Size(channels=4, hidden=32, rows=400, row=8, images=4, words=3),
    "real": Size(channels=64, hidden=1024, rows=50_000, row=64, images=16, words=24),
}


class VggLike(nn.Module):
    """Two convolutions, a layer with most of all parameters, and words that are looked up beside the image."""

    def __init__(self, size: Size) -> None:
        """The same parameters on all ranks."""
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, size.channels, 3, padding=1)
        self.second = nn.Conv2d(size.channels, size.channels, 3, padding=1)
        self.words = nn.Embedding(size.rows, size.row, sparse=True)
        self.large = nn.Linear(size.channels * (IMAGE // 4) ** 2 + size.row, size.hidden)
        self.last = nn.Linear(size.hidden, CLASSES)

    def forward(self, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        seen = nn.functional.max_pool2d(self.first(images).relu(), 2)
        seen = nn.functional.max_pool2d(self.second(seen).relu(), 2).flatten(1)
        logits: torch.Tensor = self.last(self.large(torch.cat([seen, self.words(words).mean(1)], 1)).relu())
        return logits


def batch(size: Size, step: int, rank: int) -> Batch:
    """Of a rank and step: some words come twice, and every rank has other ones."""
    drawn = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.randn(size.images, 3, IMAGE, IMAGE, generator=drawn)
    words = torch.randint(size.rows, (size.images, size.words), generator=drawn)
    words[0] = words[1]
    return images, words, torch.randint(CLASSES, (size.images,), generator=drawn)


def rows_of(size: Size, step: int, rank: int) -> int:
    """How many rows of the embedding a batch touches."""
    return len(batch(size, step, rank)[1].unique())


def gradients(network: nn.Module) -> dict[str, Gradient]:
    return {
        name: Gradient(name, tuple(each.shape), "f32", sparse=name == "words.weight")
        for name, each in network.named_parameters()
    }


def mixed(network: nn.Module, order: Sequence[int], stations: tuple[int, ...]) -> Plan:
    """The large layer on the first rank of each rack, embeddings as rows, the rest on two levels. `order`: rack by rack, as many
    ranks of each as `stations`."""
    of = gradients(network)
    starts = [sum(stations[:at]) for at in range(len(stations))]
    owned = Owned(owners=tuple(Owner(rank=order[at]) for at in starts), via=TwoLevel(stations=stations))
    two_level = AllReduce(algorithm="two_level", sizes=stations)
    others = [name for name in of if name not in ("large.weight", "words.weight")]
    routes: list[tuple[list[str], Route]] = [(others[::-1], two_level), (["large.weight"], owned)]
    buckets = [
        Bucket(
            parts=tuple(Part(variable=name) for name in names),
            elements=sum(of[name].elements for name in names),
            dtype="f32",
            route=route,
            order=tuple(order),
            priority=priority,
        )
        for priority, (names, route) in enumerate(routes)
    ]
    return plan_of([*buckets, rows_bucket(of["words.weight"], order, 2)], len(order), label="mixed routes")

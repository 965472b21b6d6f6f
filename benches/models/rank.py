"""A worker of `python -m benches models`: an ordinary training script, with two lines of Hocket."""

from __future__ import annotations

import argparse
import faulthandler
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

import hocket.torch as hk
from benches.models.catalogue import MODELS, Model
from benches.models.networks import VGG19, LeNet5, ResNet50
from hocket.tools.demo import data

NETWORKS: dict[str, type[nn.Module]] = {"lenet5": LeNet5, "resnet50": ResNet50, "vgg19": VGG19}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--deadline-s", type=float, required=True, help="ends with a traceback after this")
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.deadline_s, exit=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen = MODELS[arguments.model]
    model = NETWORKS[arguments.model]()
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen.learning_rate, momentum=0.9)
    model, optimizer = hk.distribute(model, optimizer)
    batches = _digits(chosen, hk.rank(model)) if chosen.real else _noise(chosen, hk.rank(model))
    for _ in range(arguments.iterations):
        images, labels = next(batches)
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def _digits(chosen: Model, rank: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """scikit-learn's digits, from 8 to 28 pixels."""
    images, labels = map(torch.from_numpy, data.digits()[0])
    large = functional.interpolate(images, size=chosen.shape[1:], mode="bilinear")
    for taken in data.draws(0, rank, len(labels), chosen.batch):
        yield large[taken], labels[taken]


def _noise(chosen: Model, rank: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random images and labels: what moves does not depend on them."""
    generator = torch.Generator().manual_seed(rank)
    while True:
        images = torch.randn(chosen.batch, *chosen.shape, generator=generator)
        yield images, torch.randint(0, chosen.classes, (chosen.batch,), generator=generator)


if __name__ == "__main__":
    main()

"""Small networks, each with the feature that some way of training is about."""
# what these methods are, PyTorch says

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def normed() -> nn.Sequential:
    """Network with running statistics, of floats and of whole numbers."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def convolutional() -> nn.Sequential:
    """Network of convolution and batch norm, without the bias that batch norm cancels."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 4)
    )


class Backwards(nn.Module):
    """Network that registers its last layer first; large enough for several buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(512, 4), *(nn.Linear(512, 512) for _ in range(6))])
        self.first = nn.Linear(8, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for layer in reversed(self.layers[1:]):
            h = layer(h).relu()
        out: torch.Tensor = self.layers[0](h)
        return out


class Tied(nn.Module):
    """Network with one matrix for words in and out."""

    def __init__(self, *, sparse: bool = False, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8, sparse=sparse)
        self.out = nn.Linear(8, 20, bias=False)
        if tied:
            self.out.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.embed(words).mean(1))
        return out


class Branches(nn.Module):
    """Network whose caller chooses the branch that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.branches = nn.ModuleList(nn.Linear(8, 4) for _ in range(3))

    def forward(self, x: torch.Tensor, branches: tuple[int, ...] = (0,)) -> torch.Tensor:
        h = self.body(x).tanh()
        return torch.stack([self.branches[each](h) for each in branches]).sum(0)


class Scaled(nn.Module):
    """Network with a scalar parameter, and buffers in forward: changed in place, assigned anew, and missing in checkpoints."""

    mean: torch.Tensor
    seen: torch.Tensor
    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.body = nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.arange(8) % 2 == 0, persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.seen += len(x)
        out: torch.Tensor = self.scale * self.body(x - self.mean * self.mask)
        return out


class Mixed(nn.Module):
    """Network with parameters of two element types."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(8, 16)
        self.wide = nn.Linear(16, 4, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.wide(self.narrow(x).tanh().double())
        return out


class Checkpointed(nn.Module):
    """Network whose middle is computed again in backward, batch norm included."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.middle = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        self.last = nn.Linear(16, 4)
        self._reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = checkpoint(self.middle, self.first(x), use_reentrant=self._reentrant)
        out: torch.Tensor = self.last(h)
        return out


class Recurrent(nn.Module):
    """Network with weights that a library keeps flat."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(8, 12, num_layers=2, batch_first=True)
        self.out = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.cell(x)[0][:, -1])
        return out

"""LeNet-5, ResNet-50 and VGG-19, written out so that their parameters are, tensor by tensor, those of MXNet's examples.

ResNet-50 is the pre-activation one (He et al. 2016, "Identity mappings in deep residual networks") with a batch norm on the data:
157 tensors. LeNet-5 is the wide one of MXNet's MNIST example: 8 tensors, 1.72 MB.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

BATCH_NORM_EPSILON = 2e-5


class LeNet5(nn.Module):
    """Two convolutions and two linear layers, for images of shape (batch, 1, 28, 28) and ten classes."""

    def __init__(self) -> None:
        """0.43 million parameters."""
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(50 * 4 * 4, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(torch.tanh(self.conv1(images)), 2)
        x = functional.max_pool2d(torch.tanh(self.conv2(x)), 2)
        logits: torch.Tensor = self.fc2(torch.tanh(self.fc1(x.flatten(1))))
        return logits


class _Unit(nn.Module):
    """A bottleneck whose batch norms and activations come before its convolutions."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        inner = after // 4
        self.bn1 = _norm(before)
        self.conv1 = nn.Conv2d(before, inner, 1, bias=False)
        self.bn2 = _norm(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn3 = _norm(inner)
        self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
        same = before == after and stride == 1
        self.shortcut = None if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        active = self.bn1(x).relu()
        beside = x if self.shortcut is None else self.shortcut(active)
        y = self.conv1(active)
        y = self.conv2(self.bn2(y).relu())
        y = self.conv3(self.bn3(y).relu())
        added: torch.Tensor = y + beside
        return added


class ResNet50(nn.Module):
    """Sixteen bottlenecks in four stages, for images of shape (batch, 3, 224, 224) and 1,000 classes."""

    def __init__(self) -> None:
        """25.6 million parameters."""
        super().__init__()
        self.bn_data = _norm(3)
        self.conv0 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn0 = _norm(64)
        units: list[nn.Module] = []
        before = 64
        for stage, (count, after) in enumerate(zip((3, 4, 6, 3), (256, 512, 1024, 2048), strict=True)):
            for unit in range(count):
                units.append(_Unit(before, after, 2 if stage > 0 and unit == 0 else 1))
                before = after
        self.units = nn.Sequential(*units)
        self.bn1 = _norm(2048)
        self.fc1 = nn.Linear(2048, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.bn0(self.conv0(self.bn_data(images))).relu()
        x = self.units(functional.max_pool2d(x, 3, stride=2, padding=1))
        logits: torch.Tensor = self.fc1(self.bn1(x).relu().mean((2, 3)))
        return logits


class VGG19(nn.Module):
    """Sixteen convolutions and three linear layers (Simonyan and Zisserman 2015), for (batch, 3, 224, 224) and 1,000 classes."""

    def __init__(self) -> None:
        """143.7 million parameters."""
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for count, after in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
            for _ in range(count):
                layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
                before = after
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=BATCH_NORM_EPSILON)

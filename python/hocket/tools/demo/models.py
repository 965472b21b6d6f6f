"""Models of the demo, ordinary PyTorch: a byte-level causal transformer and a small CNN."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256
CONTEXT_BYTES = 128


class Block(nn.Module):
    """Pre-norm attention and feed-forward, with residuals; no dropout, so that only the data is random."""

    def __init__(self, width: int, heads: int) -> None:
        """Build a block for activations of shape (batch, time, width)."""
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.before_feed_forward = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, time, width) to the same shape."""
        batch, time, width = x.shape
        parts = self.query_key_value(self.before_attention(x)).view(batch, time, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(batch, time, width))
        wide = functional.gelu(self.widen(self.before_feed_forward(x)))
        fed: torch.Tensor = x + self.narrow(wide)
        return fed


class Transformer(nn.Module):
    """Model that predicts each next byte from those before it: 4 layers of width 256 are 3.3 million parameters."""

    def __init__(self, width: int = 256, layers: int = 4, heads: int = 4) -> None:
        """Build the model, with learned positions for at most CONTEXT_BYTES bytes."""
        super().__init__()
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(CONTEXT_BYTES, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for table in (self.bytes, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Map bytes of shape (batch, time) to logits of shape (batch, time, 256)."""
        x = self.bytes(text) + self.positions.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class DigitsNet(nn.Module):
    """Model of two convolutions and two linear layers for the 8 x 8 digits: 0.15 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images of shape (batch, 1, 8, 8) to logits of shape (batch, 10)."""
        logits: torch.Tensor = self.layers(images)
        return logits

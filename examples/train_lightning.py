"""Train a classifier of scikit-learn's digits with Lightning, whose model `hk.distribute` trains.

    python examples/train_lightning.py 4                # Lightning starts the ranks
    hocket run -n 4 examples/train_lightning.py 4
    torchrun --nproc-per-node 4 examples/train_lightning.py 4

Only the import of Hocket and the strategy are for Hocket.
"""

import sys

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from hocket.torch.trainers.lightning import HocketStrategy


class Digits(lightning.LightningModule):
    """A classifier."""

    def __init__(self) -> None:
        """7,000 parameters."""
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))

    def training_step(self, batch: list[torch.Tensor], _at: int) -> torch.Tensor:
        """Return the loss."""
        samples, labels = batch
        return nn.functional.cross_entropy(self.net(samples), labels)

    def validation_step(self, batch: list[torch.Tensor], _at: int) -> None:
        """Log the share of right answers."""
        samples, labels = batch
        right = (self.net(samples).argmax(1) == labels).float().mean()
        self.log("right", right, sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        """Print it."""
        self.print(f"epoch {self.current_epoch}: {float(self.trainer.callback_metrics['right']):.1%} right")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make one."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


lightning.seed_everything(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
train, held = random_split(data, (1500, len(data) - 1500))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(sys.argv[1] if len(sys.argv) > 1 else 2),
    strategy=HocketStrategy(),
    max_epochs=3,
    gradient_clip_val=1.0,
    num_sanity_val_steps=0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Digits(), DataLoader(train, 16, shuffle=True), DataLoader(held, 64))

"""A user's Lightning script, `lightning_job.py WAY WORLD OUT`; Lightning starts the other ranks itself.

Digits, with batch normalisation, metrics over ranks, early stopping and checkpoints. Each rank writes its losses and
parameters to OUT.
"""

import sys
from pathlib import Path

import lightning
import torch
import torchmetrics
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import hocket.torch.trainers.lightning  # noqa: F401  # registers the strategy

STRATEGIES = {
    "gloo": "ddp",
    "backend": DDPStrategy(process_group_backend="hocket"),
    "distribute": "hocket",
}


class Wrapped(Callback):
    """Notes in what the model is trained, which Lightning undoes at the end."""

    def on_train_start(self, trainer, _module):
        self.kind = type(trainer.strategy.model).__name__


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layers = torch.nn
        self.net = layers.Sequential(
            layers.Linear(64, 96), layers.BatchNorm1d(96), layers.ReLU(), layers.Linear(96, 10)
        )
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=10)
        self.losses = []

    def training_step(self, batch, _at):
        samples, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(samples), labels)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _at):
        samples, labels = batch
        answers = self.net(samples)
        self.accuracy(answers, labels)
        self.log("accuracy", self.accuracy)
        self.log("val_loss", torch.nn.functional.cross_entropy(answers, labels), sync_dist=True)
        # Averages of integers: what ended Lightning's first validation.
        self.log("samples", torch.tensor(len(labels)), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def main():
    way, world, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    lightning.seed_everything(7)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
    train, held = torch.utils.data.random_split(data, (1500, len(data) - 1500))
    model = Digits()
    wrapped = Wrapped()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=STRATEGIES[way],
        plugins=[LightningEnvironment()],  # left to guess, Lightning loads MPI where there is mpi4py
        max_epochs=2,
        gradient_clip_val=1.0,
        default_root_dir=out,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            wrapped,
            EarlyStopping("val_loss", patience=3),
            ModelCheckpoint(out, monitor="accuracy", mode="max"),
        ],
    )
    trainer.fit(model, DataLoader(train, 64, shuffle=True), DataLoader(held, 64))
    trainer.validate(model, DataLoader(held, 64))
    figures = [trainer.callback_metrics[name].item() for name in ("accuracy", "val_loss", "samples")]
    torch.save(
        {
            "used": [torch.distributed.get_backend(), wrapped.kind],
            "losses": model.losses + figures,
            "state": model.state_dict(),
        },
        out / f"rank-{trainer.global_rank}.pt",
    )


if __name__ == "__main__":
    main()

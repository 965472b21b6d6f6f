"""Trainings by Lightning, which starts the ranks itself, that are saved, resumed, optimized by hand and rounded:
`lightning_edges.py BY OUT`. BY: `ddp`, or `distribute`."""

import os
import sys
import warnings
from pathlib import Path

import lightning
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from torch.utils.data import DataLoader

from hocket.torch.trainers.lightning import HocketStrategy
from tests.clients.shared import UPDATES, WAYS, WORLD, dies, digits, network, options, state


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, batch, _at):
        dies(self.trainer.global_rank, self.trainer.global_step)
        samples, labels = batch
        return torch.nn.functional.cross_entropy(self.net(samples), labels)

    def validation_step(self, batch, _at):
        samples, labels = batch
        self.log("loss", torch.nn.functional.cross_entropy(self.net(samples), labels), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class Adversaries(lightning.LightningModule):
    """Two optimizers, stepped by hand, the second after two backward passes of which only one communicates."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(5)
        self.makes, self.judges = torch.nn.Linear(8, 64), torch.nn.Linear(64, 1)

    def training_step(self, batch, at):
        samples, _ = batch
        of_maker, of_judge = self.optimizers()
        made = self.makes(samples[:, :8])
        with of_maker.toggle_model():
            of_maker.zero_grad()
            self.manual_backward(self.judges(made).square().mean())
            of_maker.step()
        with of_judge.toggle_model(sync_grad=at % 2 == 1):
            true, false = self.judges(samples), self.judges(made.detach())
            self.manual_backward((true - 1).square().mean() + false.square().mean())
        if at % 2:
            of_judge.step()
            of_judge.zero_grad()

    def configure_optimizers(self):
        return [
            torch.optim.SGD(self.makes.parameters(), 0.05),
            torch.optim.SGD(self.judges.parameters(), 0.05),
        ]


def trainer_of(by, way, out, model, **more):
    asked = {
        "max_steps": UPDATES,
        "accumulate_grad_batches": 2,
        "gradient_clip_val": 0.5,
        "check_val_every_n_epoch": None,
        "val_check_interval": 3,
        **more,
    }
    plain = "ddp_find_unused_parameters_true" if isinstance(model, Adversaries) else "ddp"
    return lightning.Trainer(
        accelerator="cpu",
        devices=WORLD,
        strategy=HocketStrategy(**options(way, model)) if by == "distribute" else plain,
        plugins=[LightningEnvironment()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=out,
        **asked,
    )


def resumed(by, way, out, **more):
    """Parameters of a whole training, and of one that goes on from its middle in other objects."""
    file = out / f"{way}-{len(more)}.ckpt"
    model, other = Digits(), Digits()
    half, rest = (trainer_of(by, way, out, each, **more) for each in (model, other))
    loader, held = DataLoader(digits(), 8), DataLoader(digits(64), 8)
    half.fit_loop.epoch_loop.max_steps = UPDATES // 2
    half.fit(model, loader, held)
    half.save_checkpoint(file)
    rest.fit(other, loader, held, ckpt_path=file, weights_only=True)
    whole = Digits()
    trainer = trainer_of(by, way, out, whole, **more)
    trainer.fit(whole, loader, held)
    loss = trainer.callback_metrics["loss"].item()
    return {"whole": state(whole), "resumed": state(other), "norms": [loss]}


def by_hand(by, out):
    model = Adversaries()
    more = {"gradient_clip_val": None, "accumulate_grad_batches": 1}
    trainer_of(by, "exact", out, model, **more).fit(model, DataLoader(digits(), 8))
    return {"whole": state(model), "resumed": state(model)}


def main():
    warnings.simplefilter("ignore")
    by, out = sys.argv[1], Path(sys.argv[2])
    found = {"bf16": resumed(by, "exact", out, precision="bf16-mixed"), "by hand": by_hand(by, out)}
    if by == "distribute":
        found |= {way: resumed(by, way, out) for way in WAYS}
    torch.save(found, out / f"rank-{os.environ['LOCAL_RANK']}.pt")


if __name__ == "__main__":
    main()

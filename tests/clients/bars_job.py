"""A loop with a progress bar, `bars_job.py BAR RANKS`: tqdm's own, the Trainer's, or Lightning's default one; by `hk.distribute` if
there are ranks. Each of its STEPS takes STEP_S and more."""

import logging
import os
import sys
import time
import warnings

import torch

STEPS, STEP_S = 24, 0.05


def tqdm(_ranks):
    from tqdm import trange

    for _ in trange(STEPS):
        time.sleep(STEP_S)


def trainer(ranks):
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, inputs):
            time.sleep(STEP_S)
            return {"loss": self.layer(inputs).square().mean()}

    settings = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=1,
        save_strategy="no",
        report_to="none",
    )
    found = Trainer(Model(), settings, train_dataset=[{"inputs": torch.ones(4)} for _ in range(STEPS * 4)])
    if ranks > 1:
        import hocket.torch as hk

        hk.trainer(found)
    found.train()


def of_lightning(ranks):
    import lightning
    from lightning.fabric.plugins.environments import LightningEnvironment
    from torch.utils.data import DataLoader

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _at):
            time.sleep(STEP_S)
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    strategy, plugins = "auto", [LightningEnvironment()]
    if ranks > 1:
        from hocket.torch.trainers.lightning import HocketStrategy

        strategy, plugins = HocketStrategy(), []
    found = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy=strategy,
        plugins=plugins,
        max_epochs=1,
        callbacks=[],
        logger=False,
        enable_checkpointing=False,
    )
    found.fit(Model(), DataLoader(torch.ones(STEPS * ranks, 4), 1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ["HF_HUB_OFFLINE"] = "1"
    {"tqdm": tqdm, "trainer": trainer, "lightning": of_lightning}[sys.argv[1]](int(sys.argv[2]))

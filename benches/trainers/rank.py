"""A rank of `python -m benches trainers`: the demo's transformer under a trainer, with its DDP on Gloo or `hk.distribute`."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import hocket.torch as hk
from hocket.tools.demo.data import library_text
from hocket.tools.demo.models import CONTEXT_BYTES, Transformer

STEPS, FIRST = 16, 4
"""Number of steps, and the first that counts: a job that drives itself has planned by then."""
BATCH = 2


class Learner(nn.Module):
    """The transformer, with its loss as trainers want it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = Transformer()

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        answers = self.net(input_ids)
        return {"loss": cross_entropy(answers.flatten(0, 1), labels.flatten())}


class Clock:
    """Times at which steps of an optimizer have ended."""

    def __init__(self) -> None:
        self.ended_s: list[float] = []

    def watch(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        optimizer.register_step_post_hook(lambda *_: self.ended_s.append(time.monotonic()))
        return optimizer


def windows() -> list[dict[str, torch.Tensor]]:
    """Text enough for all ranks' steps."""
    text = torch.tensor(library_text()[0], dtype=torch.int64)
    count = int(os.environ["WORLD_SIZE"]) * BATCH * STEPS
    rows = text[: count * (CONTEXT_BYTES + 1)].view(count, -1)
    return [{"input_ids": each[:-1], "labels": each[1:]} for each in rows]


def by_accelerate(by: str, clock: Clock) -> None:
    from accelerate import Accelerator  # noqa: PLC0415  # one rank loads one trainer

    accelerator = Accelerator(cpu=True)
    if by != "ddp":
        hk.accelerate(accelerator, promise=by)
    model = Learner()
    optimizer = clock.watch(torch.optim.AdamW(model.parameters(), 1e-3))
    model, outer, batches = accelerator.prepare(model, optimizer, DataLoader(windows(), BATCH))  # type: ignore[arg-type]
    for batch in batches:
        outer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        outer.step()


def by_trainer(by: str, clock: Clock) -> None:
    import transformers  # noqa: PLC0415  # as above

    model = Learner()
    arguments = transformers.TrainingArguments(
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        max_grad_norm=0.0,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    optimizer = clock.watch(torch.optim.AdamW(model.parameters(), 1e-3))
    trainer = transformers.Trainer(model, arguments, train_dataset=windows(), optimizers=(optimizer, None))
    if by != "ddp":
        hk.trainer(trainer, promise=by)
    trainer.train()


def by_lightning(by: str, clock: Clock) -> None:
    import lightning  # noqa: PLC0415  # as above

    from hocket.torch.trainers.lightning import HocketStrategy  # noqa: PLC0415

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Learner()

        def training_step(self, batch: dict[str, torch.Tensor], _at: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return clock.watch(torch.optim.AdamW(self.parameters(), 1e-3))

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=int(os.environ["WORLD_SIZE"]),
        strategy="ddp" if by == "ddp" else HocketStrategy(promise=by, process_group_backend="gloo"),
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(windows(), BATCH))  # type: ignore[arg-type]


TRAINERS: dict[str, Callable[[str, Clock], Any]] = {
    "accelerate": by_accelerate,
    "trainer": by_trainer,
    "lightning": by_lightning,
}


def main() -> None:
    """Train; rank 0 writes the median time of a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer", choices=TRAINERS, required=True)
    parser.add_argument("--by", choices=("ddp", "exact", "rounded"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clock = Clock()
    TRAINERS[arguments.trainer](arguments.by, clock)
    if os.environ["RANK"] == "0":
        step_s = median(after - before for before, after in pairwise(clock.ended_s[FIRST:]))
        arguments.out.write_text(json.dumps({"step_s": step_s, "steps": len(clock.ended_s)}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

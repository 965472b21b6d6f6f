"""Trainings by transformers' Trainer under torchrun that are saved, resumed, stopped and rounded: `trainer_edges.py BY OUT`. BY:
`ddp`, or `distribute`."""

import os
import sys
from pathlib import Path

import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

import hocket.torch as hk
from tests.clients.shared import UPDATES, WAYS, dies, digits, network, options, state


class Classifier(torch.nn.Module):
    def __init__(self, net=None):
        super().__init__()
        self.net = net or network()

    def forward(self, samples, labels):
        answers = self.net(samples)
        return {"loss": torch.nn.functional.cross_entropy(answers, labels), "logits": answers}


class Dies(TrainerCallback):
    def on_step_begin(self, arguments, progress, _control, **_):
        dies(arguments.process_index, progress.global_step)


def collated(pairs):
    samples, labels = zip(*pairs, strict=True)
    return {"samples": torch.stack(samples), "labels": torch.stack(labels)}


def trainer_of(by, way, out, callbacks=(), model=None, **more):
    asked = {
        "use_cpu": True,
        "max_steps": UPDATES,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "optim": "sgd",
        "learning_rate": 0.05,
        "max_grad_norm": 0.5,
        "logging_steps": 1,
        "save_steps": UPDATES // 2,
        "report_to": "none",
        "disable_tqdm": True,
        **more,
    }
    model = model or Classifier()
    made = Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(out), **asked),
        train_dataset=digits(),
        eval_dataset=digits(64),
        data_collator=collated,
        callbacks=[Dies(), *callbacks],
    )
    return hk.trainer(made, **options(way, model)) if by == "distribute" else made


def resumed(by, way, out, **more):
    """Parameters of a whole training, and of one that goes on from its middle in other objects."""
    folder = out / f"{way}-{len(more)}"
    whole = trainer_of(by, way, folder, **more)
    whole.train()
    second = trainer_of(by, way, folder, **more)
    second.train(resume_from_checkpoint=str(folder / f"checkpoint-{UPDATES // 2}"))
    norms = [each["grad_norm"] for each in whole.state.log_history if "grad_norm" in each]
    return {"whole": state(whole.model), "resumed": state(second.model), "norms": norms}


def stopped(by, out):
    """Early stopping after an evaluation that is no better, and the best model in the end; a second `train` goes on. Without batch
    normalisation: the Trainer's DDP evaluates with each rank's own statistics."""
    more = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "load_best_model_at_end": True,
        "model": Classifier(torch.nn.Sequential(*(each for at, each in enumerate(network()) if at != 1))),
        "max_steps": 40,
    }
    # By this threshold, no evaluation is better than the first.
    callback = EarlyStoppingCallback(1, early_stopping_threshold=10.0)
    made = trainer_of(by, "exact", out / "stopped", [callback], **more)
    made.train()
    steps = made.state.global_step
    losses = [each["eval_loss"] for each in made.state.log_history if "eval_loss" in each]
    found = {"steps": steps, "losses": losses, "whole": state(made.model)}
    made.args.max_steps = 4
    made.train()
    return {**found, "again": state(made.model)}


def main():
    by, out = sys.argv[1], Path(sys.argv[2])
    found = {"bf16": resumed(by, "exact", out, bf16=True), "stopped": stopped(by, out)}
    if by == "distribute":
        found |= {way: resumed(by, way, out) for way in WAYS}
    torch.save(found, out / f"rank-{os.environ['RANK']}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""A user's script for transformers' Trainer under torchrun, `trainer_job.py WAY WORLD OUT`.

A small GPT-2 learns the source of the standard library. The lines that choose Hocket are those that the documentation names.
Each rank writes its losses and parameters to OUT.
"""

import argparse
import inspect
import os
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import hocket.torch as hk

LENGTH = 48


class Bytes(torch.utils.data.Dataset):
    def __init__(self, text):
        self.bytes = torch.tensor(list(text.encode("ascii", "ignore")), dtype=torch.int64)

    def __len__(self):
        return len(self.bytes) // LENGTH

    def __getitem__(self, at):
        window = self.bytes[at * LENGTH : (at + 1) * LENGTH]
        return {"input_ids": window, "labels": window}


def main():
    way, _, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if way == "backend":
        torch.distributed.init_process_group("hocket")
    text = inspect.getsource(argparse)
    settings = TrainingArguments(
        output_dir=str(out / "trainer"),
        use_cpu=True,
        max_steps=12,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=6,
        save_strategy="no",
        report_to="none",
        seed=7,
        disable_tqdm=True,
    )
    torch.manual_seed(7)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=128, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
    )
    held = Bytes(text[:4000])
    trainer = Trainer(model=model, args=settings, train_dataset=Bytes(text[4000:24000]), eval_dataset=held)
    if way == "distribute":
        hk.trainer(trainer)
    trainer.train()
    losses = [
        entry[key]
        for entry in trainer.state.log_history
        for key in ("loss", "grad_norm", "eval_loss")
        if key in entry
    ]
    torch.save(
        {
            "used": [torch.distributed.get_backend(), type(trainer.model_wrapped).__name__],
            "losses": losses,
            "state": model.state_dict(),
        },
        out / f"rank-{os.environ['RANK']}.pt",
    )
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""Train a small GPT-2 on the bytes of a file with transformers' Trainer, whose model `hk.distribute` trains.

    hocket run -n 4 examples/train_trainer.py README.md
    torchrun --nproc-per-node 4 examples/train_trainer.py README.md

Only the import of Hocket and `hk.trainer` are for Hocket.
"""

import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import hocket.torch as hk

LENGTH, WIDTH = 64, 64

file = Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
text = torch.tensor(list(file.read_bytes()))
windows = text[: len(text) // LENGTH * LENGTH].view(-1, LENGTH)
if not len(windows):
    sys.exit(f"{file} has {len(text)} bytes: at least {LENGTH} are needed")

torch.manual_seed(0)
shape = {"n_positions": LENGTH, "n_embd": WIDTH, "n_layer": 2, "n_head": 4}
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, bos_token_id=0, eos_token_id=0, **shape))
arguments = TrainingArguments(
    output_dir="out/train_trainer",
    use_cpu=True,
    num_train_epochs=3,
    per_device_train_batch_size=4,
    learning_rate=1e-3,
    logging_steps=20,
    save_strategy="epoch",
    report_to="none",
    disable_tqdm=True,
)
data = [{"input_ids": each, "labels": each} for each in windows]
trainer = hk.trainer(Trainer(model, arguments, train_dataset=data))
trainer.train()

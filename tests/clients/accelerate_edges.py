"""Trainings by Accelerate under torchrun that are saved, resumed, clipped and rounded: `accelerate_edges.py BY OUT`. BY: `ddp`, or
`distribute`."""

import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

import hocket.torch as hk
from tests.clients.shared import UPDATES, WAYS, dies, digits, network, options, state

ACCUMULATED = 2


class Training:
    def __init__(self, by, way, mixed="no"):
        AcceleratorState._reset_state()  # one process has one precision, but in tests
        self.accelerator = Accelerator(
            cpu=True, gradient_accumulation_steps=ACCUMULATED, mixed_precision=mixed
        )
        model = network()
        if by == "distribute":
            hk.accelerate(self.accelerator, **options(way, model))
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
        set_seed(3)
        loader = DataLoader(digits(), 8)
        self.model, self.optimizer, self.loader, self.schedule = self.accelerator.prepare(
            model, optimizer, loader, schedule
        )

    def train(self, first, last):
        accelerator, norms = self.accelerator, []
        batches = iter(accelerator.skip_first_batches(self.loader, first * ACCUMULATED))
        while len(norms) < last - first:
            samples, labels = next(batches)
            dies(accelerator.process_index, len(norms))
            with accelerator.accumulate(self.model):
                loss = torch.nn.functional.cross_entropy(self.model(samples), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norms.append(accelerator.clip_grad_norm_(self.model.parameters(), 0.5).item())
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
        return norms

    def end(self, by):
        if by == "distribute":
            hk.flush(self.model)
        return state(self.accelerator.unwrap_model(self.model))


def resumed(by, way, out, mixed="no"):
    """Parameters of a whole training, and of one that goes on from its middle in other objects."""
    whole = Training(by, way, mixed)
    norms = whole.train(0, UPDATES // 2)
    whole.accelerator.save_state(out / f"{way}-{mixed}")
    norms += whole.train(UPDATES // 2, UPDATES)
    second = Training(by, way, mixed)
    second.accelerator.load_state(out / f"{way}-{mixed}")
    second.train(UPDATES // 2, UPDATES)
    return {"whole": whole.end(by), "resumed": second.end(by), "norms": norms}


def main():
    by, out = sys.argv[1], Path(sys.argv[2])
    found = {"bf16": resumed(by, "exact", out, "bf16")}
    if by == "distribute":
        found |= {way: resumed(by, way, out) for way in WAYS}
    torch.save(found, out / f"rank-{os.environ['RANK']}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

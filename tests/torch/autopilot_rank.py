"""A rank that trains with two lines: `autopilot_rank.py OUT KIND STEPS`.

KIND: `blind` has no look before the first step, so it begins with a ring; `liar` has one, and a planner whose first plan is
that ring, promised to be fast; `gloo` is DDP on Gloo.
"""

import json
import os
import sys
from pathlib import Path

import msgspec

import torch
from torch import nn

WIDTH = 320


def distribute(kind, model, optimizer):
    """As the kind says."""
    if kind == "gloo":
        torch.distributed.init_process_group("gloo")
        return nn.parallel.DistributedDataParallel(model), optimizer
    import hocket.torch as hk

    if kind == "blind":
        from hocket.training import process

        process.known_cluster = lambda _job, _engine, given: given
    if kind == "liar":
        lie()
    return hk.distribute(model, optimizer)


def lie():
    """Ranks alternate between racks: a ring in the given order crosses the trunk at every step."""
    from hocket.artefacts.gradient import Gradient
    from hocket.artefacts.plan import Evidence
    from hocket.planning.default import by_hosts, default_plan
    from hocket.training.autopilot.knowledge import Knowledge

    honest = Knowledge.proposal

    def proposal(self, current, step_s):
        _, current_s = honest(self, current, step_s)
        gradients = [Gradient(each.name, each.shape, each.dtype) for each in self.gradients]
        ring = default_plan(gradients[::-1], by_hosts(self.hosts))
        promised = Evidence(predicted_step_s=current_s / 3)
        return msgspec.structs.replace(ring, label="a lie", evidence=promised), current_s

    Knowledge.proposal = proposal


def main():
    """Trains, and writes its parameters and the epoch of each step."""
    out, kind, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rank = int(os.environ.get("HOCKET_RANK") or os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = nn.Sequential(
        *(layer for _ in range(5) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())), nn.Linear(WIDTH, 1)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = distribute(kind, network, optimizer)
    generator = torch.Generator().manual_seed(rank)
    epochs = []
    for _ in range(steps):
        inputs = torch.randn(16, WIDTH, generator=generator)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if kind != "gloo":
            import hocket.torch as hk

            epochs.append(hk.agreed(model)["epoch"])
    numbers = torch.cat([each.detach().flatten() for each in network.parameters()])
    torch.save(numbers, out / f"{kind}-{rank}.pt")
    (out / f"{kind}-{rank}.json").write_text(json.dumps(epochs))
    if kind == "gloo":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

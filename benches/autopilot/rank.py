"""One rank of `python -m benches autopilot`: trains with one contender and writes when each of its steps ended.

`python -m benches.autopilot.rank CONTENDER MODEL STEPS OUT`. CONTENDER: `hocket`; `blind`, without the look before the first step;
`liar`, whose planner's first plan is slow and promised to be fast; `gloo`, DDP on Gloo. OUT's `.steps` has the steps so far.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import msgspec

import torch
from hocket.demo.task import TASKS
from torch import nn

TINY = 64


def main() -> None:
    """Train."""
    contender, model, steps, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    rank = int(os.environ.get("HOCKET_RANK") or os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, batches = _task(model, rank)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    trained, optimizer = _distribute(contender, network, optimizer)
    ended_s = [time.perf_counter()]
    for _ in range(steps):
        inputs, loss_of = next(batches)
        optimizer.zero_grad()
        loss_of(trained(inputs)).backward()
        optimizer.step()
        ended_s.append(time.perf_counter())
        _tell(out, rank, len(ended_s) - 1)
    if rank == 0:
        out.write_text(json.dumps([b - a for a, b in pairwise(ended_s)]))
    if contender == "gloo":
        torch.distributed.destroy_process_group()


def _tell(out: Path, rank: int, steps: int) -> None:
    """The number of steps so far: what watches the job changes the network by it."""
    if rank == 0:
        out.with_suffix(".steps").write_text(str(steps))


def _task(model: str, rank: int):  # type: ignore[no-untyped-def]
    if model == "tiny":
        network = nn.Sequential(nn.Linear(TINY, TINY), nn.Tanh(), nn.Linear(TINY, TINY))
        generator = torch.Generator().manual_seed(rank)
        return network, iter(
            lambda: (torch.randn(8, TINY, generator=generator), lambda y: y.square().mean()), None
        )
    task = TASKS[model]
    drawn = task.batches(0, rank)
    return task.model(0), ((inputs, lambda y, t=targets: task.loss(y, t)) for inputs, targets in drawn)


def _distribute(contender: str, network, optimizer):  # type: ignore[no-untyped-def]
    if contender == "gloo":
        torch.distributed.init_process_group("gloo")
        return nn.parallel.DistributedDataParallel(network), optimizer
    import hocket.torch as hk  # noqa: PLC0415

    if contender in ("blind", "liar"):
        from hocket.training import process  # noqa: PLC0415

        if contender == "blind":
            process.known_cluster = lambda _job, _engine, given: given  # type: ignore[attr-defined,assignment]
        else:
            _lie()
    return hk.distribute(network, optimizer)


def _lie() -> None:
    """The planner's first plan is a ring in the given order, which crosses the trunk at every step, and promised to be fast."""
    from hocket.artefacts.gradient import Gradient  # noqa: PLC0415
    from hocket.artefacts.plan import Evidence  # noqa: PLC0415
    from hocket.planning.default import by_hosts, default_plan  # noqa: PLC0415
    from hocket.training.autopilot.knowledge import Knowledge  # noqa: PLC0415

    honest = Knowledge.proposal

    def proposal(self, current, step_s):  # type: ignore[no-untyped-def]
        _, current_s = honest(self, current, step_s)
        gradients = [Gradient(each.name, each.shape, each.dtype) for each in self.gradients]
        ring = default_plan(gradients[::-1], by_hosts(self.hosts))
        promised = Evidence(predicted_step_s=current_s / 3)
        return msgspec.structs.replace(ring, label="a lie", evidence=promised), current_s

    Knowledge.proposal = proposal  # type: ignore[method-assign]


if __name__ == "__main__":
    main()

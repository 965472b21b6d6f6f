"""One rank of the row `fidelity` of `python -m benches delays`: iterations of one plan, with layers whose computation is a wait.

`python -m benches.delays.fidelity_rank FOLDER [--out FILE]`. FOLDER has the profile for the layers, and the plan; without a file to
write to, the rank is profiled.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import hocket.torch as hk
from benches.delays.contest import Planned
from benches.delays.rank import Trained, model_of
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile

WARM_UP, ITERATIONS = 6, 12


def main() -> None:
    """Train; rank 0 writes the mean seconds of an iteration."""
    folder = Path(sys.argv[1])
    wanted = files.read(folder / "profile.json", Profile)
    torch.set_num_threads(1)
    if len(sys.argv) == 2:
        return profiled(wanted)
    out = Path(sys.argv[3])
    dist.init_process_group("gloo")
    plan = files.read(folder / "plan.json", Plan)
    trained = Trained(Planned(plan=plan), wanted)
    mean_s = trained.iterations_s(WARM_UP, ITERATIONS)
    if os.environ["HOCKET_RANK"] == "0":
        out.write_text(json.dumps(mean_s))
    return dist.destroy_process_group()


def profiled(wanted: Profile) -> None:
    """Train until the profiler ends the script."""
    layers = model_of(wanted)
    model, optimizer = hk.distribute(layers, torch.optim.SGD(layers.parameters(), lr=0.01))
    while True:
        optimizer.zero_grad()
        model(torch.zeros(1, requires_grad=True)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main()

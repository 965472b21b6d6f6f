"""One rank of a job that drives itself, with layers whose computation is a wait.

`python -m benches.delays.driven FOLDER ITERATIONS`. Gradients are ones and the learning rate is a power of two, so that a
parameter tells exactly how many iterations were applied to it. Rank 0 writes `driven.json`, and while it trains the number of
iterations so far to `driven.steps`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec
import torch

import hocket.torch as hk
from benches.delays.contest import Driven
from benches.delays.rank import model_of
from hocket.artefacts import files
from hocket.artefacts.profile import Profile

RATE = 2.0**-10


def main() -> None:
    folder, iterations = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    network = model_of(files.read(folder / "profile.json", Profile))
    model, optimizer = hk.distribute(network, torch.optim.SGD(network.parameters(), lr=RATE))
    first = os.environ["HOCKET_RANK"] == "0"
    x = torch.zeros(1, requires_grad=True)
    ends_s = [time.perf_counter()]
    for iteration in range(iterations):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        ends_s.append(time.perf_counter())
        if first:
            (folder / "driven.steps").write_text(str(iteration + 1))
    hk.flush(model)
    if first:
        applied = [-float(bound) / RATE for each in network.parameters() for bound in each.aminmax()]
        result = Driven(ends_s=tuple(ends_s), least_applied=min(applied), most_applied=max(applied))
        (folder / "driven.json").write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main()

"""One rank of `python -m benches routes`: `python -m benches.routes.rank CONTENDER SIZE STEPS OUT`.

CONTENDER is `mixed`, a plan's file, or `gloo` for DDP on Gloo. OUT is a folder: each rank leaves its parameters there, and what it
sent to whom.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from benches.routes.network import ORDER, SIZES, STATIONS, VggLike, batch, mixed
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.settings import Settings
from hocket.torch import distribute
from hocket.training.process import joined


def main() -> None:
    contender, size, steps, out = sys.argv[1], SIZES[sys.argv[2]], int(sys.argv[3]), Path(sys.argv[4])
    rank = int(os.environ.get("HOCKET_RANK") or os.environ["RANK"])
    torch.set_num_threads(1)
    network = VggLike(size)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    model: nn.Module = network
    if contender == "gloo":
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(network)
    else:
        given = contender != "mixed"
        plan = files.read(Path(contender), Plan) if given else mixed(network, ORDER, STATIONS)
        distribute(network, optimizer, plan=plan)
        engine = joined(Settings.from_environment()).engine
        before = engine.bytes_sent()
    for step in range(steps):
        images, words, labels = batch(size, step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images, words), labels).backward()
        optimizer.step()
    name = Path(contender).stem
    torch.save(network.state_dict(), out / f"{name}-{rank}.pt")
    if contender == "gloo":
        torch.distributed.destroy_process_group()
    else:
        sent = [now - then for now, then in zip(engine.bytes_sent(), before, strict=True)]
        (out / f"{name}-{rank}.json").write_text(json.dumps(sent))


if __name__ == "__main__":
    main()

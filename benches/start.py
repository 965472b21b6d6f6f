"""CPU time of a rank until it has trained for some steps: imports, the start of the job and its programs; among eight, and alone.

Ranks are processes as `hocket run` starts them. Each counts all of its threads, so a rank that spins while it waits shows.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benches.row import Row
from hocket.errors import PeerError
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

WORLD = 8
ROUNDS = 5
LAYERS, WIDTH, STEPS = 100, 64, 3
TIMEOUT_S = 120.0
TARGET = 1.5


def measure(world: int = WORLD, rounds: int = ROUNDS) -> list[Row]:
    """Return the CPU time of a rank alone, of one among `world`, and their ratio; jobs of both kinds in turns."""
    alone, among = [], []
    for _ in range(rounds):
        alone.append(statistics.mean(cpu_s(1)))
        among.append(statistics.mean(cpu_s(world)))
    ratios = [each / one for each, one in zip(among, alone, strict=True)]
    return [
        Row.over(alone, name="ranks", what="CPU time of a rank alone", unit="s"),
        Row.over(among, name="ranks", what=f"CPU time of a rank among {world}", unit="s"),
        Row.over(ratios, name="ranks", what=f"a rank among {world}, over one alone", target=TARGET, unit="x"),
    ]


def cpu_s(world: int) -> list[float]:
    """Return the CPU seconds of each rank of a job. Raises PeerError with the ranks' output when one fails."""
    output = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="hocket-start-") as temporary:
        argv = [sys.executable, "-m", "benches.start", temporary]
        specs = [ProcessSpec(argv=argv, environment={"OMP_NUM_THREADS": "1"})] * world
        # Programs are compiled, not read from the user's cache.
        settings = Settings(timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S, cache=f"{temporary}/cache")
        outcome = launch(specs, settings=settings, out=output, err=output)
        if outcome.code != 0:
            raise PeerError(f"the ranks of `python -m benches start` failed:\n{output.getvalue().decode()}")
        return [json.loads(Path(temporary, f"{rank}.json").read_text()) for rank in range(world)]


def train(directory: Path) -> None:
    """Train for some steps as one rank, and write the CPU seconds of this process since it began."""
    import torch  # noqa: PLC0415  # part of a rank's start

    import hocket.torch as hk  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, WIDTH)).square().mean().backward()
        optimizer.step()
    directory.joinpath(f"{os.environ['HOCKET_RANK']}.json").write_text(json.dumps(time.process_time()))


ROWS: Mapping[str, Callable[[], list[Row]]] = {"ranks": measure}

if __name__ == "__main__":
    train(Path(sys.argv[1]))

"""One rank of the row `light` of `python -m benches elastic`: trains a network of NumPy arrays, without a framework to import.

`python -m benches.elastic.light_rank DIRECTORY MODEL`; it has one model. The framework is the tests' own. Computation is a wait.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

import numpy as np

from hocket.settings import Settings
from hocket.training.assemble.asked import Given
from hocket.training.assemble.start import elastic_session_of, prepare
from hocket.training.loop.loop import Loop
from hocket.training.process import joined
from hocket.training.step.companion import Alone

COMPUTED_S = 0.1
WIDTH, BATCH = 16, 2
SHAPES = {"0.weight": (WIDTH, WIDTH), "0.bias": (WIDTH,), "1.weight": (WIDTH, 1), "1.bias": (1,)}


def main() -> None:
    directory, settings = Path(sys.argv[1]), Settings.from_environment()
    process = joined(settings)
    # An interface that is not typed.
    adapter = importlib.import_module("tests.training.adapters").OfToy(
        {name: np.full(shape, 0.1) for name, shape in SHAPES.items()}
    )
    framework = adapter.framework
    source = prepare(framework, Given(), process=process, settings=settings)
    loop = Loop(process.job)
    session, commit = elastic_session_of(
        framework, source, process=process, companion=Alone(), spans=None, loop=loop
    )
    process.begin()
    framework.on_step(loop.stepped)
    process.also_close(session.close)
    session.start()
    draw = np.random.default_rng(process.job.rank)
    with (directory / f"{os.getpid()}.steps").open("w", buffering=1) as steps:
        while True:
            time.sleep(COMPUTED_S)
            adapter.backward(draw.normal(size=(BATCH, WIDTH)), draw.normal(size=(BATCH, 1)), spare=False)
            adapter.step()
            adapter.zero_grad()
            counted = commit.standing.counted
            rank = counted.index(process.job.rank)
            steps.write(f"{time.monotonic()} {session.iteration} {rank} {len(counted)}\n")


if __name__ == "__main__":
    main()

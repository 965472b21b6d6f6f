"""One rank of `python -m benches frameworks`: contenders train in turns, on the same batches.

`python -m benches.frameworks.rank FRAMEWORK CONTENDERS --out FILE [--samples N] [--turns N]`. Rank 0 writes a `Result`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TypedDict

import numpy as np

from benches.frameworks.model import SAMPLES
from benches.frameworks.turns import turn

BALANCED = "balanced"
"""Option for a number of samples with which backward takes as long as communication; JAX alone."""


class Result(TypedDict):
    """Seconds per step by contender and turn, processor seconds of a rank, and samples of a rank's batch."""

    steps_s: dict[str, list[list[float]]]
    processor_s: dict[str, list[list[float]]]
    samples: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=("jax", "tensorflow"))
    parser.add_argument("contenders", type=lambda text: text.split(","))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", default=str(SAMPLES))
    parser.add_argument("--turns", type=int, default=6)
    given = parser.parse_args()
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    # Loads the framework.
    module = importlib.import_module(f"benches.frameworks.{given.framework}_contenders")
    contenders = {name: make(rank, world) for name, make in module.MAKERS.items() if name in given.contenders}
    random = np.random.default_rng(rank)
    samples = module.balanced(random, world) if given.samples == BALANCED else int(given.samples)
    result = Result(steps_s=defaultdict(list), processor_s=defaultdict(list), samples=samples)
    for number in range(given.turns):
        for name in sorted(contenders, reverse=bool(number % 2)):
            taken = turn(contenders[name], random, samples)
            result["steps_s"][name].append(taken.steps_s)
            result["processor_s"][name].append(taken.processor_s)
    if rank == 0:
        given.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()

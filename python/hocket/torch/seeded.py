"""Run of a training script with random numbers from a seed: `python -m hocket.torch.seeded SEED [-m] SCRIPT …`.

Each seed that a script gives to `torch.manual_seed` is replaced with another one, so that scripts differ from run to run.
"""

from __future__ import annotations

import random
import runpy
import sys
from pathlib import Path

import numpy as np
import torch

APART = 1_000_003
"""Distance between the seeds of one script in two runs; within a run, scripts count theirs by ranks and epochs."""


def main() -> None:
    """Run the script, which sees its own arguments."""
    seed, argv = int(sys.argv[1]), sys.argv[2:]
    as_module = argv[0] == "-m"
    sys.argv = argv[1:] if as_module else argv
    random.seed(seed)
    np.random.seed(seed)  # scripts that use the old interface are meant
    torch.manual_seed(seed)
    plain = torch.manual_seed

    def moved(own: int) -> torch.Generator:
        return plain((int(own) + seed * APART) % 2**63)

    torch.manual_seed = moved  # type: ignore[assignment]  # of wider numbers
    if as_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

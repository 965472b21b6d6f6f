"""One rank of the row `fidelity` of `python -m benches delays`: iterations of one plan, with layers whose computation is a wait.

`python -m benches.delays.fidelity_rank FOLDER --out FILE`. FOLDER has the model's profile and the plan.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

import torch
from benches.delays.contest import Planned
from benches.delays.rank import Trained
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile

WARM_UP, ITERATIONS = 6, 12


def main() -> None:
    """Rank 0 writes the mean seconds of an iteration."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plan = files.read(folder / "plan.json", Plan)
    trained = Trained(Planned(plan=plan), files.read(folder / "profile.json", Profile))
    mean_s = trained.iterations_s(WARM_UP, ITERATIONS)
    if os.environ["HOCKET_RANK"] == "0":
        out.write_text(json.dumps(mean_s))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

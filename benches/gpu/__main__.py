"""`python -m benches.gpu`: one machine with an accelerator that 2 and 4 ranks share; JSON."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from pathlib import Path

import torch

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch


def main() -> None:
    """Measure, and print."""
    found: dict[str, object] = {"torch": torch.__version__, "cores": os.cpu_count()}
    if not torch.accelerator.is_available():
        sys.exit("there is no accelerator\nhint: run it on a machine that has one")
    found["device"] = torch.get_device_module(torch.accelerator.current_accelerator()).get_device_name()
    for world in (2, 4):
        with socket.socket() as free, tempfile.TemporaryDirectory() as directory:
            free.bind(("127.0.0.1", 0))
            file = Path(directory) / "found.json"
            spec = ProcessSpec(
                argv=[sys.executable, "-m", "benches.gpu.rank", str(file)],
                environment={"GLOO_PORT": str(free.getsockname()[1]), "OMP_NUM_THREADS": "1"},
            )
            free.close()
            outcome = launch(
                [spec] * world, settings=Settings(timeout_s=60, start_timeout_s=120, sentinel=False)
            )
            if outcome.code:
                sys.exit(outcome.code)
            found[f"{world} ranks"] = json.loads(file.read_text())
    print(json.dumps(found, indent=1))  # noqa: T201  # what it is run for


if __name__ == "__main__":
    main()

"""Cost of writing a trace per step: the same step with a traced engine and an untraced one, in turns.

A step computes for some milliseconds, then all-reduces three buckets of 4 MiB, as the default plan makes of a model of 3 M
parameters.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hocket import extras
from hocket.errors import Error
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch


def measure(*, world: int, rounds: int) -> dict[str, Any]:
    """Return median step times with the trace `off` and `on`, seconds, and the `ratio` on / off."""
    extras.need("torch", "this benchmark")
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as directory:
        argv = [
            sys.executable,
            "-m",
            "hocket.tools.bench.trace_rank",
            "--rounds",
            str(rounds),
            "--directory",
            directory,
        ]
        outcome = launch([ProcessSpec(argv=argv)] * world)
        if outcome.failures:
            raise Error(f"the benchmark failed: {outcome.failures[0]}")
        result: dict[str, Any] = json.loads((Path(directory) / "result.json").read_text())
    return result

"""`switching`: cost of an epoch between two prepared plans, with 3.3 and 25 million parameters; memory must not grow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from benches.emulated import hosts, in_emulation
from benches.row import Row
from benches.strategies.cases import GIGABIT

CLUSTER = hosts([GIGABIT] * 4)
MODELS = {"3.3 M parameters": (512, 13, 200), "25 M parameters": (2048, 6, 40)}
"""Width, layers, and number of switches. 200 switches of the larger model would take twenty minutes."""
NAME = "switching"


def measured() -> Iterator[Row]:
    """Compare rings with buckets of 4 MiB and of 1 MiB, in turns of four steps."""
    for model, numbers in MODELS.items():
        argv = [sys.executable, "-m", "benches.strategies.switching_rank", *map(str, numbers)]
        found: dict[str, Any] = in_emulation(CLUSTER, [host.name for host in CLUSTER.hosts], argv)
        yield Row(name=NAME, what=f"{model}: steps lost by a switch", value=found["lost"], target=1.0)
        yield Row(
            name=NAME,
            what=f"{model}: growth of a rank's memory from the 21st switch to the {numbers[2]}th",
            value=found["grown_bytes"] / 1e6,
            target=8.0,
            unit="MB",
        )
        yield Row(name=NAME, what=f"{model}: step", value=1e3 * max(found["steps_s"]), unit="ms")

"""Cost of schedules that change nothing: step and processor time of a trivial one, a hook, and the memory of late gradients."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.row import Row
from hocket.errors import PeerError
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

WORLD = 2
STEP, HOOK_US = 1.005, 0.6
"""Ratio to a synchronous step, and to its processor time; microseconds."""


def overhead() -> Iterator[Row]:
    """Run two ranks on this host. Raises PeerError when one of them fails."""
    with tempfile.TemporaryDirectory(prefix="hocket-overhead-") as directory:
        out = Path(directory) / "result.json"
        argv = [sys.executable, "-m", "benches.delays.overhead_rank", "--out", str(out)]
        environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(each for each in sys.path if each)}
        settings = Settings(sentinel=False)
        outcome = launch([ProcessSpec(argv=argv, environment=environment)] * WORLD, settings=settings)
        if outcome.code != 0 or not out.exists():
            raise PeerError(f"a rank of the row ended with {outcome.code}, and its output says why")
        found = json.loads(out.read_text())
    name = "overhead"
    trivial = "trivial schedule, which is also that of a driven job that may merge and delay before it plans"
    for what, key in (
        ("median step", "step"),
        ("processor time of the training thread in a step", "thread"),
        ("processor time of all threads in a step", "process"),
    ):
        yield Row(name=name, what=f"{trivial}: {what}", value=found[key], target=STEP, unit="synchronous")
    yield Row(
        name=name, what="the same bits", value=float(found["same"]), target=1.0, least=True, unit="of 1"
    )
    yield Row(name=name, what="hook", value=found["hook_us"], target=HOOK_US, unit="µs")
    extra = found["extra_bytes"] / found["gradient_bytes"]
    for least in (False, True):
        what = "memory of late gradients, at " + ("least" if least else "most")
        yield Row(name=name, what=what, value=extra, target=1.0, least=least, unit="gradients")

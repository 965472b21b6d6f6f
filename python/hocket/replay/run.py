"""Start the ranks of a replay on an emulated cluster, and compare what they took with what was recorded."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.trace import Trace
from hocket.demo.bed import open_bed, ranks, run_ranks
from hocket.errors import TestbedError, UsageError
from hocket.planners.order import placement
from hocket.replay.schedule import Schedule, schedule
from hocket.settings import Settings

WARM_UP_STEPS = 2
"""Of a run, in which programs are loaded and links are filled: replayed, but not compared where there are more."""


class Replayed(Struct, frozen=True, kw_only=True):
    """Seconds of the slowest rank, step by step; the replay's go on with its repetitions."""

    recorded_s: tuple[float, ...]
    replayed_s: tuple[float, ...]
    recorded_median_s: float
    replayed_median_s: float
    ratio: float


def replay(trace: Trace, cluster: Cluster | None = None, *, repeat: int = 1) -> Replayed:
    """The traffic of `trace`, `repeat` times in a row, on its own cluster or on another with enough slots.

    Raises ArtefactError when the trace cannot be replayed, UsageError when there is no cluster for it, TestbedError where there
    are no network namespaces, PeerError when a rank fails.

    Example: `replay(read(Path("out"))).ratio`
    """
    recorded = schedule(trace)
    cluster = cluster or trace.run.cluster
    if cluster is None:
        raise UsageError(
            f"{trace.directory} does not say on which cluster it ran\nhint: give one with --cluster"
        )
    places = placement(cluster, len(recorded.hosts))
    slots = [cluster.hosts[at].name for at in places]
    return compared(recorded.slowest_s(), _run(recorded, cluster, slots, repeat), repeat=repeat)


def compared(recorded_s: Sequence[float], replayed_s: Sequence[float], *, repeat: int) -> Replayed:
    """Medians without the steps in which a run warms up, if there are others.

    >>> compared([9.0, 9.0, 2.0, 4.0], [9.0, 9.0, 3.0, 3.0], repeat=1).ratio
    1.0
    """
    steps = len(recorded_s)
    warm_up = WARM_UP_STEPS if steps > WARM_UP_STEPS else 0
    recorded_median_s = statistics.median(recorded_s[warm_up:])
    again = [replayed_s[at] for at in range(steps * repeat) if at % steps >= warm_up]
    replayed_median_s = statistics.median(again)
    return Replayed(
        recorded_s=tuple(recorded_s),
        replayed_s=tuple(replayed_s),
        recorded_median_s=recorded_median_s,
        replayed_median_s=replayed_median_s,
        ratio=replayed_median_s / recorded_median_s,
    )


def _run(recorded: Schedule, cluster: Cluster, slots: Sequence[str], repeat: int) -> list[float]:
    longest_s = max(recorded.slowest_s())
    settings = Settings(timeout_s=max(60.0, 20 * longest_s))
    with tempfile.TemporaryDirectory(prefix="hocket-replay-") as folder, open_bed(cluster) as bed:
        if not bed.carries_any_program:
            raise TestbedError(f"a replay needs network namespaces: {bed.remarks[0]}")
        directory = Path(folder)
        (directory / "schedule.json").write_bytes(msgspec.json.encode(recorded))
        argv = [sys.executable, "-m", "hocket.replay.rank", str(directory), str(repeat)]
        run_ranks(bed, slots[0], ranks(bed, slots, argv), settings)
        steps: list[float] = json.loads((directory / "steps.json").read_text())
    return steps

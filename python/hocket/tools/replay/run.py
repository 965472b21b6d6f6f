"""Launcher of a replay on an emulated cluster, and comparison of its times with the recorded ones."""

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
from hocket.artefacts.trace import Recording, Trace
from hocket.errors import TestbedError, UsageError
from hocket.planning.order import placement
from hocket.settings import Settings
from hocket.tools.demo.emulation import open_emulation, ranks, run_ranks
from hocket.tools.formats import catalogue
from hocket.tools.formats.catalogue import Messages
from hocket.tools.replay.aggregated import aggregated
from hocket.tools.replay.node import Sent
from hocket.tools.replay.of_dlc import of_dlc_files, of_servers
from hocket.tools.replay.of_records import of_records
from hocket.tools.replay.pieces import check_pieces
from hocket.tools.replay.schedule import schedule
from hocket.tools.replay.traffic import Traffic
from hocket.tools.simulation.aggregation import Switch
from hocket.tools.simulation.networks import from_cluster

WARM_UP_STEPS = 2
"""Steps in which programs are loaded and links fill: replayed, but not compared if there are more."""


class Replayed(Struct, frozen=True, kw_only=True):
    """Seconds of the slowest rank, step by step; the replay's continue through its repetitions."""

    recorded_s: tuple[float, ...]
    replayed_s: tuple[float, ...]
    recorded_median_s: float
    replayed_median_s: float
    ratio: float


def replay(trace: Trace, cluster: Cluster | None = None, *, repeat: int = 1) -> Replayed:
    """Launch the programs of a plan's run as in `trace`, `repeat` times in a row, on its cluster or another with enough slots.

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
    content = msgspec.json.encode(recorded)
    longest_s = max(recorded.slowest_s())
    steps = _run(
        "hocket.tools.replay.rank",
        "schedule.json",
        content,
        cluster=cluster,
        slots=slots,
        repeat=repeat,
        longest_s=longest_s,
    )
    return compared(recorded.slowest_s(), steps, repeat=repeat)


def replay_traffic(
    traffic: Traffic, cluster: Cluster, *, repeat: int = 1, aggregate: Switch | None = None
) -> Replayed:
    """Send messages with their dependencies and gaps, a process per node, `repeat` times, on a cluster with enough slots.

    `aggregate`: the switch of each rack sums workers' pushes with it; what is lost is for the cluster to say.

    Raises UsageError when it has too few, or switches cannot sum, TestbedError where there are no network namespaces, PeerError
    when a node fails.
    """
    places = placement(cluster, len(traffic.nodes))
    sent = Sent(traffic=traffic)
    if aggregate is not None:
        check_pieces(aggregate)
        summed = aggregated(traffic, from_cluster(cluster, len(traffic.nodes)), aggregate, seed=0)
        sent = Sent(traffic=summed.traffic, pieces=summed.pieces, ports=tuple(places))
    steps = _run(
        "hocket.tools.replay.node",
        "sent.json",
        msgspec.json.encode(sent),
        cluster=cluster,
        slots=[cluster.hosts[at].name for at in places],
        repeat=repeat,
        longest_s=max(traffic.recorded_s),
        sums=None if aggregate is None else aggregate.slots,
    )
    return compared(traffic.recorded_s, steps, repeat=repeat)


def recording_of(paths: Sequence[Path]) -> Trace | Recording | None:
    """Return Hocket's own records; None if the paths are files of a DLC trace.

    Raises ArtefactError if no trace can be read from them.
    """
    if len(paths) == 1 and catalogue.recognise(paths[0]) != "dlc":
        content = catalogue.open_trace(paths[0]).content
        if not isinstance(content, Messages):
            return content
    return None


def traffic_of(paths: Sequence[Path]) -> Traffic:
    """Return the traffic in a trace directory or in the files of a DLC trace.

    Raises ArtefactError as `of_records` and `of_dlc_files`.
    """
    recording = recording_of(paths)
    return of_dlc_files(paths) if recording is None else traffic_in(recording)


def traffic_in(recording: Trace | Recording) -> Traffic:
    """Return the traffic in Hocket's own records. Raises ArtefactError as `of_records` and `of_servers`."""
    roles = recording.run.roles
    return of_records(recording) if roles is None else of_servers(recording, roles)


def compared(recorded_s: Sequence[float], replayed_s: Sequence[float], *, repeat: int) -> Replayed:
    """Return medians without the steps in which a run warms up, if there are others.

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


def _run(
    module: str,
    name: str,
    content: bytes,
    *,
    cluster: Cluster,
    slots: Sequence[str],
    repeat: int,
    longest_s: float,
    sums: int | None = None,
) -> list[float]:
    settings = Settings(timeout_s=max(60.0, 20 * longest_s))
    with (
        tempfile.TemporaryDirectory(prefix="hocket-replay-") as folder,
        open_emulation(cluster, sums=sums) as emulation,
    ):
        if not emulation.carries_any_program:
            raise TestbedError(f"a replay needs network namespaces: {emulation.remarks[0]}")
        directory = Path(folder)
        (directory / name).write_bytes(content)
        argv = [sys.executable, "-m", module, str(directory), str(repeat)]
        run_ranks(emulation, slots[0], ranks(emulation, slots, argv), settings)
        steps: list[float] = json.loads((directory / "steps.json").read_text())
    return steps

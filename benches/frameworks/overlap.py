"""Row `overlap`: fraction of a step's bytes that leave before its last gradient is ready, from the trace of two hosts."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benches.emulated import TIMEOUT_S, hosts
from benches.frameworks.measured import GIGABIT, balanced_samples
from benches.frameworks.model import SAMPLES
from benches.row import Row
from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.trace import Kind, Trace
from hocket.settings import Settings
from hocket.tools.demo.emulation import open_emulation, ranks, run_ranks

WORLD = 2
CLUSTER = hosts([GIGABIT] * WORLD)
FIRST = 4
"""First turn that counts: earlier turns compile the function, and connect."""

TURNS = 10


def rows() -> list[Row]:
    """Row of the rank with the least overlap, a fraction for each turn, if backward takes as long as communication."""
    samples = balanced_samples(CLUSTER)
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        found = traced(CLUSTER, "layers", TURNS, Path(folder), samples=samples)
        # Records are read from the folder lazily.
        shares = [list(shares_before_the_last_gradient(found, rank)) for rank in range(WORLD)]
    return [
        Row.over(
            [min(each) for each in zip(*shares, strict=True)],
            name="overlap",
            what="share of a turn's bytes that leaves before its last gradient is made",
            target=0.6,
            least=True,
        )
    ]


def traced(cluster: Cluster, contender: str, turns: int, directory: Path, *, samples: int = SAMPLES) -> Trace:
    """Trace of a job that trains by one of `benches.frameworks.jax_contenders`, with a rank on each host."""
    slots = [host.name for host in cluster.hosts]
    argv = [
        sys.executable,
        "-m",
        "benches.frameworks.rank",
        "jax",
        contender,
        "--out",
        str(directory / "steps.json"),
    ]
    argv += ["--samples", str(samples), "--turns", str(turns)]
    settings = Settings(trace=str(directory), timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S)
    with open_emulation(cluster) as emulation:
        run_ranks(emulation, slots[0], ranks(emulation, slots, argv), settings)
    return trace.read(directory)


def shares_before_the_last_gradient(found: Trace, rank: int) -> Iterator[float]:
    """Fractions of the bytes that a rank sent, by turn from `FIRST` on."""
    records = found.records(rank)
    buckets = [each.program for each in found.run.programs if each.bucket is not None]
    sends = records[(records["kind"] == Kind.SEND) & np.isin(records["program"], buckets)]
    backwards, waits = (
        {each["instance"]: each for each in records[records["kind"] == kind]}
        for kind in (Kind.BACKWARD, Kind.WAIT)
    )
    for turn, wait in sorted(waits.items()):
        if turn < FIRST:
            continue
        own = sends[(sends["start_ns"] >= backwards[turn]["start_ns"]) & (sends["end_ns"] <= wait["end_ns"])]
        took_ns = np.maximum(own["end_ns"] - own["start_ns"], 1)
        before = np.clip((float(wait["start_ns"]) - own["start_ns"]) / took_ns, 0.0, 1.0)
        yield float((before * own["bytes"]).sum() / own["bytes"].sum())

"""Emulated clusters for benchmarks: hosts in racks, and a rank of a benchmark on each slot."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benches.uplinks import Uplinks
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.profile import Profile
from hocket.errors import PeerError
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.tools.demo.emulation import Emulation, open_emulation, run_ranks

TIMEOUT_S = 120.0


def in_emulation(
    cluster: Cluster,
    slots: Sequence[str],
    argv: Sequence[str],
    *,
    interface: str | None = None,
    trace: Path | None = None,
    told: bool = True,
    uplinks: Uplinks | None = None,
) -> Any:
    """The result that rank 0 of `argv --out FILE` wrote; a rank on each slot. `interface`: as HOCKET_INTERFACE; None: the default.
    `trace`: the directory that ranks write a trace to. `told`: ranks have the cluster's file, and do not look at their network.

    Raises PeerError with the last words of the rank that failed.
    """
    with _opened(cluster) as (emulation, directory):
        out = directory / "result.json"
        file = directory / "cluster.toml"
        files.write(file, cluster)
        settings = Settings(
            cluster=str(file) if told else None,
            timeout_s=TIMEOUT_S,
            start_timeout_s=TIMEOUT_S,
            interface=interface,
            trace=None if trace is None else str(trace),
        )
        with nullcontext() if uplinks is None else uplinks.watched(emulation):
            _launch(emulation, slots, [*argv, "--out", str(out)], settings)
        return json.loads(out.read_text())


def profiled(cluster: Cluster, argv: Sequence[str]) -> Profile:
    """What `hocket profile` finds of a script, with a rank on each host. PeerError as `in_emulation`."""
    with _opened(cluster) as (emulation, directory):
        out = directory / "profile.json"
        settings = Settings(profile_out=str(out), timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S)
        _launch(emulation, [host.name for host in cluster.hosts], list(argv), settings)
        return files.read(out, Profile)


@contextmanager
def _opened(cluster: Cluster) -> Iterator[tuple[Emulation, Path]]:
    with (
        tempfile.TemporaryDirectory(prefix="hocket-bench-") as directory,
        open_emulation(cluster) as emulation,
    ):
        if not emulation.carries_any_program:
            raise PeerError(f"these rows need network namespaces: {emulation.remarks[0]}")
        yield emulation, Path(directory)


def _launch(emulation: Emulation, slots: Sequence[str], argv: list[str], settings: Settings) -> None:
    environment = {**emulation.environment, "OMP_NUM_THREADS": "1"}
    processes = [
        ProcessSpec(argv=argv, host=host, prefix=emulation.command(host), environment=environment)
        for host in slots
    ]
    run_ranks(emulation, slots[0], processes, settings)


def hosts(
    rates_bit_per_s: Sequence[float],
    racks: int = 1,
    trunk_bit_per_s: float | None = None,
    *,
    alternating: bool = False,
    latency_s: float | None = None,
) -> Cluster:
    """Hosts of one slot, in racks by blocks, or alternating between them. `latency_s`: of each host's link."""
    count = len(rates_bit_per_s)
    return Cluster(
        hosts=tuple(
            Host(
                name=f"h{at}",
                rack=f"rack{at % racks if alternating else at * racks // count}",
                bandwidth_bit_per_s=rate,
                latency_s=latency_s,
            )
            for at, rate in enumerate(rates_bit_per_s)
        ),
        racks=tuple(Rack(name=f"rack{at}", uplink_bit_per_s=trunk_bit_per_s) for at in range(racks)),
    )

"""Train a model on an emulated cluster of workers and parameter servers, a host each, and say what its trace says."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benches.models.catalogue import MODELS, Figures
from hocket import extras
from hocket.artefacts import trace as artefact
from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import PeerError
from hocket.settings import Settings
from hocket.tools.analysis.analyse import Analysis, analyse
from hocket.tools.analysis.summary import Summary
from hocket.tools.demo.emulation import open_emulation, ranks, run_ranks
from hocket.tools.formats import dlc, dlc_server

WORKERS = 2
BANDWIDTH_BIT_PER_S = 1e9
DEADLINE_S = 600.0
START_S_MAX = 180.0
"""The first pull of VGG-19 by two workers from one server takes 10 s alone."""


def measure(name: str, *, servers: int, iterations: int | None = None, keep: Path | None = None) -> Figures:
    """Train `name` with two workers; `keep`: directory for the trace. PeerError when a rank failed.

    >>> measure("lenet5", servers=1, iterations=20).tensors  # doctest: +SKIP
    8
    """
    hosts = [f"worker{at}" for at in range(WORKERS)] + [f"server{at}" for at in range(servers)]
    cluster = Cluster(
        hosts=tuple(Host(name=host, slots=1, bandwidth_bit_per_s=BANDWIDTH_BIT_PER_S) for host in hosts)
    )
    with tempfile.TemporaryDirectory(prefix="hocket-models-") as scratch:
        directory = keep or Path(scratch) / "trace"
        train(name, cluster, directory, servers=servers, iterations=iterations)
        return figures(directory)


def train(
    name: str, cluster: Cluster, directory: Path, *, servers: int, iterations: int | None = None
) -> None:
    """Train `name` on a cluster of workers and then servers, a host each, and leave the trace. PeerError when a rank failed."""
    hosts = [each.name for each in cluster.hosts]
    workers = len(hosts) - servers
    count = iterations or MODELS[name].iterations
    extras.need("torch", "this benchmark")
    script = [sys.executable, "-m", "benches.models.rank", "--model", name, "--iterations", str(count)]
    script += ["--deadline-s", str(DEADLINE_S)]
    serve = [sys.executable, "-m", "hocket.torch.server_rank"]
    settings = Settings(
        servers=servers,
        # As in the paper: a key is a tensor.
        server_bucket_bytes=0,
        trace=str(directory),
        timeout_s=DEADLINE_S,
        start_timeout_s=START_S_MAX,
    )
    with open_emulation(cluster) as emulation:
        processes = [*ranks(emulation, hosts[:workers], script), *ranks(emulation, hosts[workers:], serve)]
        run_ranks(emulation, hosts[0], processes, settings)


def figures(directory: Path) -> Figures:
    """The numbers in the trace of a run. Raises ArtefactError if it cannot be read, PeerError if it has no whole iteration."""
    trace = artefact.read(directory)
    if trace.run.roles is None:
        raise PeerError(f"{directory} is of no run with parameter servers")
    found = analyse([directory])
    pushed: dict[int, int] = {}
    lengths: list[int] = []
    _, _, batches = next(dlc_server.to_dlc(trace, trace.run.roles))
    for batch in batches:
        chosen = (dlc.codes(batch) == 0) & (dlc.iterations(batch) == 0)
        keys, sizes = (batch.column(name).to_numpy()[chosen].tolist() for name in ("key", "length"))
        lengths += sizes
        for key, size in zip(keys, sizes, strict=True):
            pushed[key] = pushed.get(key, 0) + size
    if not pushed or not found.phases:
        raise PeerError(f"{directory} has no whole iteration")
    return Figures(
        tensors=len(pushed),
        volume_mb=sum(lengths) / 1e6,
        shortest_push_bytes=min(lengths),
        longest_push_bytes=max(lengths),
        iterations=min(phase.iterations for phase in found.phases),
        computation_ms=_mean_us(phase.computation for phase in found.phases) / 1e3,
        communication_ms=_mean_us(phase.communication for phase in found.phases) / 1e3,
        overlap_percent=_overlap_percent(found),
        update_us=_mean_us(server.update for server in found.servers),
        search_us=_mean_us(server.search for server in found.servers),
        synchronisation_us=_mean_us(server.synchronisation for server in found.servers),
    )


def _mean_us(summaries: Iterable[Summary | None]) -> float:
    """Mean over all workers or servers."""
    return statistics.fmean([each.mean_us for each in summaries if each is not None] or [0.0])


def _overlap_percent(found: Analysis) -> float:
    return 100 * statistics.fmean(phase.overlap_ratio or 0.0 for phase in found.phases)

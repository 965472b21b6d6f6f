"""Jobs under other systems with fault tolerance: TorchElastic with DDP on Gloo, torchft with its own on Gloo or Hocket."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.elastic.jobs import Job, environment, made
from hocket.errors import MissingExtraError
from hocket.settings import Settings
from hocket.tools.demo.emulation import NamespaceEmulation
from hocket.tools.testbed import Testbed

MEMORY = "/dev/shm"  # noqa: S108  # a file system in memory, for checkpoints
TORCHRUN_PORT, LIGHTHOUSE_PORT = 29_400, 29_510
SECRET = "ab" * 32
LIGHTHOUSE_STARTS_S = 0.5
TUNED_BEAT_MS, TUNED_SILENCE_MS, TUNED_TICK_MS, TUNED_TIMEOUT_MS = 20, 200, 10, 500
"""Tuned settings of torchft. The silence is ten beats: a process may pause for that long, as four share two cores. The time-out of
a collective is two steps: a rank that waits for a survivor that waits for the dead rank notices nothing else."""
BEAT_MS, TIMEOUT_MS = 100, 60_000
"""Defaults of torchft."""


@contextmanager
def torchelastic_job(bed: Testbed, *, tuned: bool) -> Iterator[Job]:
    """Start DDP on Gloo under torchrun, with an agent on each host.

    `tuned`: with the fastest settings. All hosts stay, so torchrun need not wait for another one.
    """
    hosts = [host.name for host in bed.cluster.hosts]
    least = len(hosts) - (not tuned)
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={least}:{len(hosts)}"]
    torchrun += ["--nproc-per-node=1", "--max-restarts=1000", "--rdzv-backend=c10d", "--rdzv-id=hocket"]
    torchrun += [f"--rdzv-endpoint={bed.address(hosts[0])}:{TORCHRUN_PORT}"]
    torchrun += ["--monitor-interval=0.1"] if tuned else []
    tuning = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3," if tuned else ""
    # With the agents' store, workers find addresses of the last round's workers (pytorch/pytorch#135712).
    own_environment = {**_environment(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with made(bed, "benches.elastic.torchelastic_rank", parent=MEMORY) as job:
        for host in hosts:
            # torchrun cannot tell the serving host by the address of a namespace.
            serves = f"is_host={int(host == hosts[0])}"
            own = [f"--local-addr={bed.address(host)}", f"--rdzv-conf={tuning}{serves}"]
            job.start(host, [*torchrun, *own, *job.argv[1:]], own_environment)
        job.settled(len(hosts))
        yield job


@contextmanager
def torchft_job(bed: Testbed, *, tuned: bool, backend: str = "gloo") -> Iterator[Job]:
    """Start a replica on each host, and the lighthouse, which tracks live replicas, on the first host.

    `tuned`: silence is noticed as soon as it can be distinguished from a pause on this machine. `backend`: that of the replicas'
    process group.
    """
    if importlib.util.find_spec("torchft") is None:
        raise MissingExtraError(
            "the row torchft needs torchft, which `make bench-elastic` installs", name="torchft"
        )
    hosts = [host.name for host in bed.cluster.hosts]
    lighthouse = [str(Path(sys.executable).with_name("torchft_lighthouse"))]
    lighthouse += ["--min_replicas=2", f"--bind=0.0.0.0:{LIGHTHOUSE_PORT}"]
    if tuned:
        lighthouse += [f"--heartbeat_timeout_ms={TUNED_SILENCE_MS}", f"--quorum_tick_ms={TUNED_TICK_MS}"]
    waits_ms = (TUNED_BEAT_MS, TUNED_TIMEOUT_MS) if tuned else (BEAT_MS, TIMEOUT_MS)
    known_at = f"http://{bed.address(hosts[0])}:{LIGHTHOUSE_PORT}"
    arguments = [known_at, str(len(hosts)), *map(str, waits_ms), backend]
    with made(bed, "benches.elastic.torchft_rank", *arguments) as job:
        job.start(hosts[0], lighthouse, _environment())
        time.sleep(LIGHTHOUSE_STARTS_S)
        for host in hosts:
            start_replica(job, host)
        job.settled(len(hosts))
        yield job


def start_replica(job: Job, host: str) -> None:
    """Start a replica of torchft's job on a host."""
    address = job.bed.address(host)
    # A replica sends its machine's name, which all of these hosts share. An address is a name that all can resolve.
    named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', address]
    job.start(host, [*named, *job.argv, address], _environment())


def _environment() -> dict[str, str]:
    own = {**NamespaceEmulation.environment, "OMP_NUM_THREADS": "1", "HOCKET_SECRET": SECRET}
    return {**environment(Settings()), **own}

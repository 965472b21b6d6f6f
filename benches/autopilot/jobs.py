"""Jobs of `python -m benches autopilot`: one training of a contender on an emulated cluster, under `hocket run` or torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from benches.emulated import TIMEOUT_S
from hocket.artefacts import files, trace
from hocket.artefacts.change import Change
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Profile
from hocket.errors import PeerError
from hocket.job.store import address as addresses
from hocket.planning import search as planner
from hocket.settings import Settings
from hocket.start.variables import OF_A_RANK
from hocket.tools.demo.catalogue import WARM_UP_STEPS
from hocket.tools.demo.emulation import NamespaceEmulation, ranks, run_ranks
from hocket.tools.probe.hosts import AGENT, probe_hosts
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.simulation import shortlist
from hocket.tools.testbed import Testbed

LAST = 20
"""Number of last steps whose median counts."""
POLL_S = 0.05
JOB_S = 280.0
TORCHRUN_PORT = 29_400
LAST_WORDS_MAX = 2000
PROFILE_STEPS = 20
"""Steps of a profiled script, which the profiler ends earlier."""


class Trained(Struct, frozen=True, kw_only=True):
    """Result of a training: each step's seconds, and the job's own changes."""

    steps_s: tuple[float, ...]
    changes: tuple[Change, ...] = ()

    @property
    def last_s(self) -> float:
        """Median of the last steps, without warm-up steps."""
        return median(self.steps_s[WARM_UP_STEPS:][-LAST:])


Weather = Sequence[tuple[int, float]]
"""Changes of all trunks' rate: number of steps before, and bit/s."""


def train(cluster: Cluster, contender: str, model: str, steps: int, **how: Any) -> Trained:
    """Train one job on its own testbed; `how`: see `train_on`. PeerError if a rank failed; TestbedError without namespaces."""
    with Testbed(cluster) as bed:
        return train_on(bed, contender, model, steps, **how)


def train_on(
    bed: Testbed,
    contender: str,
    model: str,
    steps: int,
    *,
    slots: Sequence[str] | None = None,
    weather: Weather = (),
    autopilot: bool = True,
    promise: str | None = None,
    search: str | None = None,
    compared: Path | None = None,
    cache: str | None = None,
    plan: Path | None = None,
    traced: bool = False,
    torchrun: bool = False,
) -> Trained:
    """Train one job of `contender`.

    Args:
        slots: the host of each rank; default: each host of the testbed once.
        search: duration of trials of plans.
        compared: file for rank 0's parameters after `benches.autopilot.rank.COMPARED` steps.
        plan: file of a plan made before.
        traced: record the job's changes, at the cost of a trace.
        torchrun: torchrun starts each host's rank, and all hosts have the machine's name.
    """
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        out = Path(folder) / "steps.json"
        argv = [*_script(contender, model, steps), str(out), *([] if compared is None else [str(compared)])]
        settings = Settings(
            timeout_s=TIMEOUT_S,
            start_timeout_s=TIMEOUT_S,
            autopilot=autopilot,
            promise=promise,
            search=search,
            plan=None if plan is None else str(plan),
            trace=folder if traced else None,
            cache=cache or folder,
        )
        places = slots or [host.name for host in bed.cluster.hosts]
        with changing(bed, out.with_suffix(".steps"), weather):
            if torchrun:
                _under_torchrun(bed, argv, settings, Path(folder))
            else:
                emulation = NamespaceEmulation(bed)
                run_ranks(emulation, places[0], ranks(emulation, places, argv), settings)
        changes = trace.read(Path(folder)).changes() if traced else ()
        return Trained(steps_s=tuple(json.loads(out.read_text())), changes=changes)


def by_verbs(bed: Testbed, model: str, folder: Path) -> Path:
    """File of the plan that probe, profile and plan make by default, which is exact."""
    cluster, profile = measured(bed, model, folder)
    plan_file = folder / "plan.json"
    considered = planner.considered(cluster, profile, len(cluster.hosts))
    files.write(plan_file, shortlist.chosen(considered, cluster, profile))
    return plan_file


def measured(bed: Testbed, model: str, folder: Path) -> tuple[Cluster, Profile]:
    emulation, hosts = NamespaceEmulation(bed), [host.name for host in bed.cluster.hosts]
    store = addresses.join(emulation.address(hosts[0]), emulation.port())
    options = ProbeOptions(rates="tcp")
    cluster = probe_hosts(ranks(emulation, hosts, AGENT), store=store, serve=False, options=options)
    profile_file = folder / "profile.json"
    argv = [*_script("hocket", model, PROFILE_STEPS), str(folder / "steps.json")]
    settings = Settings(profile_out=str(profile_file), timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S)
    run_ranks(emulation, hosts[0], ranks(emulation, hosts, argv), settings)
    return cluster, files.read(profile_file, Profile)


def _script(contender: str, model: str, steps: int) -> list[str]:
    return [sys.executable, "-m", "benches.autopilot.rank", contender, model, str(steps)]


def _under_torchrun(bed: Testbed, argv: Sequence[str], settings: Settings, folder: Path) -> None:
    hosts = [host.name for host in bed.cluster.hosts]
    own = {name: text for name, text in os.environ.items() if name not in (*OF_A_RANK, "HOCKET_HOST")}
    own |= {**settings.to_environment(), **NamespaceEmulation.environment, "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(hosts))]
    torchrun += ["--nproc-per-node", "1", "--master-addr", bed.address(hosts[0])]
    torchrun += ["--master-port", str(TORCHRUN_PORT)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for at, host in enumerate(hosts):
            command = bed.command(host, [*torchrun, "--node-rank", str(at), *argv[1:]])
            with (folder / f"{host}.log").open("wb") as log:
                running.append(
                    subprocess.Popen(
                        command, env=own, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                    )
                )
        deadline_s = time.monotonic() + JOB_S
        for host, each in zip(hosts, running, strict=True):
            if each.wait(max(0.0, deadline_s - time.monotonic())) != 0:
                said = (folder / f"{host}.log").read_text(errors="replace")[-LAST_WORDS_MAX:]
                raise PeerError(f"torchrun on {host} failed: exit code {each.returncode}\n{said}")
    finally:
        for each in running:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


@contextmanager
def changing(bed: Testbed, counter: Path, weather: Weather) -> Iterator[None]:
    """Set the trunks' rates after given numbers of steps."""
    ended = threading.Event()

    def watch() -> None:
        coming = list(weather)
        while coming and not ended.wait(POLL_S):
            text = counter.read_text() if counter.exists() else ""
            if text and int(text) >= coming[0][0]:
                _, rate = coming.pop(0)
                for rack in bed.cluster.racks:
                    bed.set_trunk(rack.name, rate)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

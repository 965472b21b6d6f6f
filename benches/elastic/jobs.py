"""Jobs of `python -m benches elastic` on emulated hosts: ranks that can be killed, told to leave and added, and their notes."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

from benches.elastic.launcher import Wanted
from benches.emulated import hosts
from hocket.artefacts.cluster import Cluster
from hocket.errors import PeerError
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.running import chosen
from hocket.start.variables import OF_A_RANK
from hocket.tools.demo.emulation import NamespaceEmulation
from hocket.tools.testbed import Testbed

TIMEOUT_S = 180.0
WORLD, GIGABIT = 4, 1e9
"""Hosts of most rows, and the rate of their links."""
POLL_S = 0.05
ENDS_S = 20.0
SETTLED = 8
"""Steps among the same ranks before the next event."""
LAST_WORDS_MAX = 3000


class Step(msgspec.Struct, frozen=True):
    """End of a rank's optimizer step, by the monotonic clock that all processes share; `rank` of `world`."""

    at_s: float
    step: int
    rank: int
    world: int


def _at_s(step: Step) -> float:
    return step.at_s


Steps = Mapping[int, Sequence[Step]]
"""Steps by process."""


class Job:
    """A running job. `began` has its launchers, which end with the job."""

    def __init__(self, bed: Testbed, directory: Path, script: str, *arguments: str) -> None:
        self.bed, self.directory = bed, directory
        self.argv = (sys.executable, "-m", script, str(directory), *arguments)
        self.began: list[subprocess.Popen[bytes]] = []

    def start(
        self, host: str, argv: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process on a host; the process ends with the job."""
        with (self.directory / f"{len(self.began)}.log").open("wb") as log:
            command = self.bed.command(host, argv)
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.began.append(process)
        return process

    def join(self, host: str) -> None:
        """Add a rank, like `hocket join`."""
        own = chosen(self.began[0].pid).for_newcomer(environment(Settings()))
        self.start(host, self.argv, {**own, "HOCKET_HOST": host})

    @property
    def journal(self) -> Path:
        """Journal of the launcher, if there is one."""
        return self.directory / "journal"

    @property
    def trace(self) -> Path:
        """Trace of the job, if there is one."""
        return self.directory / "trace"

    def replace_launcher(self, host: str) -> None:
        """Kill the launcher, and let another one on `host` continue from its journal."""
        self.began[0].kill()
        self.began[0].wait()
        hocket = [sys.executable, "-c", "from hocket.cli.main import main; main()"]
        self.start(host, [*hocket, "run", "--resume", str(self.journal)], environment(Settings()))
        self.began[0] = self.began.pop()

    def steps(self) -> Steps:
        found = {}
        for file in self.directory.glob("*.steps"):
            whole, _, _ = file.read_text().rpartition("\n")
            lines = [line.split() for line in whole.splitlines()]
            if lines:
                found[int(file.stem)] = [
                    Step(float(at), int(step), int(rank), int(world)) for at, step, rank, world in lines
                ]
        return found

    def settled(self, world: int, *, since_s: float = 0.0) -> dict[int, Sequence[Step]]:
        """Wait until `world` ranks have made some steps among themselves, and return steps from the last one before `since_s`.
        Processes without a later step are left out.

        PeerError if this takes too long.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            later = {
                process: own[max(0, bisect_right(own, since_s, key=_at_s) - 1) :]
                for process, own in self.steps().items()
                if own[-1].at_s > since_s
            }
            counts = [
                sum(each.world == world and each.at_s > since_s for each in own) for own in later.values()
            ]
            if sum(count >= SETTLED for count in counts) >= world:
                return later
            if time.monotonic() > deadline_s or self.began[0].poll() is not None:
                raise PeerError(f"{world} ranks did not train within {TIMEOUT_S:g} s\n{self.said()}")
            time.sleep(POLL_S)

    def errors_s(self, since_s: float) -> list[float]:
        """Times at which processes of torchft's job have first noted a failed collective since then, if any."""
        noted = ([*map(float, file.read_text().split())] for file in self.directory.glob("*.errors"))
        firsts = (min((each for each in own if each > since_s), default=None) for own in noted)
        return [first for first in firsts if first is not None]

    def host_of_lost(self, others: Collection[int]) -> str:
        """Host of torchft's job on which no process of `others` runs."""
        there = {(self.directory / f"{process}.ready").read_text() for process in others}
        return next(host.name for host in self.bed.cluster.hosts if self.bed.address(host.name) not in there)

    def stood_still_s(self) -> float:
        """Pause of rank 0 at the last change, in the launcher's words."""
        found = re.findall(
            r"training goes on from step \d+, (\d+) ms after", (self.directory / "0.log").read_text()
        )
        return int(found[-1]) * 1e-3

    def said(self) -> str:
        """Last words of all processes."""
        logs = sorted(self.directory.glob("*.log"))
        return "\n--\n".join(file.read_text(errors="replace")[-LAST_WORDS_MAX:] for file in logs)

    def close(self) -> None:
        for each in self.began:
            each.send_signal(signal.SIGINT)
        deadline_s = time.monotonic() + ENDS_S
        for each in self.began:
            with suppress(subprocess.TimeoutExpired):
                each.wait(max(0.0, deadline_s - time.monotonic()))
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def four_hosts() -> Cluster:
    """Make the network of most rows: links of 1 Gbit/s around a switch."""
    return hosts([GIGABIT] * WORLD)


@contextmanager
def hocket_job(
    bed: Testbed,
    slots: Sequence[str],
    model: str = "transformer",
    *,
    elastic: bool = True,
    members_max: int = 0,
    journal: bool = False,
    traces: bool = False,
    script: str = "benches.elastic.rank",
) -> Iterator[Job]:
    """Start a job of Hocket with a rank on each slot, which runs `script`. `elastic`: the job survives the loss of ranks, and
    accepts new ones. `journal`: also that of its launcher. `traces`: it writes a trace."""
    with made(bed, script, model) as job:
        emulation = NamespaceEmulation(bed)
        wanted = Wanted(
            store=addresses.join(emulation.address(slots[0]), emulation.port()),
            hosts=tuple((host, tuple(emulation.command(host))) for host in slots),
            argv=job.argv,
            environment={"OMP_NUM_THREADS": "1"},
            members_min=1 if elastic else None,
            members_max=max(members_max, len(slots)),
            journal=str(job.journal) if journal else None,
        )
        file = job.directory / "job.json"
        file.write_bytes(msgspec.json.encode(wanted))
        trace = str(job.trace) if traces else None
        settings = Settings(timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S, trace=trace)
        launcher = [sys.executable, "-m", "benches.elastic.launcher", str(file)]
        job.start(slots[0], launcher, environment(settings))
        job.settled(len(slots))
        yield job


@contextmanager
def made(bed: Testbed, script: str, *arguments: str, parent: str | None = None) -> Iterator[Job]:
    """Make a job whose processes run `script`, with a directory for notes and `arguments`. The job ends with its context."""
    with ExitStack() as stack:
        directory = tempfile.TemporaryDirectory(prefix="hocket-bench-", dir=parent)
        job = Job(bed, Path(stack.enter_context(directory)), script, *arguments)
        stack.callback(job.close)
        yield job


def environment(settings: Settings) -> dict[str, str]:
    """Environment of a process that is no rank, and imports from the same places as this one."""
    own = {name: text for name, text in os.environ.items() if name not in (*OF_A_RANK, "HOCKET_HOST")}
    return {
        **own,
        **settings.to_environment(),
        "PYTHONPATH": os.pathsep.join(each or "." for each in sys.path),
    }


def any_rank(job: Job, draw: random.Random, since_s: float, world: int = WORLD) -> tuple[int, set[int]]:
    """Wait for somewhere in a step of `world` ranks, all there since `since_s`; return the highest rank's process, and others'."""
    there = job.settled(world, since_s=since_s)
    ranks = {process: own[-1].rank for process, own in there.items()}
    victim = max(ranks, key=lambda process: ranks[process])
    time.sleep(draw.uniform(0, step_s(list(there.values()))))
    return victim, set(ranks) - {victim}


def going_on_s(later: Steps, survivors: Callable[[int], bool], *, at_s: float, world: int) -> float:
    """Seconds from `at_s` until the last surviving process has made its first step among `world` ranks, less a step among them."""
    own = _since(later, survivors, at_s, world)
    return _first_s(own) - at_s - step_s(own)


def stepped_s(later: Steps, survivors: Callable[[int], bool], *, at_s: float, world: int) -> float:
    """Seconds from `at_s` until the last surviving process has made its first step among `world` ranks."""
    return _first_s(_since(later, survivors, at_s, world)) - at_s


def _since(later: Steps, survivors: Callable[[int], bool], at_s: float, world: int) -> list[Sequence[Step]]:
    """Return the steps of each survivor among `world` ranks since `at_s`."""
    return [
        [each for each in steps if each.world == world and each.at_s > at_s]
        for process, steps in later.items()
        if survivors(process)
    ]


def _first_s(own: Sequence[Sequence[Step]]) -> float:
    """Return when the last process has made its first step."""
    return max(steps[0].at_s for steps in own if steps)


def step_s(steps: Sequence[Sequence[Step]]) -> float:
    """Median step of all processes that made several."""
    return median(b.at_s - a.at_s for own in steps for a, b in pairwise(own[1:]))


def longest_pause_s(later: Steps, survivors: Callable[[int], bool], world: int) -> tuple[float, float]:
    """Longest time between two steps of a surviving process, less the median step among `world` ranks; and that step."""
    kept = [steps for process, steps in later.items() if survivors(process)]
    usual_s = step_s([[each for each in own if each.world == world] for own in kept])
    return max(b.at_s - a.at_s for own in kept for a, b in pairwise(own)) - usual_s, usual_s


def meeting_s(later: Steps, survivors: Callable[[int], bool], world: int) -> float:
    """Longest time of a surviving process between its last step among fewer ranks and its first one among `world`."""
    kept = [steps for process, steps in later.items() if survivors(process)]
    return max(b.at_s - a.at_s for own in kept for a, b in pairwise(own) if a.world < world == b.world)

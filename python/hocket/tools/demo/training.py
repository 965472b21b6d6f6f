"""Training in an emulation: real processes, one per host, observed from outside; their measurements are returned.

The trunk's counters are read when rank 0 reports the end of the warm-up and of the last step, so only training is counted: neither
rendezvous nor the first copy of the model.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.errors import ArtefactError, PeerError
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.demo.catalogue import STRATEGIES, WARM_UP_STEPS
from hocket.tools.demo.emulation import Emulation
from hocket.tools.demo.events import Event, RankResult, rank_file

TRAIN = (sys.executable, "-m", "hocket.tools.demo.train")
START_S_MAX = 120.0
STEP_S_MAX = 30.0
"""Limit of the start and of a mean step, after which ranks end themselves with a stack dump."""

OnEvent = Callable[[Event], None]


class Training(Struct, frozen=True, kw_only=True):
    """Options of a training. `strategy` is one of `STRATEGIES`; the paths are for Hocket alone."""

    strategy: str
    model: str
    steps: int
    seed: int = 0
    plan: Path | None = None
    cluster: Path | None = None
    trace: Path | None = None
    profile_out: Path | None = None


class Trained(Struct, frozen=True, kw_only=True):
    """Results: `ranks` by rank, and the trunk's bytes per step after the warm-up, if counted."""

    training: Training
    ranks: tuple[RankResult, ...]
    trunk_bytes_per_step: float | None


def train(emulation: Emulation, training: Training, directory: Path, on_event: OnEvent) -> Trained:
    """Train, one rank on each host of the emulation; results of ranks are written to `directory`.

    Raises PeerError with the last output of the rank that failed first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    watch = _Watch(emulation, on_event, marks=(WARM_UP_STEPS, training.steps))
    _launch(emulation, training, directory, watch)
    if len(watch.trunk_bytes) != len(watch.marks):
        raise PeerError(f"training with {training.strategy}: rank 0 did not tell that its steps had ended")
    before, after = watch.trunk_bytes
    crossed = None if before is None or after is None else after - before
    return Trained(
        training=training,
        ranks=tuple(_read(rank_file(directory, rank)) for rank in range(len(emulation.cluster.hosts))),
        trunk_bytes_per_step=None if crossed is None else crossed / (training.steps - WARM_UP_STEPS),
    )


def profile(emulation: Emulation, training: Training, directory: Path, on_event: OnEvent) -> None:
    """Let every rank profile itself; only writes `training.profile_out`."""
    _launch(emulation, training, directory, _Watch(emulation, on_event, marks=()))


def _launch(emulation: Emulation, training: Training, directory: Path, watch: _Watch) -> None:
    hosts = [host.name for host in emulation.cluster.hosts]
    deadline_s = START_S_MAX + STEP_S_MAX * training.steps
    argv = [*TRAIN, "--strategy", STRATEGIES[training.strategy].script, "--model", training.model]
    argv += ["--steps", str(training.steps), "--seed", str(training.seed)]
    argv += ["--out", str(directory), "--deadline-s", str(deadline_s)]
    meeting = emulation.address(hosts[0])
    outcome = launch(
        [
            ProcessSpec(
                argv=argv, host=host, prefix=emulation.command(host), environment=emulation.environment
            )
            for host in hosts
        ],
        settings=_settings(training),
        store=addresses.join(meeting, emulation.port()),
        serve=False,
        quiet_others=True,
        out=watch,
        err=io.BytesIO(),
    )
    if outcome.failures:
        first = outcome.failures[0]
        raise first.error(f"training with {training.strategy} failed: {first}")


def _settings(training: Training) -> Settings:
    def text(path: Path | None) -> str | None:
        return None if path is None else str(path.absolute())

    return Settings(
        promise=STRATEGIES[training.strategy].promise,
        # Each strategy starts as on a machine that has never trained this model.
        cache_bytes=0,
        plan=text(training.plan),
        cluster=text(training.cluster),
        trace=text(training.trace),
        profile_out=text(training.profile_out),
        timeout_s=STEP_S_MAX,
        start_timeout_s=START_S_MAX / 2,
    )


def _read(path: Path) -> RankResult:
    try:
        return typed.of_json(path.read_bytes(), RankResult)
    except (OSError, msgspec.DecodeError) as error:
        raise ArtefactError(f"{path} is not the result of a rank: {error}") from None


class _Watch(io.BytesIO):
    """Reader of the lines that rank 0 prints; it skips lines that are no events, such as a library's warnings."""

    def __init__(self, emulation: Emulation, on_event: OnEvent, marks: tuple[int, ...]) -> None:
        super().__init__()
        self.marks = marks
        self.trunk_bytes: list[int | None] = []
        self._emulation = emulation
        self._on_event = on_event

    def write(self, lines: bytes) -> int:  # type: ignore[override]  # the launcher writes bytes
        for line in lines.splitlines():
            with suppress(msgspec.DecodeError):
                self._take(typed.of_json(line, Event))
        return len(lines)

    def _take(self, event: Event) -> None:
        if event.what == "training" and event.step in self.marks:
            self.trunk_bytes.append(self._emulation.trunk_bytes())
        self._on_event(event)

"""Main job in order: train with DDP and its f16 hook, measure, profile, plan, verify, train with Hocket.

Everything runs in one emulation, with the same model, data and seeds for all. Artefacts go to the output folder as they are made,
each in the same form as from the verb of its stage.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, both
from hocket.artefacts.plan import Candidate, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import ROUNDED
from hocket.artefacts.trace import read as read_trace
from hocket.artefacts.trace import write_run
from hocket.errors import UsageError
from hocket.job.store import address as addresses
from hocket.planning import search
from hocket.planning.compile import programs
from hocket.planning.reason import seconds
from hocket.tools.demo import training
from hocket.tools.demo.catalogue import MODELS, STRATEGIES, WARM_UP_STEPS
from hocket.tools.demo.comparison import Comparison, PlanQuality, median_step_s, quality, row
from hocket.tools.demo.emulation import Emulation, ranks
from hocket.tools.demo.events import Event
from hocket.tools.demo.screen import Phase, Screen
from hocket.tools.demo.training import Trained, Training
from hocket.tools.probe.hosts import AGENT, probe_hosts
from hocket.tools.probe.options import ProbeOptions

CANDIDATE_STEPS = 8
PROFILE_STEPS_MAX = 100
"""Limit of steps; the profiler ends the script by itself, long before."""

WRITTEN = ("cluster.toml", "profile.json", "plan.json", "trace", "runs", "candidates")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options of a comparison. Artefacts, the trace and the results of ranks go to `output`."""

    model: str
    steps: int
    seeds: int
    all_candidates: bool
    output: Path

    def __post_init__(self) -> None:
        """Raise UsageError for impossible choices."""
        if self.steps <= WARM_UP_STEPS:
            raise UsageError(f"--steps {self.steps}: the first {WARM_UP_STEPS} are warm-up, take more")
        if self.seeds < 1:
            raise UsageError(f"--seeds {self.seeds}: one is the least")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Results. `compute_s`: a step without communication; `quality`: if candidates were measured."""

    comparison: Comparison
    cluster: Cluster
    compute_s: float
    plan: Plan
    quality: PlanQuality | None
    trace: Path


def compare(emulation: Emulation, wanted: Wanted, screen: Screen) -> Compared:
    """Run everything; raises the Error of the stage that fails."""
    return _Comparing(emulation, wanted, screen).run()


def clear(output: Path, also: Sequence[str] = ()) -> None:
    """Make the output folder, without an earlier demo's files.

    `also` names further files that demos write. Raises UsageError when anything else is in it.
    """
    known = {*WRITTEN, *also}
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is no folder\nhint: choose another one with -o")
    strangers = (
        sorted(each.name for each in output.iterdir() if each.name not in known) if output.exists() else []
    )
    if strangers:
        raise UsageError(
            f"{output} has `{strangers[0]}`, which is not the demo's\nhint: choose an empty folder"
        )
    for name in known:
        path = output / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    output.mkdir(parents=True, exist_ok=True)


class _Comparing:
    def __init__(self, emulation: Emulation, wanted: Wanted, screen: Screen) -> None:
        self._emulation = emulation
        self._wanted = wanted
        self._screen = screen
        self._out = wanted.output
        self._hosts = [host.name for host in emulation.cluster.hosts]

    def run(self) -> Compared:
        others = (
            [name for name, each in STRATEGIES.items() if not each.planned]
            if self._emulation.carries_any_program
            else []
        )
        runs: dict[str, list[Trained]] = {name: [self._train(name, 0)] for name in others}
        cluster = self._probe()
        profile = self._profile()
        plan = self._plan(cluster, profile)
        runs["hocket"] = [self._train("hocket", 0)]
        self._complete_trace(profile)
        for seed in range(1, self._wanted.seeds):
            for name, trained in runs.items():
                trained.append(self._train(name, seed))
        candidates = (
            self._measure(cluster, profile) if self._wanted.all_candidates else plan.evidence.candidates
        )
        model = MODELS[self._wanted.model]
        comparison = Comparison(
            model=model.label,
            metric_name=model.metric_name,
            cluster=describe(self._emulation.cluster),
            strategies=tuple(row(name, each, profile.step_s) for name, each in runs.items()),
            candidates=tuple(candidates),
            plan_reason=plan.reason,
        )
        (self._trace / "comparison.json").write_bytes(msgspec.json.encode(comparison))
        return Compared(
            comparison=comparison,
            cluster=cluster,
            compute_s=profile.step_s,
            plan=plan,
            quality=quality(candidates, plan.label),
            trace=self._trace,
        )

    @property
    def _trace(self) -> Path:
        return self._out / "trace"

    def _train(self, strategy: str, seed: int) -> Trained:
        many = self._wanted.seeds > 1
        title = STRATEGIES[strategy].label + (f", seed {seed + 1} of {self._wanted.seeds}" if many else "")
        wanted = Training(strategy=strategy, model=self._wanted.model, steps=self._wanted.steps, seed=seed)
        if STRATEGIES[strategy].planned:
            wanted = msgspec.structs.replace(
                wanted,
                plan=self._out / "plan.json",
                cluster=self._out / "cluster.toml",
                trace=self._trace if seed == 0 else None,
            )
        with self._screen.phase(f"train with {title}", wanted.steps) as phase:
            trained = training.train(
                self._emulation, wanted, self._out / "runs" / f"{strategy}-{seed}", _progress(phase)
            )
            phase.finish(_result(trained))
        return trained

    def _probe(self) -> Cluster:
        if not self._emulation.carries_any_program:
            # A probe's own sockets are not slowed to the cluster's rates: it would measure this machine's loopback.
            files.write(self._out / "cluster.toml", self._emulation.cluster)
            return self._emulation.cluster
        with self._screen.phase("probe the network") as phase:
            store = addresses.join(self._emulation.address(self._hosts[0]), self._emulation.port())
            cluster = probe_hosts(
                ranks(self._emulation, self._hosts, AGENT),
                store=store,
                serve=False,
                options=ProbeOptions(rates="tcp"),
                progress=lambda done, total, what: phase.advance(done, what, total),
            )
            files.write(self._out / "cluster.toml", cluster)
            phase.finish(describe(cluster))
        return cluster

    def _profile(self) -> Profile:
        path = self._out / "profile.json"
        wanted = Training(
            strategy="hocket", model=self._wanted.model, steps=PROFILE_STEPS_MAX, profile_out=path
        )
        with self._screen.phase("profile the model") as phase:
            training.profile(self._emulation, wanted, self._out / "runs" / "profile", _progress(phase))
            profile = files.read(path, Profile)
            phase.finish(f"a step computes for {seconds(profile.step_s)}, {len(profile.gradients)} gradients")
        return profile

    def _plan(self, cluster: Cluster, profile: Profile) -> Plan:
        with self._screen.phase("plan and verify") as phase:
            plan = search.plan(cluster, profile, len(self._hosts), promise=ROUNDED)
            checked = programs(plan)
            files.write(self._out / "plan.json", plan)
            phase.finish(
                f"{plan.label}, best of {len(plan.evidence.candidates)}, {len(checked)} programs, "
                f"{seconds(plan.predicted_step_s)} a step predicted"
            )
        return plan

    def _measure(self, cluster: Cluster, profile: Profile) -> list[Candidate]:
        """Train a few steps with every considered plan, with nothing else different."""
        measured = []
        folder = self._out / "candidates"
        folder.mkdir()
        plans = search.candidates(cluster, profile, len(self._hosts), promise=ROUNDED)
        for index, plan in enumerate(plans):
            path = folder / f"{index}.json"
            files.write(path, plan)
            wanted = Training(strategy="hocket", model=self._wanted.model, steps=CANDIDATE_STEPS, plan=path)
            title = f"candidate {index + 1} of {len(plans)}, {plan.label}"
            with self._screen.phase(title, CANDIDATE_STEPS) as phase:
                trained = training.train(self._emulation, wanted, folder / str(index), _progress(phase))
                step_s = median_step_s([trained])
                phase.finish(f"{seconds(plan.predicted_step_s)} predicted, {seconds(step_s)} measured")
            measured.append(
                Candidate(label=plan.label, predicted_step_s=plan.predicted_step_s, measured_step_s=step_s)
            )
        return measured

    def _complete_trace(self, profile: Profile) -> None:
        """Add the plan's inputs to the trace, for the report; the ranks know only plan and cluster."""
        info = read_trace(self._trace).run
        write_run(self._trace, msgspec.structs.replace(info, profile=profile))


def describe(cluster: Cluster) -> str:
    """Describe a cluster in a line.

    >>> from hocket.tools.testbed import example_cluster
    >>> describe(example_cluster("two-racks"))
    '4 hosts in 2 racks, 1000 Mbit/s a host, 100 Mbit/s between racks'
    """
    racks = {host.rack for host in cluster.hosts}
    slowest = _megabits(min(min(both(host.bandwidth_bit_per_s)) for host in cluster.hosts))
    words = f"{len(cluster.hosts)} hosts in {len(racks)} rack{'s' * (len(racks) > 1)}, {slowest} a host"
    trunks = [min(both(each.uplink_bit_per_s)) for each in cluster.racks if each.uplink_bit_per_s is not None]
    return f"{words}, {_megabits(min(trunks))} between racks" if trunks and len(racks) > 1 else words


def _progress(phase: Phase) -> Callable[[Event], None]:
    def show(event: Event) -> None:
        loss = "" if event.loss is None else f", loss {event.loss:.3f}"
        phase.advance(event.step, f"{event.what}{loss}")

    return show


def _result(trained: Trained) -> str:
    step = f"{seconds(median_step_s([trained]))} a step"
    crossed = trained.trunk_bytes_per_step
    return step if crossed is None else f"{step}, {crossed / 1e6:.1f} MB over the trunk"


def _megabits(bit_per_s: float) -> str:
    return f"{bit_per_s / 1e6:.0f} Mbit/s"

"""The comparison in order: learning rates of each method on a seed of their own, then the seeds, by two jobs of real ranks."""

from __future__ import annotations

import datetime
import io
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.errors import Error
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.bench.methods.catalogue import METHODS, Method, chosen
from hocket.tools.bench.methods.request import Request, Run, Trained
from hocket.tools.bench.methods.result import Comparison, best_rate, further, row
from hocket.tools.demo.compare import describe
from hocket.tools.demo.emulation import open_emulation, ranks

STEP_S_MAX, START_S_MAX = 5.0, 120.0
"""Limits of a mean step and of what comes before the first, after which a rank ends itself with a stack dump."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options of a comparison. `names`: of methods, the first of which others are compared with; none: all. `tuned_on`: the seed of
    learning rates; `further`: rates that may be tried beyond an edge of the grid, for each method whose best lies there; `cluster`:
    emulated network, None: this machine's."""

    names: Sequence[str]
    model: str
    world: int
    steps: int
    evaluations: int
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    tuned_on: int
    think_s: float
    further: int = 0
    cluster: Cluster | None = None


def compare(wanted: Wanted, tell: Tell) -> Comparison:
    """Train by all methods. UsageError: one is unknown, or there is none to run; Error: a rank failed."""
    methods, left_out = chosen(wanted.names)
    if not methods:
        raise Error("no method is left to run: " + "; ".join(left_out))
    for sentence in left_out:
        tell(sentence)
    names = [each.name for each in methods]
    tuned = _tuned(wanted, names, tell) if len(wanted.rates) > 1 else {}
    best = _best(wanted, names, tuned)
    runs = [
        # Methods take turns, so that what else this machine does meets all of them.
        Run(method=name, rate=rate, seed=seed)
        for seed in wanted.seeds
        for name, rate in best.items()
        if rate is not None
    ]
    tell(f"comparison: {len(runs)} runs on seeds {', '.join(map(str, wanted.seeds))}")
    found = _run(wanted, runs, tell)
    return _comparison(wanted, methods, tuned, found, left_out)


def _best(wanted: Wanted, names: Sequence[str], tuned: dict[str, list[Trained]]) -> dict[str, float | None]:
    """Return the best learning rate of each method; None: it diverged with all."""
    return {name: best_rate(tuned[name]) if tuned else wanted.rates[0] for name in names}


def _tuned(wanted: Wanted, names: Sequence[str], tell: Tell) -> dict[str, list[Trained]]:
    """Return runs at each rate of the grid, by method, and at further ones where the best lies at an edge."""
    found: dict[str, list[Trained]] = {name: [] for name in names}
    rates = dict.fromkeys(names, wanted.rates)
    for extended in range(1 + wanted.further):
        runs = [
            Run(method=name, rate=rate, seed=wanted.tuned_on) for name, own in rates.items() for rate in own
        ]
        if not runs:
            break
        where = "beyond the grid's edge" if extended else f"on seed {wanted.tuned_on}"
        tell(f"learning rates: {len(runs)} runs {where}")
        for each in _run(wanted, runs, tell):
            found[each.run.method].append(each)
        rates = {name: further(own) for name, own in found.items()}
    return found


def _comparison(
    wanted: Wanted,
    methods: Sequence[Method],
    tuned: dict[str, list[Trained]],
    found: Sequence[Trained],
    left_out: Sequence[str],
) -> Comparison:
    names = [each.name for each in methods]
    best = _best(wanted, names, tuned)
    of = {name: [each for each in found if each.run.method == name] for name in names}
    first = of[methods[0].name]
    return Comparison(
        model=wanted.model,
        network=_network(wanted),
        world=_world(wanted),
        cores=len(os.sched_getaffinity(0)),
        steps=wanted.steps,
        think_s=wanted.think_s,
        rates=wanted.rates,
        seeds=wanted.seeds,
        tuned_on=wanted.tuned_on,
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        rows=tuple(
            row(
                name,
                METHODS[name].about,
                best[name],
                wanted.rates,
                runs=of[name],
                first=first,
                beyond={each.run.rate for each in tuned.get(name, ())}.difference(wanted.rates),
            )
            for name in names
        ),
        left_out=tuple(left_out),
    )


def _run(wanted: Wanted, runs: Sequence[Run], tell: Tell) -> list[Trained]:
    request = Request(
        runs=tuple(runs),
        model=wanted.model,
        steps=wanted.steps,
        evaluations=wanted.evaluations,
        think_s=wanted.think_s,
        deadline_s=START_S_MAX + STEP_S_MAX * wanted.steps,
    )
    with tempfile.TemporaryDirectory(prefix="hocket-methods-") as directory:
        asked, written = Path(directory) / "request.json", Path(directory) / "result.json"
        asked.write_bytes(msgspec.json.encode(request))
        argv = [sys.executable, "-m", "hocket.tools.bench.methods.rank", str(asked), str(written)]
        # Schedules begin at once and stay: the method is what is compared.
        settings = replace(Settings.from_environment(), sentinel=False, autopilot=False)
        lines = _Lines(tell)
        if wanted.cluster is None:
            outcome = launch(
                [ProcessSpec(argv=argv)] * wanted.world,
                settings=settings,
                quiet_others=True,
                out=lines,
                err=sys.stderr.buffer,
            )
        else:
            slots = [host.name for host in wanted.cluster.hosts for _ in range(host.slots)]
            with open_emulation(wanted.cluster) as emulation:
                if not emulation.carries_any_program:
                    raise Error(f"an emulated cluster needs network namespaces: {emulation.remarks[0]}")
                outcome = launch(
                    ranks(emulation, slots, argv),
                    settings=settings,
                    store=addresses.join(emulation.address(slots[0]), emulation.port()),
                    serve=False,
                    quiet_others=True,
                    out=lines,
                    err=sys.stderr.buffer,
                )
        if outcome.failures:
            raise Error(f"the benchmark failed: {outcome.failures[0]}")
        return typed.of_json(written.read_bytes(), list[Trained])


class _Lines(io.BytesIO):
    """Output of rank 0, told line by line."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell, self._rest = tell, b""

    def write(self, written: bytes) -> int:  # type: ignore[override]  # the launcher writes bytes
        *lines, self._rest = (self._rest + written).split(b"\n")
        for line in lines:
            self._tell(line.decode(errors="replace"))
        return len(written)


def _world(wanted: Wanted) -> int:
    return wanted.world if wanted.cluster is None else sum(host.slots for host in wanted.cluster.hosts)


def _network(wanted: Wanted) -> str:
    return "this machine" if wanted.cluster is None else describe(wanted.cluster)

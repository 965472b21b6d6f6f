"""A trunk that is halved and restored in training: the job finds other schedules for its gradients, and loses no gradient."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benches.autopilot.jobs import Weather, changing
from benches.delays import cases
from benches.delays.contest import Driven
from benches.emulated import TIMEOUT_S, hosts
from benches.row import Row
from hocket.artefacts import files, trace
from hocket.artefacts.change import Change
from hocket.artefacts.cluster import Cluster
from hocket.settings import Settings
from hocket.tools.demo.emulation import NamespaceEmulation, ranks, run_ranks
from hocket.tools.report.quantity import TIMES
from hocket.tools.testbed import Testbed

PROMISE = "delayed,merge=4,delay=1"

COVERAGE = 1.4
"""Coverage rate of the trunk; twice as much when it is halved."""

HALVED, RESTORED, ITERATIONS = 60, 150, 240

SETTLED = 24
"""Iterations before a change whose mean counts: a multiple of all short periods."""


def drift() -> Iterator[Row]:
    """Iterations until another schedule is in force, its iteration over the prediction, and made and applied gradients."""
    cluster, trunk = racks()
    weather = ((HALVED, trunk / 2), (RESTORED, trunk))
    with Testbed(cluster) as bed:
        driven, changes = drive(bed, ITERATIONS, weather)
    adopted = [each for each in changes if each.what == "adopted"]
    for what, change in (("halved", HALVED), ("restored", RESTORED)):
        after = [each.step - change for each in adopted if each.step > change]
        value = float(min(after, default=ITERATIONS))
        yield Row(name="drift", what=f"trunk {what}: iterations until other turns", value=value, target=30)
    for what, until in (("before", HALVED), ("halved", RESTORED), ("restored", ITERATIONS)):
        in_force = [each for each in adopted if each.step < until - SETTLED]
        predicted_s = in_force[-1].predicted_s if in_force else None
        taken_s = (driven.ends_s[until] - driven.ends_s[until - SETTLED]) / SETTLED
        label = f" ({in_force[-1].label})" if in_force else ""
        yield Row(
            name="drift",
            what=f"trunk {what}{label}: iteration over what was predicted",
            value=taken_s / predicted_s if predicted_s else math.inf,
            target=1.1,
            unit=TIMES,
        )
    for which, applied in (("least", driven.least_applied), ("most", driven.most_applied)):
        what = f"iterations applied to the parameter with the {which}, over those made"
        yield Row(
            name="drift",
            what=what,
            value=applied / ITERATIONS,
            target=1.0,
            least=which == "least",
            unit=TIMES,
        )


def racks() -> tuple[Cluster, float]:
    """Two racks with alternating hosts, and the rate of their trunk, which carries the reduced gradients once per direction."""
    elements = sum(math.prod(each.shape) for each in cases.transformer().gradients)
    travels_s = COVERAGE * (cases.FORWARD_S + cases.BACKWARD_S)
    trunk = 8 * cases.SENT_BYTES * elements / travels_s
    return hosts([10 * trunk] * cases.WORLD, 2, trunk, alternating=True), trunk


def drive(
    bed: Testbed, iterations: int, weather: Weather = (), promise: str = PROMISE
) -> tuple[Driven, Sequence[Change]]:
    """Run a job that begins with only a promise, and return its times and its changes of plan."""
    with tempfile.TemporaryDirectory(prefix="hocket-delays-") as directory:
        folder = Path(directory)
        files.write(folder / "profile.json", cases.transformer())
        argv = [sys.executable, "-m", "benches.delays.driven", directory, str(iterations)]
        places = [host.name for host in bed.cluster.hosts]
        emulation = NamespaceEmulation(bed)
        settings = Settings(
            promise=promise,
            trace=str(folder / "trace"),
            cache=directory,
            timeout_s=TIMEOUT_S,
            start_timeout_s=TIMEOUT_S,
        )
        with changing(bed, folder / "driven.steps", weather):
            run_ranks(emulation, places[0], ranks(emulation, places, argv), settings)
        driven = msgspec.json.decode((folder / "driven.json").read_bytes(), type=Driven)
        return driven, trace.read(folder / "trace").changes()

"""Seconds per step of contenders in turns, and rows made of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import median

from benches.emulated import in_emulation
from benches.frameworks.rank import BALANCED, Result
from benches.row import Row
from hocket.artefacts.cluster import Cluster

Seconds = Mapping[str, Sequence[Sequence[float]]]
"""Seconds of steps by contender and turn."""

GIGABIT, WORLD = 1e9, 4


def balanced_samples(cluster: Cluster) -> int:
    """Samples of a batch whose backward takes JAX as long as communication on these hosts."""
    return measured("jax", cluster, ("computation",), "--samples", BALANCED, "--turns", "1")["samples"]


def measured(framework: str, cluster: Cluster, contenders: Sequence[str], *options: str) -> Result:
    """Measure a rank on each host, without a cluster file. `options`: options of `benches.frameworks.rank`."""
    argv = [sys.executable, "-m", "benches.frameworks.rank", framework, ",".join(contenders), *options]
    found: Result = in_emulation(cluster, [host.name for host in cluster.hosts], argv, told=False)
    return found


def times_faster(found: Seconds, one: str, other: str) -> list[float]:
    """Median step of `other` over that of `one`, by turn.

    >>> times_faster({"a": [[1.0, 1.0], [2.0, 4.0]], "b": [[3.0, 3.0], [6.0]]}, "a", "b")
    [3.0, 2.0]
    """
    turns = zip(found[one], found[other], strict=True)
    return [median(theirs) / median(ours) for ours, theirs in turns]


def steps(found: Seconds, row: str, contender: str, title: str) -> Row:
    """Row of a contender's step, over all turns."""
    seen_ms = [1e3 * step_s for turn in found[contender] for step_s in turn]
    return Row.over(seen_ms, name=row, what=f"step of {title}", unit="ms")


OWN = {"jax": ("psum", "psum on Gloo"), "tensorflow": ("mirrored", "MultiWorkerMirrored")}
"""Contender with a framework's own collectives, and its title, by framework."""


def against_own(row: str, cluster: Cluster, target: float, framework: str) -> list[Row]:
    """Rows of Hocket's three lines against a framework's own collectives: exact means, which have the target, and rounded ones."""
    own, called = OWN[framework]
    found = measured(framework, cluster, ("exact", "rounded", own))["steps_s"]
    titles = {"exact": "ours", "rounded": "ours, rounded", own: called}
    name = f"{row}-{framework}"
    ratios = [
        Row.over(
            times_faster(found, contender, own),
            name=name,
            what=f"step of {called}, in steps of {titles[contender]}",
            target=target if contender == "exact" else None,
            least=True,
            unit="times",
        )
        for contender in ("exact", "rounded")
    ]
    return [*ratios, *(steps(found, name, contender, title) for contender, title in titles.items())]

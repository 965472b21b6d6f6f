"""Rows of `python -m benches trainers`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from statistics import median

from benches.emulated import hosts, in_emulation
from benches.row import Row

HOSTS, TURNS = 4, 3
RATE_BIT_PER_S, TRUNK_BIT_PER_S = 1e9, 1e8
RATIO_MIN = {"exact": 2.9, "rounded": 5.3}
"""Targets of the demo, whose script calls `hk.distribute` itself."""


def two_racks(trainer: str) -> Iterable[Row]:
    """Steps of a trainer's own DDP and of `hk.distribute` in turns, on hosts that alternate between two racks."""
    cluster = hosts([RATE_BIT_PER_S] * HOSTS, racks=2, trunk_bit_per_s=TRUNK_BIT_PER_S, alternating=True)
    slots = [host.name for host in cluster.hosts]
    steps_s: dict[str, list[float]] = {"ddp": [], "exact": [], "rounded": []}
    for _ in range(TURNS):
        for by, own_s in steps_s.items():
            argv = [sys.executable, "-m", "benches.trainers.rank", "--trainer", trainer, "--by", by]
            own_s.append(in_emulation(cluster, slots, argv, told=False)["step_s"])
    name = f"two-racks-{trainer}"
    for by, own_s in steps_s.items():
        what = f"a step, {trainer}'s DDP on Gloo" if by == "ddp" else f"a step, hk.distribute, {by}"
        yield Row.over(own_s, name=name, what=what, unit="s")
    for by, least in RATIO_MIN.items():
        yield Row(
            name=name,
            what=f"{trainer}'s DDP over hk.distribute, {by}",
            value=median(steps_s["ddp"]) / median(steps_s[by]),
            target=least,
            least=True,
        )


ROWS: dict[str, Callable[[], Iterable[Row]]] = {
    f"two-racks-{trainer}": functools.partial(two_racks, trainer)
    for trainer in ("accelerate", "trainer", "lightning")
}

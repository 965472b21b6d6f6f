"""Rows of `python -m benches sharded`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from statistics import median

from benches.emulated import hosts, in_emulation
from benches.row import Row

HOSTS, OF_A_HOST, TURNS = 4, 2, 3
RATE_BIT_PER_S, TRUNK_BIT_PER_S = 1e9, 1e8
RATIO_MIN = 2.5


def two_racks() -> Iterable[Row]:
    """Steps of contenders in turns, on hosts that alternate between two racks."""
    cluster = hosts([RATE_BIT_PER_S] * HOSTS, racks=2, trunk_bit_per_s=TRUNK_BIT_PER_S, alternating=True)
    slots = [host.name for host in cluster.hosts for _ in range(OF_A_HOST)]
    steps_s: dict[str, list[float]] = {"native": [], "exact": [], "rounded": []}
    for _ in range(TURNS):
        for between, own_s in steps_s.items():
            argv = [sys.executable, "-m", "benches.sharded.rank", "--between", between]
            own_s.append(in_emulation(cluster, slots, argv, told=False)["step_s"])
    name = "two-racks"
    for between, own_s in steps_s.items():
        what = "native HSDP on Gloo" if between == "native" else f"hsdp_hook, {between}"
        yield Row.over(own_s, name=name, what=f"a step, {what}", unit="s")
    for between in ("exact", "rounded"):
        ratio = median(steps_s["native"]) / median(steps_s[between])
        yield Row(
            name=name,
            what=f"native HSDP over hsdp_hook, {between}",
            value=ratio,
            target=RATIO_MIN,
            least=True,
        )


ROWS: dict[str, Callable[[], Iterable[Row]]] = {"two-racks": two_racks}

"""The rows of `python -m benches trees`: all-reduces by trees, simulated, beside what the narrowest cut allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benches.row import Row
from benches.trees.networks import a100, mi250
from hocket.artefacts.plan import AllReduce
from hocket.tools.simulation import all_reduce
from hocket.tools.simulation.wired import Wired

SIZE_BYTES = 1 << 30

OF_OPTIMUM, FOUND_S = 0.99, 1.0
"""Targets (issue 42)."""


def compared(name: str, wired: Wired) -> Iterator[Row]:
    """Share of the optimum that trees and the ring over ranks in their order reach; time in which trees were found."""
    network = wired.network()
    found = all_reduce.trees(network)
    own = all_reduce.predict(network, found, found.route, SIZE_BYTES)
    ring = all_reduce.predict(network, found, AllReduce(algorithm="ring"), SIZE_BYTES)
    optimum = 1 / all_reduce.BITS / found.least_s_per_bit / 1e9
    yield Row(name=name, what="the optimum", value=optimum, unit="GB/s")
    yield Row(
        name=name,
        what=f"{found.pairs} trees, of the optimum",
        value=own.of_optimum,
        target=OF_OPTIMUM,
        least=True,
    )
    yield Row(name=name, what="the ring, of the optimum", value=ring.of_optimum)
    yield Row(name=name, what="trees found in", value=found.found_s, target=FOUND_S, unit="s")


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    **{f"a100-{hosts}": partial(compared, f"{hosts} x 8 A100", a100(hosts)) for hosts in (1, 2, 4)},
    **{f"mi250-{hosts}": partial(compared, f"{hosts} x 16 MI250", mi250(hosts)) for hosts in (1, 2)},
}

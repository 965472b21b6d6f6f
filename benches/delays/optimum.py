"""The best packing of a window by OR-tools' CP-SAT: an independent model.

Each item has an optional interval on each link, and those of a link do not overlap. Their order is free.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hocket.errors import UsageError

Item = tuple[int, Sequence[int], int]
"""Time of readiness, time on each link, and profit of an item, in ticks, in the form for `_native.pack`."""


def optimum(items: Sequence[Item], until: Sequence[int]) -> int:
    """Largest profit of items that links can carry, each link `until` its own end, each item once and not before it is ready.

    Raises UsageError if OR-tools is missing.
    """
    cp_model = _solver()
    model = cp_model.CpModel()
    chosen: list[list[Any]] = [[] for _ in items]
    for link, end in enumerate(until):
        intervals = []
        for at, (ready, busy, _) in enumerate(items):
            if ready + busy[link] > end:
                continue
            sent = model.new_bool_var(f"{at} on {link}")
            begins = model.new_int_var(ready, end - busy[link], f"{at} on {link} begins")
            name = f"{at} on {link} lasts"
            intervals.append(model.new_optional_fixed_size_interval_var(begins, busy[link], sent, name))
            chosen[at].append(sent)
        model.add_no_overlap(intervals)
    for each in chosen:
        model.add_at_most_one(each)
    model.maximize(sum(profit * sum(each) for (_, _, profit), each in zip(items, chosen, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status != cp_model.OPTIMAL:
        raise RuntimeError(f"CP-SAT ended with {solver.status_name(status)} of {items} until {until}")
    return round(float(solver.objective_value))


def _solver() -> ModuleType:
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        raise UsageError("OR-tools is not here\nhint: pip install ortools") from None

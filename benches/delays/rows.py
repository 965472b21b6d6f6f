"""Rows of `python -m benches delays`, each measured by its own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benches.delays import (
    drift,
    fidelity,
    guarding,
    joint,
    learning,
    links,
    overhead,
    profiler,
    sites,
    sites_loss,
    sixteen,
    solver,
    speed,
    sweep,
    sweep_alone,
)
from benches.row import Row

ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "solver": solver.rows,
    "fidelity": fidelity.rows,
    "links": links.rows,
    "sixteen": sixteen.rows,
    "profiler": profiler.rows,
    "speed": speed.speed,
    "sweep": sweep.sweep,
    "imbalanced": speed.imbalanced,
    "guard": guarding.guard,
    "learning": learning.learning,
    "lateness": learning.lateness,
    "alone": learning.alone,
    "drift": drift.drift,
    "joint": joint.joint,
    "sites": sites.sites,
    "sites-loss": sites_loss.rows,
    "sweep-alone": sweep_alone.rows,
    "overhead": overhead.overhead,
}

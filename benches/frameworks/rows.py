"""Rows of `python -m benches frameworks`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from benches.frameworks import adapter, balanced, overlap, racks, star
from benches.frameworks.measured import OWN
from benches.row import Row

ROWS: dict[str, Callable[[], Iterable[Row]]] = {
    "overlap": overlap.rows,
    "balanced": balanced.rows,
    **{f"adapter-{each}": functools.partial(adapter.rows, each) for each in OWN},
    **{f"star-{each}": functools.partial(star.rows, each) for each in OWN},
    **{f"racks-{each}": functools.partial(racks.rows, each) for each in OWN},
}

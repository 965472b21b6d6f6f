"""The rows of `python -m benches frameworks`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benches.frameworks import adapter, balanced, overlap, racks, star
from benches.row import Row

ROWS: dict[str, Callable[[], Iterable[Row]]] = {
    "overlap": overlap.rows,
    "balanced": balanced.rows,
    "star": star.rows,
    "racks": racks.rows,
    "adapter": adapter.rows,
}

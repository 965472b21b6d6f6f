"""`hocket bench all_reduce`: starts the ranks, collects what rank 0 measured."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hocket import _native
from hocket.errors import Error
from hocket.launch.processes import ProcessSpec
from hocket.launch.run import launch


def measure(
    *,
    world: int,
    sizes_bytes: Sequence[int],
    rounds: int,
    against: str | None,
    algorithm: str,
    chunk_bytes: int,
    tcp: bool,
) -> dict[str, Any]:
    """Times of each contender by size, seconds; see `all_reduce_rank` for a row's fields.

    `tcp`: ranks pretend to be on hosts of their own, which takes shared memory from ours.
    """
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as directory:
        out = Path(directory) / "rows.json"
        argv = [
            sys.executable,
            "-m",
            "hocket.bench.all_reduce_rank",
            "--sizes",
            ",".join(map(str, sizes_bytes)),
            "--rounds",
            str(rounds),
            "--algorithm",
            algorithm,
            "--chunk-bytes",
            str(chunk_bytes),
            "--against",
            against or "",
            "--out",
            str(out),
            *(["--tcp"] if tcp else []),
        ]
        outcome = launch([ProcessSpec(argv=argv)] * world)
        if outcome.failures:
            raise Error(f"the benchmark failed: {outcome.failures[0]}")
        rows = json.loads(out.read_text())
    return {"world": world, "cache_line_ns": _native.cache_line_ns(), "rows": rows}

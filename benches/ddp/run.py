"""`python -m benches ddp` from outside: start of the ranks, their rows, and a table."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hocket.errors import PeerError
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

TIMEOUT_S = 60.0
DIFFERENCE_MAX = 1e-6


class Row(Struct, frozen=True, kw_only=True):
    """A way: the largest relative difference of a parameter on any rank, of a buffer (None: it has none), and whether Hocket's
    ranks end with the same bits, if they should."""

    way: str
    parameters: float
    buffers: float | None
    ranks_equal: bool

    @property
    def met(self) -> bool:
        """True if both trainings are the same."""
        return max(self.parameters, self.buffers or 0.0) <= DIFFERENCE_MAX and self.ranks_equal


def measure(names: Sequence[str], world: int = 2) -> list[Row]:
    """Run every way on both sides, by one set of processes. Raises PeerError with the ranks' output when one fails."""
    output = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="hocket-ways-") as temporary:
        argv = [sys.executable, "-m", "benches.ddp.rank", temporary, "|".join(names)]
        specs = [ProcessSpec(argv=argv, environment={"OMP_NUM_THREADS": "1"})] * world
        settings = Settings(timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S)
        outcome = launch(specs, settings=settings, out=output, err=output)
        if outcome.code != 0:
            raise PeerError(f"the ranks of `python -m benches ddp` failed:\n{output.getvalue().decode()}")
        return msgspec.json.decode((Path(temporary) / "rows.json").read_bytes(), type=list[Row])


def table(rows: Iterable[Row]) -> str:
    lines = ["| way | parameters | buffers | met |", "| --- | --- | --- | --- |"]
    for row in rows:
        buffers = "none" if row.buffers is None else f"{row.buffers:.0e}" if row.buffers else "0"
        parameters = f"{row.parameters:.0e}" if row.parameters else "0"
        lines.append(f"| {row.way} | {parameters} | {buffers} | {'yes' if row.met else '**no**'} |")
    return "\n".join(lines)

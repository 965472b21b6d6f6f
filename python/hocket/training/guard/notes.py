"""Notes on what guards do: a warning of one rank, and a line of its trace's changes."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

from hocket.artefacts.change import Change, What
from hocket.artefacts.trace import append_change
from hocket.job.trace_writes import TraceWrites

log = logging.getLogger("hocket.delays")


class Notes:
    """Notes of one session. `trace`: directory of the trace, on the rank that writes it."""

    def __init__(self, trace: Path | None) -> None:
        self._trace = trace
        self._writes = TraceWrites("changes of the plan")

    def __call__(self, what: What, label: str, iteration: int, epoch: int, why: str) -> None:
        """Note a change of what is done under the plan with this label."""
        log.warning("iteration %d: %s: %s", iteration, label, why)
        if self._trace is not None:
            change = Change(what=what, step=iteration, epoch=epoch, label=label, why=why)
            self._writes(functools.partial(append_change, self._trace, change))

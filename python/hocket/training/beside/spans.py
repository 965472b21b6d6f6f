"""Parts of a training step in the trace, and the script's metrics; used only when a trace is written."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, Any

from hocket import _native
from hocket.artefacts.trace import metrics_file
from hocket.job.trace_writes import TraceWrites


class Spans:
    """Marks of forward, backward, wait, optimizer, updates and step of each iteration; a framework reports their begin and end."""

    def __init__(self, engine: _native.Engine, directory: Path, rank: int) -> None:
        """Begin with no part under way."""
        self.directory = directory
        self._engine = engine
        self._iteration = 0
        self._step_ns = self._forward_ns = self._backward_ns = self._optimizer_ns = 0
        self._began_s = time.monotonic()
        self._metrics: IO[bytes] = metrics_file(directory, rank).open("wb", buffering=0)
        self._writes = TraceWrites("the script's metrics")

    def go_on_from(self, iteration: int) -> None:
        """Count from the iterations that the job has made before this rank came."""
        self._iteration = iteration

    def go_on_in(self, engine: _native.Engine) -> None:
        """Mark on another engine: the ranks have met anew."""
        self._engine = engine

    def forward_began(self) -> None:
        """Note that forward begins, and with it a step."""
        self._forward_ns = _native.now_ns()
        if self._step_ns == 0:
            self._step_ns = self._forward_ns

    def forward_ended(self, *, trains: bool) -> None:
        """Note that forward ends; `trains`: backward follows, as this was no evaluation."""
        self._backward_ns = _native.now_ns()
        if trains:
            self._engine.mark("forward", self._iteration, self._forward_ns, self._backward_ns)

    def waited(self, iteration: int, began_ns: int, ended_ns: int) -> None:
        """Note that backward is over: it computed until `began_ns`, then waited."""
        self._engine.mark("backward", iteration, self._backward_ns, began_ns)
        self._engine.mark("wait", iteration, began_ns, ended_ns)

    def updated(self) -> None:
        """Note that the optimizer has applied merged or late gradients in this step."""
        now_ns = _native.now_ns()
        self._engine.mark("update", self._iteration, now_ns, now_ns)

    def optimizer_began(self) -> None:
        """Note that the optimizer's step begins."""
        self._optimizer_ns = _native.now_ns()

    def optimizer_ended(self) -> None:
        """Note that the optimizer's step is over, and the iteration."""
        ended_ns = _native.now_ns()
        self._engine.mark("optimizer", self._iteration, self._optimizer_ns, ended_ns)
        if self._step_ns == 0:
            # The step of a flush belongs to no iteration.
            return
        self._engine.mark("step", self._iteration, self._step_ns, ended_ns)
        self._step_ns = 0
        self._iteration += 1

    def log(self, **values: Any) -> None:
        """Append an object with the seconds since the start."""
        line = json.dumps({"time_s": round(time.monotonic() - self._began_s, 6), **values}) + "\n"
        self._writes(lambda: self._write(line.encode()))

    def _write(self, line: bytes) -> None:
        """Write a line; the part that a full disk does not take is not kept for later."""
        while line:
            line = line[self._metrics.write(line) :]

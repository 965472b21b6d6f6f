"""The parts of a training step in the trace, and what the script logs; used only when a trace is written."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, Any

import torch
from hocket import _native
from hocket.artefacts.trace import metrics_file


class Spans:
    """Marks forward, backward, wait, optimizer and step of each iteration."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        engine: _native.Engine,
        directory: Path,
        rank: int,
    ) -> None:
        """Hook the model's forward and the optimizer's step."""
        self.directory = directory
        self._engine = engine
        self._iteration = 0
        self._step_ns = self._forward_ns = self._backward_ns = self._optimizer_ns = 0
        self._began_s = time.monotonic()
        self._metrics: IO[str] = metrics_file(directory, rank).open("w")
        model.register_forward_pre_hook(self._on_forward)
        model.register_forward_hook(self._on_forward_end)
        optimizer.register_step_pre_hook(self._on_step)
        optimizer.register_step_post_hook(self._on_step_end)

    def waited(self, iteration: int, began_ns: int, ended_ns: int) -> None:
        """Backward is over: it computed until `began_ns`, then waited."""
        self._engine.mark("backward", iteration, self._backward_ns, began_ns)
        self._engine.mark("wait", iteration, began_ns, ended_ns)

    def log(self, **values: Any) -> None:
        """Append an object with the seconds since the start."""
        self._metrics.write(
            json.dumps({"time_s": round(time.monotonic() - self._began_s, 6), **values}) + "\n"
        )
        self._metrics.flush()

    def _on_forward(self, _model: torch.nn.Module, _inputs: Any) -> None:
        self._forward_ns = _native.now_ns()
        if self._step_ns == 0:
            self._step_ns = self._forward_ns

    def _on_forward_end(self, model: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        self._backward_ns = _native.now_ns()
        if model.training and torch.is_grad_enabled():
            self._engine.mark("forward", self._iteration, self._forward_ns, self._backward_ns)

    def _on_step(self, *_: Any) -> None:
        self._optimizer_ns = _native.now_ns()

    # Neither gradients nor parameters: a step that is put off per bucket need not wait for these.
    _on_step.reads_nothing = True  # type: ignore[attr-defined]

    def _on_step_end(self, *_: Any) -> None:
        ended_ns = _native.now_ns()
        self._engine.mark("optimizer", self._iteration, self._optimizer_ns, ended_ns)
        self._engine.mark("step", self._iteration, self._step_ns, ended_ns)
        self._step_ns = 0
        self._iteration += 1

    _on_step_end.reads_nothing = True  # type: ignore[attr-defined]

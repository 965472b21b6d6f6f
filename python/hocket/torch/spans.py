"""Hooks that report to `Spans` when forward and the optimizer's step begin and end."""

from __future__ import annotations

from typing import Any

import torch

from hocket.training.beside.spans import Spans


def watch(spans: Spans, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Hook the model's forward and the optimizer's step."""

    def on_forward(_model: torch.nn.Module, _inputs: Any) -> None:
        spans.forward_began()

    def on_forward_end(model: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        spans.forward_ended(trains=model.training and torch.is_grad_enabled())

    def on_step(*_: Any) -> None:
        spans.optimizer_began()

    def on_step_end(*_: Any) -> None:
        spans.optimizer_ended()

    # The hooks read neither gradients nor parameters: a step that is deferred per bucket need not wait for them.
    on_step.reads_nothing = on_step_end.reads_nothing = True  # type: ignore[attr-defined]
    model.register_forward_pre_hook(on_forward)
    model.register_forward_hook(on_forward_end)
    optimizer.register_step_pre_hook(on_step)
    optimizer.register_step_post_hook(on_step_end)

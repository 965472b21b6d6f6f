"""The end of a backward."""

from __future__ import annotations

from collections.abc import Callable

import torch


def when_it_ends(call: Callable[[], None]) -> None:
    """Call `call` when the running backward has ended; within a hook.

    `torch.autograd.graph.queue_callback` is the same, and PyTorch has it only lately.
    """
    torch.autograd.Variable._execution_engine.queue_callback(call)

"""Code that `torch.compile` must leave alone: it moves memory by address, and waits for other processes.

While a compiled function runs, Dynamo looks at each Python function that is called below it, also at those that PyTorch
calls from C++. The mark is found in PyTorch's C extension, since loading `torch._dynamo` takes seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

_SKIP = eval_frame._FrameAction.SKIP


def uncompiled(act: F) -> F:
    """Mark a function so that neither it nor its callees are compiled, and return it."""
    eval_frame.set_code_exec_strategy(act.__code__, eval_frame._FrameExecStrategy(_SKIP, _SKIP))
    return act


def uncompiled_methods(kind: C) -> C:
    """Mark a class's own methods as `uncompiled`, and return the class."""
    for value in vars(kind).values():
        if inspect.isfunction(value):
            uncompiled(value)
    return kind

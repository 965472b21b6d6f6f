"""Code that `torch.compile` must leave alone: it moves memory by address, and waits for other processes.

While a compiled function runs, Dynamo looks at each Python function that is called below it, also at those that PyTorch
calls from C++. The mark is found in PyTorch's C extension, since loading `torch._dynamo` takes seconds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch._C._dynamo import eval_frame

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

MARKS = hasattr(eval_frame, "set_code_exec_strategy")
"""True from PyTorch 2.7 on; before, code can be marked, but not what it calls."""


def uncompiled(act: F) -> F:
    """Return the function, marked so that neither it nor its callees are compiled; or, where PyTorch has no such mark, one that
    calls it while nothing is."""
    if not MARKS:
        return cast(F, _alone(act))
    skip = eval_frame._FrameAction.SKIP
    eval_frame.set_code_exec_strategy(act.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return act


def uncompiled_methods(kind: C) -> C:
    """Make a class's own methods `uncompiled`, and return the class."""
    for name, value in [*vars(kind).items()]:
        if inspect.isfunction(value):
            setattr(kind, name, uncompiled(value))
    return kind


def _alone(act: Any) -> Any:
    @functools.wraps(act)
    def alone(*arguments: Any, **named: Any) -> Any:
        before = eval_frame.set_eval_frame(None)
        try:
            return act(*arguments, **named)
        finally:
            eval_frame.set_eval_frame(before)

    eval_frame.skip_code(alone.__code__)  # type: ignore[attr-defined]  # of PyTorch before 2.7
    return alone

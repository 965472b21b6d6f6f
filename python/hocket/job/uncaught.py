"""Exceptions that nothing catches: jobs that are open in this process hear of them, since other ranks would wait for it.

One hook serves all jobs. With one each, a job would keep the one before it in memory, and threads keep the hook that they
began with.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

Call = Callable[[BaseException], None]


def described(error: BaseException) -> str:
    """Return an error's type and text, in a line as Python prints it.

    >>> described(ValueError("wrong")), described(KeyboardInterrupt())
    ('ValueError: wrong', 'KeyboardInterrupt')
    """
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name


class Uncaught:
    """Calls to make with an exception that nothing catches."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._before: Callable[..., Any] = sys.excepthook
        self._hook: Callable[..., Any] | None = None
        """Hook that makes the calls, while there are any."""

    def tell(self, call: Call) -> None:
        """Call `call` after those that were given before, and after the hook that was there."""
        self._calls.append(call)
        if sys.excepthook is not self._hook:
            self._set(sys.excepthook)

    def forget(self, call: Call) -> None:
        """Call `call` no longer."""
        self._calls.remove(call)
        if not self._calls and sys.excepthook is self._hook:
            sys.excepthook, self._hook = self._before, None

    def _set(self, before: Callable[..., Any]) -> None:
        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
            with contextlib.ExitStack() as calls:
                # One that others have set theirs above stays in the chain, such as below torch's, which is never removed.
                if hook is self._hook:
                    for call in reversed(self._calls):
                        calls.callback(call, error)
                return before(kind, error, trace)

        self._before = before
        sys.excepthook = self._hook = hook


uncaught = Uncaught()

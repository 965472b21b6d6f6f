"""Arrow, for traces in columns: loaded on use, with a clear error when it is missing."""

from __future__ import annotations

from typing import Any

from hocket import extras


def arrow() -> Any:
    """Return the module `pyarrow`. Raises UsageError when it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415  # an optional dependency
    except ImportError:
        raise extras.missing("pyarrow", "a trace in columns") from None
    return pyarrow

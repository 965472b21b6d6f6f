"""Common options of the verbs of `hocket bench`: the destination of their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hocket.cli.shared.options import json_option, output_option

Command = TypeVar("Command", bound=Callable[..., Any])


def numbers_options(command: Command) -> Command:
    """Add `-o` and `--json`: the numbers as a file beside the tables, or instead of them."""
    return output_option("Also write the numbers here (JSON).")(json_option(command))

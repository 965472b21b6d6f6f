"""What the verbs of `hocket bench` have in common: where numbers go, which rows are wanted, how far the cores are apart."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

from hocket import _native
from hocket.cli.shared.options import json_option, output_option

Command = TypeVar("Command", bound=Callable[..., Any])


def numbers_options(command: Command) -> Command:
    """`-o` and `--json`: the numbers as a file beside the tables, or instead of them."""
    return output_option("Also write the numbers here (JSON).")(json_option(command))


def listed(
    asked: tuple[str, ...],
    known: Collection[str],
) -> bool:
    """Whether a list was asked for, which is shown. BadParameter when one is asked for that is not known."""
    if "list" in asked:
        click.echo("\n".join(known))
        return True
    unknown = next((each for each in asked if each not in known), None)
    if unknown is not None:
        raise click.BadParameter(f"there is no row `{unknown}`\nhint: `--row list` lists them")
    return False


def cache_line_ns() -> float | None:
    """How far the cores are from each other just now, told before any result; None with one core."""
    near = _native.cache_line_ns()
    if near is not None:
        click.echo(f"a cache line takes {near:.0f} ns from core to core", err=True)
    return near

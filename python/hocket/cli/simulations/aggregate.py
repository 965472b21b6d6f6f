"""Option `--aggregate` of verbs of `hocket simulate` and `hocket trace`: switches that sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hocket.cli.shared.values import One, count

if TYPE_CHECKING:
    from hocket.tools.simulation.aggregation import Switch

Command = TypeVar("Command", bound=Callable[..., Any])


def switch(text: str) -> Switch:
    """Return the switch of `512:1024`, or of `512:1024:0.01`, which loses a hundredth of the pieces. ValueError for others."""
    from hocket.tools.simulation.aggregation import Switch  # noqa: PLC0415  # loads only where the option is given

    slots, slot_bytes, *loss = text.split(":")
    if len(loss) > 1:
        raise ValueError
    return Switch(slots=count(slots), slot_bytes=count(slot_bytes), loss=float(loss[0]) if loss else 0.0)


def aggregate_option(text: str) -> Callable[[Command], Command]:
    """Return `--aggregate`."""
    return click.option(
        "--aggregate",
        type=One("switch", "SLOTS:BYTES such as 512:1024", switch),
        metavar="SLOTS:BYTES",
        help=text,
    )

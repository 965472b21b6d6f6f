"""Common options of the verbs of `hocket simulate`: the network's rates, and what disturbs a run."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from hocket.cli.shared.options import seed_option
from hocket.cli.shared.values import RATES, One, Real
from hocket.errors import UsageError
from hocket.tools.simulation.conditions import Conditions, LinkChange
from hocket.tools.simulation.fidelity import Fidelity

Command = TypeVar("Command", bound=Callable[..., Any])


def straggler(text: str) -> tuple[int, float]:
    """Return the rank and the number of `3:2.5`. ValueError for anything else."""
    rank, _, factor = text.partition(":")
    found = int(rank), float(factor)
    if not (found[0] >= 0 and 0 < found[1] < math.inf):
        raise ValueError
    return found


def failure(text: str) -> LinkChange:
    """Return the failing link of `node0 out@0.05`. ValueError for anything else."""
    link, _, at_s = text.rpartition("@")
    if not 0 <= float(at_s) < math.inf:
        raise ValueError
    return LinkChange(link=link, at_s=float(at_s))


STRAGGLER = One("straggler", "RANK:FACTOR such as 3:2.5", straggler)
LATE = One("late rank", "RANK:SECONDS such as 3:0.2", straggler)
FAILURE = One("failure", "LINK@SECONDS such as `node0 out@0.05`", failure)

bandwidths_option = click.option(
    "--bandwidth",
    "bandwidths",
    type=RATES,
    default=(None,),
    metavar="RATE,...",
    help="Rates of every host's link, such as 100Mbit,10Gbit.  [default: the cluster's]",
)


def conditions_options(command: Command) -> Command:
    """Add options of what disturbs a run, which the command gets as `conditions`, and `--shaped`."""

    @functools.wraps(command)
    def with_conditions(
        *,
        seed: int,
        jitter: float,
        slow: tuple[tuple[int, float], ...],
        late: tuple[tuple[int, float], ...],
        changes: tuple[LinkChange, ...],
        **options: Any,
    ) -> None:
        found = Conditions(seed=seed, jitter=jitter, slow=slow, late=late, changes=changes)
        command(conditions=found, **options)

    jittered = click.option(
        "--jitter",
        type=Real(0, 100),
        metavar="SHARE",
        default=0.0,
        show_default=True,
        help="Latencies and engine times are longer by up to this share.",
    )
    slowed = click.option(
        "--slow", multiple=True, type=STRAGGLER, metavar="RANK:FACTOR", help="A straggler; repeatable."
    )
    belated = click.option(
        "--late",
        multiple=True,
        type=LATE,
        metavar="RANK:SECONDS",
        help="A rank that begins each step so late; repeatable.",
    )
    failing = click.option(
        "--fail",
        "changes",
        multiple=True,
        type=FAILURE,
        metavar="LINK@SECONDS",
        help="A link that fails; repeatable.",
    )
    shaped = click.option(
        "--shaped",
        is_flag=True,
        help="Links as `hocket testbed` emulates them, with the bursts of its token buckets.",
    )
    return cast(Command, seed_option(jittered(slowed(belated(failing(shaped(with_conditions)))))))


def check_ideal(fidelity: Fidelity, conditions: Conditions, *others: object) -> None:
    """Raise UsageError when a fidelity other than flow gets what only the flow engine has; `others`: what is given of that."""
    undisturbed = Conditions(seed=conditions.seed) == conditions
    if fidelity != "flow" and not (undisturbed and not any(others)):
        knows = "the closed form knows" if fidelity == "closed-form" else "SimGrid is given"
        raise UsageError(f"{knows} one ideal step: leave out the other options, or use --fidelity flow")

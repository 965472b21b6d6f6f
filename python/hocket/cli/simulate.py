"""`hocket simulate`: a step of a plan, a trace again, or a comparison of strategies, in virtual time on any network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.shared.options import (
    cluster_option,
    dir_option,
    fidelity_option,
    json_option,
    made,
    profile_option,
    ray_option,
    seed_option,
    svg_option,
    worlds_option,
)
from hocket.cli.shared.refuse import refuse
from hocket.cli.shared.values import NAMES, RATES, Real
from hocket.errors import UsageError

if TYPE_CHECKING:
    from hocket.tools.simulation.conditions import Conditions
    from hocket.tools.simulation.fidelity import Fidelity

STRATEGIES = ("ring", "two-level", "two-level-f16")


def _slow(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[int, float], ...]:
    slow = []
    for text in texts:
        rank, _, factor = text.partition(":")
        try:
            slow.append((int(rank), float(factor)))
            if not (slow[-1][0] >= 0 and 0 < slow[-1][1] < math.inf):
                raise ValueError
        except ValueError:
            raise click.BadParameter(f"`{text}` is not RANK:FACTOR such as 3:2.5") from None
    return tuple(slow)


def _failures(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, float], ...]:
    failures = []
    for text in texts:
        link, _, at_s = text.rpartition("@")
        try:
            failures.append((link, float(at_s)))
            if not 0 <= failures[-1][1] < math.inf:
                raise ValueError
        except ValueError:
            raise click.BadParameter(f"`{text}` is not LINK@SECONDS such as `node0 out@0.05`") from None
    return tuple(failures)


def _switch(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    slots, _, slot_bytes = text.partition(":")
    try:
        found = int(slots), int(slot_bytes)
        if not all(0 < each < 1 << 31 for each in found):
            raise ValueError
    except ValueError:
        raise click.BadParameter(f"`{text}` is not SLOTS:BYTES such as 512:1024") from None
    return found


@click.command("simulate")
@click.argument("paths", metavar="[PLAN|TRACE...]", type=click.Path(path_type=Path), nargs=-1)
@cluster_option(required=True)
@profile_option()
@worlds_option("Ranks; of a trace of parameter servers, workers.  [default: all slots, or as recorded]")
@click.option(
    "--bandwidth",
    "bandwidths",
    type=RATES,
    metavar="RATE,...",
    help="Rates of every host's link, such as 100Mbit,10Gbit.  [default: the cluster's]",
)
@click.option(
    "--strategy",
    "strategies",
    type=NAMES,
    metavar="NAME,...",
    help=f"Without PLAN and TRACE: what to compare.  [default: {','.join(STRATEGIES)}]",
)
@fidelity_option
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="Training steps."
)
@seed_option
@click.option(
    "--jitter",
    type=Real(0, 100),
    metavar="SHARE",
    default=0.0,
    show_default=True,
    help="Latencies and engine times are longer by up to this share.",
)
@click.option("--slow", multiple=True, callback=_slow, metavar="RANK:FACTOR", help="A straggler; repeatable.")
@click.option(
    "--fail",
    "failures",
    multiple=True,
    callback=_failures,
    metavar="LINK@SECONDS",
    help="A link that fails; repeatable.",
)
@click.option(
    "--shaped",
    is_flag=True,
    help="Links as `hocket testbed` emulates them, with the bursts of its token buckets.",
)
@click.option(
    "--aggregate",
    callback=_switch,
    metavar="SLOTS:BYTES",
    help="The switch sums all buckets, in so many slots of so many bytes.",
)
@click.option(
    "--computation",
    type=Real(0),
    metavar="FACTOR",
    default=1.0,
    show_default=True,
    help="Of a trace: what lies between its messages takes so many times as long.",
)
@dir_option("--trace", "trace_path", text="Write a trace directory for `hocket report`.", callback=made)
@svg_option
@ray_option
@json_option
def command(
    *,
    paths: tuple[Path, ...],
    cluster_path: Path,
    profile_path: Path | None,
    worlds: tuple[int, ...] | None,
    bandwidths: tuple[float, ...] | None,
    strategies: tuple[str, ...] | None,
    fidelity: Fidelity,
    steps: int,
    seed: int,
    jitter: float,
    slow: tuple[tuple[int, float], ...],
    failures: tuple[tuple[str, float], ...],
    shaped: bool,
    aggregate: tuple[int, int] | None,
    computation: float,
    trace_path: Path | None,
    svg_path: Path | None,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Predict step times on a cluster: of PLAN, bucket by bucket; of a TRACE sent again; or of several strategies.

    Several values of -n, --bandwidth or --strategy give a row for each combination, in parallel processes or on a Ray
    cluster. -n repeats the cluster's hosts in its racks, one rank each; trunks stay as they are.

    A TRACE is a trace directory, or the files of a DLC trace, one per node: its messages, what they wait for and the
    gaps between. With -n it has that many ranks: a plan's programs are compiled for them, and parameter servers get
    copies of the recorded workers.

    A job that cannot end is an error that names the stuck ranks, the chain of waits and the first op that never ended.

    \b
    Example: hocket simulate plan.json --cluster cluster.toml --profile profile.json --trace simulated
    Example: hocket simulate --cluster cluster.toml --profile profile.json -n 4,16 --bandwidth 100Mbit,1Gbit --svg steps.svg
    Example: hocket simulate worker0.txt worker1.txt server0.txt --cluster cluster.toml -n 8
    """
    from hocket.tools.simulation.conditions import Conditions, LinkChange  # noqa: PLC0415  # loads what only this verb needs

    cluster = files.read(cluster_path, Cluster)
    changes = tuple(LinkChange(link=link, at_s=at_s) for link, at_s in failures)
    conditions = Conditions(seed=seed, jitter=jitter, slow=slow, changes=changes)
    given = {
        "-n": worlds, "--strategy": strategies, "--profile": profile_path, "--trace": trace_path, "--svg": svg_path,
        "--aggregate": aggregate, "--fidelity": fidelity != "flow" or None, "--steps": steps if steps > 1 else None,
        "--computation": computation if computation != 1 else None, "--ray": ray_address,
    }  # fmt: skip
    if paths and (len(paths) > 1 or paths[0].suffix != ".json"):
        refuse(
            given,
            ("--strategy", "--profile", "--trace", "--svg", "--aggregate", "--fidelity", "--steps", "--ray"),
            "a trace has its own steps and gaps",
        )
        from hocket.cli.simulations import of_trace  # noqa: PLC0415  # as above

        of_trace.run(
            paths,
            cluster,
            worlds or (None,),
            bandwidths or (None,),
            conditions=conditions,
            computation=computation,
            shaped=shaped,
            as_json=as_json,
        )
        return
    refuse(given, ("--computation",), "only a trace has its computation; a plan's is in its profile")
    if paths:
        refuse(
            given,
            ("-n", "--strategy"),
            "a plan is for its own ranks\nhint: `hocket plan` makes one for others",
        )
    _ideal(fidelity, conditions, shaped=shaped, given=given)
    if paths and len(bandwidths or ()) < 2:
        refuse(
            given,
            ("--svg", "--ray"),
            "one plan on one network is one simulation; give several of --bandwidth",
        )
        from hocket.cli.simulations import of_plan  # noqa: PLC0415  # as above

        of_plan.run(
            paths[0],
            cluster,
            profile_path,
            conditions,
            bandwidth_bit_per_s=bandwidths[0] if bandwidths else None,
            fidelity=fidelity,
            steps=steps,
            shaped=shaped,
            aggregate=aggregate,
            trace_path=trace_path,
            as_json=as_json,
        )
        return
    refuse(given, ("--trace", "--aggregate", "--steps"), "they are of one plan on one network")
    from hocket.cli.simulations import of_lists  # noqa: PLC0415  # as above

    of_lists.run(
        paths[0] if paths else None,
        cluster,
        profile_path,
        conditions,
        worlds=worlds,
        bandwidths=bandwidths or (None,),
        strategies=strategies or STRATEGIES,
        fidelity=fidelity,
        shaped=shaped,
        svg_path=svg_path,
        ray_address=ray_address,
        as_json=as_json,
    )


def _ideal(fidelity: Fidelity, conditions: Conditions, *, shaped: bool, given: Mapping[str, object]) -> None:
    """Raise UsageError when a fidelity other than flow gets conditions that only the flow engine has."""
    from hocket.tools.simulation.conditions import IDEAL  # noqa: PLC0415  # loads what only this verb needs

    disturbed = msgspec.structs.replace(conditions, seed=0) != IDEAL or shaped
    if fidelity != "flow" and (
        disturbed or any(given[name] for name in ("--steps", "--trace", "--aggregate"))
    ):
        knows = "the closed form knows" if fidelity == "closed-form" else "SimGrid is given"
        raise UsageError(f"{knows} one ideal step: leave out the other options, or use --fidelity flow")

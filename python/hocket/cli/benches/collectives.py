"""`hocket bench all_reduce` and its like: Hocket and other libraries in turns, results checked."""

from __future__ import annotations

from pathlib import Path

import click

from hocket.artefacts import files
from hocket.artefacts.algorithms import MEASURED
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Tuning
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import (
    algorithm_option,
    cluster_option,
    file_option,
    rounds_option,
    svg_option,
    tuning_option,
    world_option,
)
from hocket.cli.shared.output import publish, save
from hocket.cli.shared.values import NAMES, SIZE, SIZES, Real
from hocket.errors import Error

DEFAULT_SIZES_BYTES = (4_000, 64_000, 1_000_000, 25_000_000)
DEFAULT_FACTOR = 4.0


def _collective(what: str, doc: str) -> click.Command:
    """Make one verb; all have the same options."""

    @click.command(what, help=doc)
    @world_option("Ranks on this machine.", least=2, default=4)
    @click.option(
        "--sizes",
        type=SIZES,
        metavar="SIZE,...",
        help="Bytes of a rank's buffer.  [default: 4KB,64KB,1MB,25MB]",
    )
    @click.option("--smallest", "first", type=SIZE, metavar="SIZE", help="Instead of --sizes: from this one,")
    @click.option("--largest", "last", type=SIZE, metavar="SIZE", help="to this one,")
    @click.option(
        "--factor",
        type=Real(1, min_open=True),
        metavar="FACTOR",
        help="from one to the next.  [default: 4]",
    )
    @click.option(
        "--dtype",
        type=click.Choice(["f32", "f64", "i32", "i64"]),
        default="f32",
        show_default=True,
        help="Elements.",
    )
    @rounds_option(20)
    @click.option(
        "--ours",
        type=NAMES,
        metavar="NAME,...",
        default="engine",
        show_default=True,
        help="Hocket's own: engine, tls (the same, encrypted between hosts), native, torch.",
    )
    @click.option(
        "--against",
        type=NAMES,
        metavar="NAME,...",
        help="Other libraries in the same run: gloo, mpi, nccl.",
    )
    @algorithm_option(("auto", *MEASURED), "auto", "The engine's; auto: by the tuning.")
    @tuning_option()
    @click.option(
        "--chunk-bytes",
        type=click.IntRange(64),
        metavar="N",
        help="The engine's pipelining unit; a plan's by default.",
    )
    @file_option(
        "--mpirun",
        text="That of the MPI to compare with, Open MPI's or MPICH's.  [default: beside this Python, or in the PATH]",
    )
    @click.option(
        "--tcp", is_flag=True, help="Loopback TCP between the ranks, no shared memory, for all contenders."
    )
    @cluster_option("Cluster file (TOML) to emulate, a rank on each slot, instead of -n; needs root.")
    @svg_option
    @numbers_options
    def verb(
        *,
        world: int,
        sizes: tuple[int, ...] | None,
        first: int | None,
        last: int | None,
        factor: float | None,
        dtype: str,
        rounds: int,
        ours: tuple[str, ...],
        against: tuple[str, ...] | None,
        algorithm: str,
        tuning_path: Path | None,
        chunk_bytes: int | None,
        mpirun: Path | None,
        tcp: bool,
        cluster_path: Path | None,
        svg_path: Path | None,
        output: Path | None,
        as_json: bool,
    ) -> None:
        from hocket.tools.bench.collectives import plot as drawing  # noqa: PLC0415  # loads what only this verb needs
        from hocket.tools.bench.collectives import table  # noqa: PLC0415  # as above
        from hocket.tools.bench.collectives.request import Request  # noqa: PLC0415  # as above
        from hocket.tools.bench.collectives.run import measure  # noqa: PLC0415  # as above

        if tcp and cluster_path is not None:
            raise click.UsageError("--tcp is for ranks of this machine; hosts of a --cluster use TCP anyway")
        request = Request(
            what=what,
            contenders=ours + (against or ()),
            sizes_bytes=_chosen(sizes or (), first, last, factor),
            dtype=dtype,
            rounds=rounds,
            algorithm=algorithm,
            chunk_bytes=chunk_bytes,
            tcp=tcp,
            cluster=None if cluster_path is None else files.read(cluster_path, Cluster),
            tuning=None if tuning_path is None else files.read(tuning_path, Tuning),
            mpirun=None if mpirun is None else str(mpirun.absolute()),
        )
        result = measure(request, world=world)
        publish((table.head(result), table.table(result)), result, as_json=as_json, output=output)
        if svg_path is not None:
            save(svg_path, drawing.svg(result))
        if result.wrong:
            raise Error(f"{result.wrong:,} elements are wrong\nhint: the column `wrong` says whose")

    return verb


def _chosen(
    sizes: tuple[int, ...], first: int | None, last: int | None, factor: float | None
) -> tuple[int, ...]:
    """Return the sizes of --sizes, or from --smallest to --largest."""
    if not (first or last or factor):
        return tuple(dict.fromkeys(sizes)) or DEFAULT_SIZES_BYTES
    if sizes or first is None or last is None:
        raise click.UsageError("sizes are given by --sizes, or by --smallest, --largest and perhaps --factor")
    if first > last:
        raise click.UsageError(f"--smallest {first:,} bytes is more than --largest {last:,} bytes")
    series, size = [], float(first)
    while size < last:
        series.append(int(size))
        size *= factor or DEFAULT_FACTOR
    return (*series, last)


COMMANDS = [
    _collective(
        what,
        f"""{first_line}: Hocket and other libraries in turns, results checked.

        Time is the slowest rank's per call, median over rounds. Bandwidths are those of nccl-tests: size over time, and what a link
        carries of it. Small ones are called up to 100 times in a row. `wrong` counts elements that are not as they must be.

        Example: hocket bench {what} -n 4 --sizes 4KB,25MB --against gloo,mpi
        """,
    )
    for what, first_line in {
        "all_reduce": "Everyone's sum on all ranks",
        "reduce_scatter": "Everyone's sum, a part on each rank",
        "all_gather": "Everyone's part on all ranks",
        "broadcast": "Rank 0's buffer on all ranks",
        "reduce": "Everyone's sum on rank 0",
        "all_to_all": "A part of everyone's buffer on each rank",
    }.items()
]

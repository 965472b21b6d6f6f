"""`hocket bench all_reduce` and its like: Hocket and other libraries in turns, results checked."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Tuning
from hocket.cli.benches.options import json_option, place
from hocket.cli.shared.inputs import sizes_given, tuning_option
from hocket.cli.shared.output import console
from hocket.errors import Error
from hocket.tracing.algorithms import NAMES

DEFAULT_SIZES_BYTES = (4_000, 64_000, 1_000_000, 25_000_000)
DEFAULT_FACTOR = 4.0


def _names(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _collective(what: str, doc: str) -> click.Command:
    """One verb; all have the same options."""

    @click.command(what, help=doc)
    @click.option(
        "-n", "--world", type=click.IntRange(2), default=4, show_default=True, help="Ranks on this machine."
    )
    @click.option(
        "--sizes", callback=sizes_given, help="Bytes of a rank's buffer.  [default: 4KB,64KB,1MB,25MB]"
    )
    @click.option("--from", "first", callback=sizes_given, help="Instead of --sizes: the smallest,")
    @click.option("--to", "last", callback=sizes_given, help="the largest,")
    @click.option(
        "--factor", type=click.FloatRange(1, min_open=True), help="from one to the next.  [default: 4]"
    )
    @click.option(
        "--dtype",
        type=click.Choice(["f32", "f64", "i32", "i64"]),
        default="f32",
        show_default=True,
        help="Elements.",
    )
    @click.option(
        "--rounds", type=click.IntRange(1), default=20, show_default=True, help="Turns of each contender."
    )
    @click.option(
        "--ours",
        default="engine",
        show_default=True,
        callback=_names,
        help="Hocket's own: engine, tls (the same, encrypted between hosts), native, torch.",
    )
    @click.option(
        "--against", default="", callback=_names, help="Other libraries in the same run: gloo, mpi, nccl."
    )
    @click.option(
        "--algorithm",
        type=click.Choice(["auto", *NAMES]),
        default="auto",
        show_default=True,
        help="The engine's; auto: by the tuning.",
    )
    @tuning_option
    @click.option(
        "--chunk-bytes",
        type=click.IntRange(64),
        help="The engine's pipelining unit; a plan's by default.",
    )
    @click.option(
        "--mpirun",
        type=click.Path(path_type=Path, dir_okay=False),
        help="That of the MPI to compare with, Open MPI's or MPICH's; default: beside this Python, or in the PATH.",
    )
    @click.option(
        "--tcp", is_flag=True, help="Loopback TCP between the ranks, no shared memory, for all contenders."
    )
    @click.option(
        "--cluster",
        "cluster_path",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A rank on each slot of this cluster, emulated by network namespaces, instead of --world; needs root.",
    )
    @click.option(
        "--plot",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=place,
        help="Also draw time and bandwidth here, as SVG.",
    )
    @json_option
    def verb(
        *,
        world: int,
        sizes: tuple[int, ...],
        first: tuple[int, ...],
        last: tuple[int, ...],
        factor: float | None,
        dtype: str,
        rounds: int,
        ours: tuple[str, ...],
        against: tuple[str, ...],
        algorithm: str,
        tuning_path: Path | None,
        chunk_bytes: int | None,
        mpirun: Path | None,
        tcp: bool,
        cluster_path: Path | None,
        plot: Path | None,
        out: Path | None,
    ) -> None:
        from hocket.bench.collectives import plot as drawing  # noqa: PLC0415  # loads what only this verb needs
        from hocket.bench.collectives import table  # noqa: PLC0415  # as above
        from hocket.bench.collectives.request import Request  # noqa: PLC0415  # as above
        from hocket.bench.collectives.run import measure  # noqa: PLC0415  # as above

        if tcp and cluster_path is not None:
            raise click.UsageError("--tcp is for ranks of this machine; hosts of a --cluster use TCP anyway")
        request = Request(
            what=what,
            contenders=ours + against,
            sizes_bytes=_chosen(sizes, first, last, factor),
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
        click.echo(table.head(result))
        console().print(table.table(result))
        if out is not None:
            out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        if plot is not None:
            plot.write_text(drawing.svg(result))
        if result.wrong:
            raise Error(f"{result.wrong:,} elements are wrong\nhint: the column `wrong` says whose")

    return verb


def _chosen(
    sizes: tuple[int, ...], first: tuple[int, ...], last: tuple[int, ...], factor: float | None
) -> tuple[int, ...]:
    """Those of --sizes, or from --from to --to."""
    if not (first or last or factor):
        return tuple(dict.fromkeys(sizes)) or DEFAULT_SIZES_BYTES
    if sizes or len(first) != 1 or len(last) != 1:
        raise click.UsageError("sizes are given by --sizes, or by --from, --to and perhaps --factor")
    if first[0] > last[0]:
        raise click.UsageError(f"--from {first[0]:,} bytes is more than --to {last[0]:,} bytes")
    series, size = [], float(first[0])
    while size < last[0]:
        series.append(int(size))
        size *= factor or DEFAULT_FACTOR
    return (*series, last[0])


COMMANDS = [
    _collective(
        what,
        f"""{first_line}: Hocket and other libraries in turns, results checked.

        Time is the slowest rank's per call, median over rounds. Bandwidths are those of nccl-tests: size over time, and what a link
        carries of it. Small ones are called up to 100 times in a row. `wrong` counts elements that are not as they must be.

        Example: hocket bench {what} --world 4 --sizes 4KB,25MB --against gloo,mpi
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

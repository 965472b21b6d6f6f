"""`hocket verify`: prove the programs of a policy, a plan or another system's file, and show them after any pass."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from hocket.cli.shared.options import (
    cluster_option,
    json_option,
    profile_option,
    svg_option,
    tuning_option,
    world_option,
)
from hocket.cli.shared.output import json_text, publish, save
from hocket.cli.shared.refuse import refuse
from hocket.cli.shared.subjects import CHAKRA, MSCCL, Subject, of_foreign, of_plan, of_policy, topology_of
from hocket.cli.shared.values import RATE
from hocket.errors import UsageError
from hocket.policy.topology import Topology
from hocket.tools.formats.svg import svg

WORLD, CHUNK_ELEMENTS = 8, 1024


@click.command("verify")
@click.argument("subject", metavar="POLICY|PLAN|FILE")
@world_option(f"Number of a policy's ranks.  [default: {WORLD}]")
@click.option("--racks", type=click.IntRange(1), metavar="N", help="Racks, in blocks of ranks.  [default: 1]")
@click.option(
    "--hosts-per-rack", type=click.IntRange(1), metavar="N", help="Hosts of a rack.  [default: one per rank]"
)
@click.option(
    "--trunk",
    type=RATE,
    metavar="RATE",
    help="Rate between racks, such as 1Gbit.  [default: as within, 10Gbit]",
)
@cluster_option("Cluster file (TOML) instead of these four: a policy's ranks fill its slots in order.")
@tuning_option()
@profile_option("Profile file (JSON) with a policy's gradients.  [default: some of all sizes]")
@click.option(
    "--chunk-elements",
    type=click.IntRange(1),
    metavar="N",
    help=f"Elements (f32) of a chunk of MSCCL's.  [default: {CHUNK_ELEMENTS}]",
)
@click.option(
    "--after",
    "stage",
    metavar="STAGE",
    help="Print a bucket's program after this stage; `list` lists the stages.",
)
@click.option("--bucket", type=click.IntRange(0), metavar="N", help="Bucket to print or draw.  [default: 0]")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Print or draw this rank's part only.")
@svg_option
@json_option
def command(
    *,
    subject: str,
    world: int | None,
    racks: int | None,
    hosts_per_rack: int | None,
    trunk: float | None,
    cluster_path: Path | None,
    tuning_path: Path | None,
    profile_path: Path | None,
    chunk_elements: int | None,
    stage: str | None,
    bucket: int | None,
    rank: int | None,
    svg_path: Path | None,
    as_json: bool,
) -> None:
    """Prove programs: every send meets its receive, nothing deadlocks or races, every bucket ends as promised.

    POLICY is a ready-made policy's name or FILE.py[:CLASS], PLAN a file of `hocket plan`. FILE is another system's
    program: MSCCL's FILE.xml, or one rank's FILE.et of a custom collective of Chakra's.

    \b
    Example: hocket verify policy.py -n 16 --racks 4
    Example: hocket verify plan.json --bucket 0 --rank 1 --after lower
    """
    began_s = time.perf_counter()
    found = _subject(
        subject,
        {"-n": world, "--racks": racks, "--hosts-per-rack": hosts_per_rack, "--trunk": trunk},
        cluster=cluster_path,
        tuning=tuning_path,
        profile=profile_path,
        chunk_elements=chunk_elements,
    )
    if stage is None and svg_path is None:
        refuse(
            {"--bucket": bucket, "--rank": rank},
            ("--bucket", "--rank"),
            "all is proven\nhint: they choose what --after prints and --svg draws",
        )
    at = bucket or 0
    if at >= len(found.buckets):
        raise UsageError(f"{found.title} has {len(found.buckets)} buckets: there is no bucket {at}")
    if rank is not None and rank >= found.world:
        raise UsageError(f"{found.title} is for {found.world} ranks: there is no rank {rank}")
    if stage is None:
        _prove(found, began_s, as_json=as_json)
    else:
        _print_stage(found, at, stage, rank, as_json=as_json)
    if svg_path is not None:
        stages = found.stages(at)
        drawn = stages[stage] if stage is not None and stage in stages else list(stages.values())[-1]
        save(svg_path, svg(drawn, ranks=None if rank is None else [rank]))


def _subject(
    name: str,
    even: Mapping[str, Any],
    *,
    cluster: Path | None,
    tuning: Path | None,
    profile: Path | None,
    chunk_elements: int | None,
) -> Subject:
    """Return the subject that `name` stands for, by its suffix; `even`: the options of a network without a cluster file."""
    given = {**even, "--cluster": cluster, "--tuning": tuning, "--profile": profile}
    path = Path(name)
    if path.suffix in (MSCCL, CHAKRA):
        refuse(given, list(given), "another system's program has its own ranks and data")
        return of_foreign(path, chunk_elements or CHUNK_ELEMENTS)
    chunks = {"--chunk-elements": chunk_elements}
    refuse(chunks, list(chunks), "only MSCCL's programs have such chunks")
    if path.suffix == ".json":
        own = {**even, "--profile": profile}
        refuse(own, list(own), "a plan has its own ranks and gradients")
        return of_plan(path, cluster, tuning)
    if cluster is not None:
        refuse(even, list(even), "--cluster has its own hosts")
        topology = topology_of(cluster)
    else:
        topology = Topology.even(
            world=even["-n"] or WORLD,
            racks=even["--racks"] or 1,
            hosts_per_rack=even["--hosts-per-rack"],
            trunk_bit_per_s=even["--trunk"],
        )
    return of_policy(name, topology, tuning=tuning, profile=profile)


def _prove(found: Subject, began_s: float, *, as_json: bool) -> None:
    table = Table("bucket", "gradients", "elements", "priority", "ops of rank 0")
    rows = []
    for at, each in enumerate(found.buckets):
        ops = len(found.prove(at).ops(0))
        rows.append(
            {
                "bucket": at,
                "gradients": each.gradients,
                "elements": each.elements,
                "priority": each.priority,
                "ops": ops,
            }
        )
        table.add_row(str(at), *(f"{each:,}" for each in list(rows[-1].values())[1:]))
    took_s = time.perf_counter() - began_s
    result = {
        "subject": found.title,
        "world": found.world,
        "contract": found.contract or None,
        "seconds": took_s,
        "buckets": rows,
    }
    contract = f", contract `{found.contract}`" if found.contract else ""
    sentence = f"{found.title}: proven for {found.world} ranks in {took_s:.2f} s{contract}"
    publish((table, sentence), result, as_json=as_json)


def _print_stage(found: Subject, at: int, stage: str, rank: int | None, *, as_json: bool) -> None:
    """Print the program's text or ops, also of one that is refused; its error is raised afterwards."""
    stages = found.stages(at)
    if stage == "list":
        publish(("\n".join(stages),), list(stages), as_json=as_json)
        return
    if stage not in stages:
        raise UsageError(
            f"{found.title} for {found.world} ranks has no stage `{stage}`\nhint: {', '.join(stages)}"
        )
    program = stages[stage]
    if as_json:
        wanted = range(program.world) if rank is None else [rank]
        click.echo(json_text({each: program.ops(each) for each in wanted}), nl=False)
    else:
        text = str(program)
        if rank is not None:
            head, *parts = text.split("\nrank ")
            text = f"{head}\nrank {parts[rank]}"
        click.echo(text)
    found.prove(at)

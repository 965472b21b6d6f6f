"""`hocket verify`: trace a policy for all ranks of a cluster that need not exist, and prove its programs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Profile
from hocket.artefacts.tuning import Tuning
from hocket.cli.shared.output import console
from hocket.errors import UsageError
from hocket.policies.load import load
from hocket.tracing.policy import Policy
from hocket.tracing.topology import Topology
from hocket.tracing.trace import Scene, Tensor, bucket_program, layout, stages

PATH = click.Path(path_type=Path)


@click.command("verify")
@click.argument("policy")
@click.option("-w", "--world", type=click.IntRange(1), default=8, show_default=True, help="Number of ranks.")
@click.option(
    "--racks", type=click.IntRange(1), default=1, show_default=True, help="Racks, in blocks of ranks."
)
@click.option("--hosts", type=click.IntRange(1), help="Hosts per rack; default: one per rank.")
@click.option("--trunk-mbit", type=float, help="Rate between racks, Mbit/s; default: as within (10 Gbit/s).")
@click.option("--cluster", type=PATH, help="Cluster file instead; ranks fill its slots in order.")
@click.option(
    "--tuning", type=PATH, help="Tuning file that `auto` goes by; default: the one that comes with Hocket."
)
@click.option("--profile", type=PATH, help="Model: a profile's gradients; default: some of all sizes.")
@click.option("--show", type=PATH, help="Write an SVG of the first bucket's dataflow graph.")
@click.option(
    "--print", "stage", help="Print the first bucket's program after a stage: trace, lower, fuse or chunk."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    *,
    policy: str,
    world: int,
    racks: int,
    hosts: int | None,
    trunk_mbit: float | None,
    cluster: Path | None,
    tuning: Path | None,
    profile: Path | None,
    show: Path | None,
    stage: str | None,
    as_json: bool,
) -> None:
    """Verify POLICY (a ready-made one's name, or FILE.py[:CLASS]) with no cluster.

    Every send meets its receive, nothing deadlocks or races, and every bucket ends as the policy's contract says, on all ranks.

    Example: hocket verify policy.py --world 16 --racks 4
    """
    made = load(policy)
    scene = Scene.of(
        made,
        _topology(cluster, world, racks, hosts, trunk_mbit),
        tuning=None if tuning is None else files.read(tuning, Tuning),
    )
    began_s = time.perf_counter()
    buckets = layout(made, _tensors(profile), scene).buckets
    if not buckets:
        raise UsageError(f"{type(made).__name__} enqueues no gradient: there is nothing to verify")
    table = Table("bucket", "gradients", "elements", "priority", "ops of rank 0")
    rows = []
    for at, fused in enumerate(buckets):
        program = bucket_program(made, fused, scene, name=f"bucket.{at}").program
        row = (at, len(fused.tensors), fused.elements, fused.priority, len(program.ops(0)))
        rows.append(dict(zip(("bucket", "gradients", "elements", "priority", "ops"), row, strict=True)))
        table.add_row(*(f"{each:,}" for each in row))
    took_s = time.perf_counter() - began_s
    if stage is not None:
        _print_stage(made, stage, scene, stages(made, buckets[0], scene))
        return
    if show is not None:
        bucket_program(made, buckets[0], scene).program.show(show)
    if as_json:
        click.echo(
            json.dumps({"policy": policy, "world": scene.topology.world, "seconds": took_s, "buckets": rows})
        )
        return
    console().print(table)
    click.echo(
        f"{type(made).__name__}: proven for {scene.topology.world} ranks in {took_s:.2f} s, contract `{made.contract}`"
    )


def _print_stage(made: Policy, stage: str, scene: Scene, passes: Mapping[str, object]) -> None:
    if stage not in passes:
        raise UsageError(
            f"{type(made).__name__} for {scene.topology.world} ranks has no stage `{stage}`\nhint: {', '.join(passes)}"
        )
    click.echo(str(passes[stage]))


def _topology(
    cluster: Path | None, world: int, racks: int, hosts: int | None, trunk_mbit: float | None
) -> Topology:
    if cluster is not None:
        read = files.read(cluster, Cluster)
        slots = [host.name for host in read.hosts for _ in range(host.slots)]
        return Topology.of(slots, read)
    return Topology.even(
        world=world,
        racks=racks,
        hosts_per_rack=hosts,
        trunk_bit_per_s=None if trunk_mbit is None else trunk_mbit * 1e6,
    )


def _tensors(profile: Path | None) -> list[Tensor]:
    if profile is None:
        shapes = [(1000, 300), (300,), (300, 300), (300,), (7, 3, 3), (1,), (2_000_000,), (10,)]
        named = [(f"g{at}", shape, "f32") for at, shape in enumerate(shapes)]
    else:
        named = [(each.name, each.shape, each.dtype) for each in files.read(profile, Profile).gradients]
    last = len(named) - 1
    return [Tensor(name, tuple(shape), dtype, last - at, at) for at, (name, shape, dtype) in enumerate(named)]

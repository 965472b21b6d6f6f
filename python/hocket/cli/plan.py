"""`hocket plan`: score the ways to exchange a model's gradients on a cluster, and write the best one."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.errors import ArtefactError
from hocket.planners import search

VERSION = 1
"""The newest version of cluster and profile files that is understood."""

Artefact = TypeVar("Artefact", Cluster, Profile)


@click.command("plan")
@click.option(
    "--cluster", "cluster_path", required=True, type=click.Path(path_type=Path), help="Cluster file (TOML)."
)
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path),
    help="Profile file (JSON); else a neutral one.",
)
@click.option("-n", "--world", type=int, help="Number of ranks; else the profile's, else all slots.")
@click.option(
    "--codec",
    type=click.Choice(["auto", "none", "f16"]),
    default="auto",
    show_default=True,
    help="f16 on the wire: where a link is slow, if that is faster; never; always.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the plan here (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON instead of a table.")
def command(
    *,
    cluster_path: Path,
    profile_path: Path | None,
    world: int | None,
    codec: search.CodecPolicy,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose how gradients travel: order, algorithm, codec and buckets, by predicted step time."""
    cluster = read(cluster_path, Cluster)
    profile = read(profile_path, Profile) if profile_path else None
    slots = sum(host.slots for host in cluster.hosts)
    chosen = search.plan(cluster, profile, world or (profile.world if profile else slots), codec=codec)
    text = msgspec.json.format(msgspec.json.encode(chosen), indent=2)
    if output:
        write(output, text)
    if as_json:
        sys.stdout.buffer.write(text + b"\n")
        return
    _print(chosen)
    if output:
        Console().print(f"Plan written to {output}", highlight=False)


def read(path: Path, kind: type[Artefact]) -> Artefact:
    """A cluster (TOML) or profile (JSON) from its file; ArtefactError says what is wrong with it."""
    what = kind.__name__.lower()
    try:
        data = path.read_bytes()
        tree = tomllib.loads(data.decode()) if kind is Cluster else msgspec.json.decode(data)
    except OSError as error:
        raise ArtefactError(f"{what} file {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        raise ArtefactError(f"{what} file {path} is damaged or truncated: {error}") from None
    version = tree.get("version", VERSION) if isinstance(tree, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise ArtefactError(
            f"{what} file {path} has version {version}: this Hocket reads up to {VERSION}\nhint: upgrade"
        )
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{what} file {path} is not a {what}: {error}") from None


def write(path: Path, data: bytes) -> None:
    """Write an artefact's file; ArtefactError says why not."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None


def _print(chosen: Plan) -> None:
    table = Table("candidate", "predicted step", "", title=f"{chosen.world} ranks, fastest first")
    for each in sorted(chosen.candidates, key=lambda each: each.predicted_step_s):
        mark = "chosen" if each.label == chosen.label else ""
        table.add_row(each.label, f"{each.predicted_step_s * 1e3:.1f} ms", mark)
    console = Console()
    console.print(table)
    console.print(chosen.reason, highlight=False, soft_wrap=True)

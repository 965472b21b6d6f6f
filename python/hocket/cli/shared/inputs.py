"""What several verbs take: where artefacts are, how hosts are reached, sizes in bytes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from hocket.launch.remote import SSH

UNITS = {"": 1, "B": 1, **{f"{k}{b}": 1000**n for n, k in enumerate("KMG", 1) for b in ("", "B")}}
UNITS |= {f"{k}IB": 1024**n for n, k in enumerate("KMG", 1)}
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Z]*)\s*", re.ASCII)


def _size(text: str) -> int:
    found = SIZE.fullmatch(text.upper())
    size_bytes = int(float(found[1]) * UNITS[found[2]]) if found and found[2] in UNITS else 0
    if size_bytes == 0:
        raise click.BadParameter(f"`{text}` is not a size such as 4KB, 1.5MiB or 25MB")
    return size_bytes


def sizes_given(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Bytes of `4KB,1.5MiB`; none when nothing is given."""
    return tuple(_size(each) for each in text.split(",")) if text is not None else ()


cluster_option = click.option(
    "--cluster", "cluster_path", required=True, type=click.Path(path_type=Path), help="Cluster file (TOML)."
)

ssh_option = click.option("--ssh", default=SSH, show_default=True, help="Command that reaches a host.")

python_option = click.option(
    "--python", "interpreter", default=sys.executable, help="Python of the hosts; default: this one."
)

store_option = click.option(
    "--store", help="ADDRESS[:PORT] of this machine that all hosts reach; default: found out."
)

profile_option = click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path),
    help="Profile file (JSON); else a neutral one.",
)

fidelity_option = click.option(
    "--fidelity",
    type=click.Choice(["flow", "closed-form", "simgrid"]),
    default="flow",
    show_default=True,
    help="Every message, a formula, or every message in SimGrid, which must be installed.",
)

tuning_option = click.option(
    "--tuning",
    "tuning_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Tuning file (JSON), of `hocket tune`.",
)

"""Options that several verbs take: where artefacts are."""

from __future__ import annotations

from pathlib import Path

import click

cluster_option = click.option(
    "--cluster", "cluster_path", required=True, type=click.Path(path_type=Path), help="Cluster file (TOML)."
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

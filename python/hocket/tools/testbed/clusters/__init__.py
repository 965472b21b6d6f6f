"""Cluster files that come with Hocket."""

from __future__ import annotations

from pathlib import Path

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.errors import UsageError

HERE = Path(__file__).parent


def example_cluster(name: str) -> Cluster:
    """Return the packaged cluster of that name; UsageError lists the available ones.

    >>> len(example_cluster("two-racks").hosts)
    4
    """
    path = HERE / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in HERE.glob("*.toml")))
        raise UsageError(f"there is no packaged cluster `{name}`\nhint: there are {known}")
    return files.read(path, Cluster)

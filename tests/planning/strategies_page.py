"""The builders of docs/strategies.md, as a reader copies them, and a cluster and a model with every kind of variable."""

from __future__ import annotations

import re
from pathlib import Path

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Gradient, Profile
from hocket.planning.search import neutral_profile
from tests.planning.planner_inputs import alternating

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
BUILDERS = {"mine.py": "Chunked", "kinds.py": "ByKind", "large.py": "Int8ForLarge"}
LOSSY = ("large.py",)


def copied(folder: Path) -> dict[str, Path]:
    """Write each builder of the page to its file."""
    found = {}
    for block in re.findall(r"```python\n(# (\w+\.py)\n.*?)```", PAGE.read_text(), re.DOTALL):
        found[block[1]] = folder / block[1]
        found[block[1]].write_text(block[0])
    return found


def cluster() -> Cluster:
    return alternating()


def gradients() -> list[tuple[str, tuple[int, ...], bool]]:
    """Name, shape, and whether a gradient is sparse."""
    return [
        ("words.weight", (3000, 16), True),
        ("0.weight", (300, 200), False),
        ("0.bias", (300,), False),
        ("2.weight", (40, 300), False),
        ("2.bias", (40,), False),
    ]


def variable(name: str, shape: tuple[int, ...], *, sparse: bool) -> Gradient:
    touched = 20 if sparse else None
    return Gradient(
        name=name, shape=shape, dtype="f32", ready_s=0.0, needed_s=0.0, sparse=sparse, touched=touched
    )


def profile(*, sparse: bool = True) -> Profile:
    return neutral_profile(
        variable(name, shape, sparse=is_sparse and sparse) for name, shape, is_sparse in gradients()
    )

"""`builders`: all builders' plans train DDP's model and send the predicted bytes, on four and on six ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.emulated import hosts
from benches.routes import rows
from benches.routes.network import SIZES, VggLike, gradients
from benches.row import Row
from benches.strategies.cases import GIGABIT, builders
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Gradient
from hocket.planning.compile import programs
from hocket.planning.search import considered, neutral_profile
from hocket.tools.testbed import Testbed

WORLDS = (4, 6)
STEPS = 20
SIZE = "small"


def measured() -> Iterator[Row]:
    """Differences from DDP's parameters, and bytes between ranks, for each builder."""
    for world in WORLDS:
        cluster = hosts([GIGABIT] * world)
        with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder, Testbed(cluster) as bed:
            out = Path(folder)
            rows.run(bed, "gloo", SIZE, STEPS, out)
            for name, plan in _plans(world).items():
                programs(plan)  # verifies them
                path = out / f"{name}.json"
                files.write(path, plan)
                rows.run(bed, str(path), SIZE, STEPS, out)
                where = f"{name}, {world} ranks"
                far = rows.far(out, name, world)
                yield Row(name=where, what="largest difference from DDP's parameters", value=far, target=1e-5)
                yield Row(
                    name=where,
                    what="ordered pairs of ranks that sent other bytes than predicted",
                    value=len(rows.differing(out, SIZE, STEPS, name, plan)),
                    target=0,
                )


def _plans(world: int) -> dict[str, Plan]:
    known = gradients(VggLike(SIZES[SIZE]))
    count = len(known)
    profile = neutral_profile(
        Gradient(
            name=each.name,
            shape=each.shape,
            dtype=each.dtype,
            sparse=each.sparse,
            ready_s=(count - at) / count / 100,
            needed_s=0.0,
        )
        for at, each in enumerate(known.values())
    )
    cluster = hosts([GIGABIT] * world)
    return builders(cluster, profile, considered(cluster, profile, world), hopeless=float("inf"))

"""The rows of `python -m benches routes`: one model on mixed routes, against DDP and against what is predicted of the bytes."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise, permutations
from pathlib import Path

import torch

from benches.emulated import TIMEOUT_S, hosts
from benches.routes import staged
from benches.routes.network import ORDER, SIZES, STATIONS, VggLike, mixed, rows_of
from benches.row import Row
from hocket import _native
from hocket.artefacts.plan import Gathered, Plan
from hocket.planning import rows, traffic
from hocket.settings import Settings
from hocket.tools.demo.emulation import NamespaceEmulation, ranks, run_ranks
from hocket.tools.testbed import Testbed
from hocket.training.step.votes import elements_of

GIGABIT, MEGABIT = 1e9, 1e6
RACKS = hosts([GIGABIT] * 4, 2, 100 * MEGABIT, alternating=True)
Pair = tuple[int, int]
"""Source and destination."""


def predicted(plan: Plan, size: str, steps: int) -> dict[Pair, int]:
    """Bytes from rank to rank in so many steps: of all buckets, and of votes."""
    found: Counter[Pair] = Counter()
    for bucket in plan.buckets:
        if isinstance(bucket.route, Gathered):
            for step in range(steps):
                counts = [rows_of(SIZES[size], step, rank) for rank in range(plan.world)]
                found.update(rows.sent(bucket, counts))
        else:
            for pair, elements in traffic.sent(bucket).items():
                found[pair] += steps * elements * traffic.wire_bytes(bucket, *pair)
    votes = _native.count_messages(
        "halving_doubling",
        (),
        "all_reduce",
        members=plan.world,
        elements=elements_of(len(VggLike(SIZES[size]).state_dict()), plan.world),
        root=0,
    )
    for source, destination, elements, _ in votes:
        found[source, destination] += steps * elements * 4
    return dict(found)


def run(bed: Testbed, contender: str, size: str, steps: int, out: Path) -> None:
    """One job; PeerError: a rank failed."""
    emulation = NamespaceEmulation(bed)
    argv = [sys.executable, "-m", "benches.routes.rank", contender, size, str(steps), str(out)]
    places = [host.name for host in bed.cluster.hosts]
    settings = Settings(timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S)
    run_ranks(emulation, places[0], ranks(emulation, places, argv), settings)


def parameters(out: Path, contender: str, world: int = len(ORDER)) -> list[torch.Tensor]:
    """By rank, all of them in a row."""
    saved = [torch.load(out / f"{contender}-{rank}.pt") for rank in range(world)]
    return [torch.cat([each.flatten() for each in one.values()]) for one in saved]


def far(out: Path, contender: str = "mixed", world: int = len(ORDER)) -> float:
    """The largest difference between DDP's parameters and any rank's."""
    ours, theirs = parameters(out, contender, world), parameters(out, "gloo", world)[0]
    return max(float((each - theirs).abs().max()) for each in ours)


def differing(
    out: Path, size: str, steps: int, contender: str = "mixed", plan: Plan | None = None
) -> dict[Pair, tuple[int, int]]:
    """Ordered pairs of ranks between which other bytes were sent than was predicted: predicted, and sent. `plan`: the
    contender's."""
    plan = plan or mixed(VggLike(SIZES[size]), ORDER, STATIONS)
    expected = predicted(plan, size, steps)
    sent = [json.loads((out / f"{contender}-{rank}.json").read_text()) for rank in range(plan.world)]
    pairs = permutations(range(plan.world), 2)
    both = {(a, b): (expected.get((a, b), 0), sent[a][b]) for a, b in pairs}
    return {pair: each for pair, each in both.items() if each[0] != each[1]}


def mixed_routes(size: str = "real", steps: int = 6) -> Iterator[Row]:
    """A network like VGG on two racks: the large layer on owners, embeddings as rows, the rest on two levels."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder, Testbed(RACKS) as bed:
        out = Path(folder)
        for contender in ("mixed", "gloo"):
            run(bed, contender, size, steps, out)
        replicas = parameters(out, "mixed")
        yield Row(name="mixed", what="largest difference from DDP's parameters", value=far(out), target=1e-5)
        yield Row(
            name="mixed",
            what="ranks whose parameters have other bits than those of the rank before",
            value=sum(not torch.equal(a, b) for a, b in pairwise(replicas)),
            target=0,
        )
        yield Row(
            name="mixed",
            what="ordered pairs of ranks that sent other bytes than predicted",
            value=len(differing(out, size, steps)),
            target=0,
        )


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "mixed": mixed_routes,
    "staged": staged.simulated,
    **{f"staged-{kind}": functools.partial(staged.measured, kind) for kind in staged.DEVICES},
    **{f"staged-racks-{kind}": functools.partial(staged.racks, kind) for kind in staged.DEVICES},
}

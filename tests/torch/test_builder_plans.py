"""Plans of the builders of docs/strategies.md, and of those that `hocket plan` proposes, train in real processes: one process's
results, and the predicted bytes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from hocket.artefacts import files
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Gathered, Plan, Traced
from hocket.artefacts.profile import Profile
from hocket.planning import rows
from hocket.planning.compile import votes_program
from hocket.planning.links import link_graph
from hocket.planning.search import neutral_profile
from hocket.planning.traced import topology_of, traffic
from hocket.planning.traffic import sent
from tests.planning import strategies_page as page
from tests.support import warm
from tests.support.commands import completed
from tests.torch import builder_scripts as script

WORLD = 4


def profile() -> Profile:
    model = script.Text()
    return neutral_profile(
        page.variable(name, tuple(each.shape), sparse=name == "words.weight")
        for name, each in model.named_parameters()
    )


def predicted(plan: Plan) -> Counter[tuple[int, int]]:
    """Bytes of a step from rank to rank."""
    topology = topology_of(link_graph(page.cluster(), WORLD))
    found: Counter[tuple[int, int]] = Counter()
    for bucket in plan.buckets:
        if isinstance(bucket.route, Traced):
            found.update(traffic(bucket, topology).sent)
        elif isinstance(bucket.route, Gathered):
            found.update(rows.sent(bucket, [script.TOUCHED] * WORLD))
        else:
            elements = sent(bucket)
            found.update({pair: count * ITEM_BYTES[bucket.dtype] for pair, count in elements.items()})
    return found


@pytest.mark.parametrize(
    ("file", "settings", "bound"),
    [
        ("mine.py", "chunk=2", 1e-6),
        ("kinds.py", "small_bytes=2000", 1e-6),
        ("large.py", "large_bytes=100000", 2e-3),
        ("coded", "codec=int8,large_bytes=100000", 2e-3),
    ],
)
def test_a_builder_s_plan_trains_as_predicted(file: str, settings: str, bound: float, tmp_path: Path) -> None:
    """Broken: a user's strategy would train another model, or by other traffic than it was chosen for."""
    own = file in page.BUILDERS
    builder = (
        f"{page.copied(tmp_path)[file]}:{page.BUILDERS[file]},{settings}" if own else f"{file},{settings}"
    )
    files.write(tmp_path / "cluster.toml", page.cluster())
    files.write(tmp_path / "profile.json", profile())
    promise = ["--promise", "lossy"] if file in (*page.LOSSY, "coded") else []
    given = ["--cluster", str(tmp_path / "cluster.toml"), "--profile", str(tmp_path / "profile.json")]
    planned = str(tmp_path / "plan.json")
    ended = completed(
        warm.hocket("plan", *given, "-n", str(WORLD), *promise, "--builder", builder, "-o", planned)
    )
    assert ended.returncode == 0, ended.stderr
    plan = files.read(tmp_path / "plan.json", Plan)
    ended = completed(
        warm.hocket("run", "-n", str(WORLD), "--plan", planned, *given[:2], script.__file__, str(tmp_path))
    )
    assert ended.returncode == 0, ended.stderr
    wanted = script.expected(WORLD)
    sent_by_rank = []
    for rank in range(WORLD):
        found = torch.load(tmp_path / f"{rank}.pt")
        for name, value in wanted.items():
            assert (found[name] - value).abs().max() <= bound, name
        sent_by_rank.append(json.loads((tmp_path / f"{rank}.json").read_text()))
    of_plan = predicted(plan)
    assert any(moved(sent_by_rank, of_plan, votes(count)) for count in range(1, 64)), (sent_by_rank, of_plan)


def votes(count: int) -> Counter[tuple[int, int]]:
    """Bytes by which ranks vote on each step, with so many values: they travel beside a plan's buckets."""
    program = votes_program([f"h{rank}" for rank in range(WORLD)], count)
    found: Counter[tuple[int, int]] = Counter()
    for rank in range(WORLD):
        for op in program.ops(rank):
            if op["op"] == "send":
                found[rank, op["peer"]] += (op["src"][2] - op["src"][1]) * ITEM_BYTES[op["wire"]]
    return found


def moved(sent_by_rank: list[list[int]], *parts: Counter[tuple[int, int]]) -> bool:
    pairs = ((source, to) for source in range(WORLD) for to in range(WORLD) if source != to)
    return all(
        sent_by_rank[source][to] == script.STEPS * sum(part[source, to] for part in parts)
        for source, to in pairs
    )

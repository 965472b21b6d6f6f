"""Parts of a step in the report: who loads slowly, for whom ranks wait, and when that cannot be told."""

from __future__ import annotations

import itertools
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from hocket.tools.report import build, numbers
from tests.hostile.trace_files import NO_PEER, RECORD, header
from tests.support import warm
from tests.support.commands import alone

STEP, FORWARD, BACKWARD, WAIT, OPTIMIZER = 32, 33, 34, 35, 36
MS = 1_000_000
STEPS = 20
SCRIPT = """
import os, sys, time
import torch
import hocket.torch as hk

slow, part = int(sys.argv[1]), sys.argv[2]

class Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        if part == "backward" and hk.rank(model) == slow:
            time.sleep(0.2)
        return gradient

torch.manual_seed(int(os.environ["RANK"]))
model = torch.nn.Linear(8, 8)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
for _ in range(12):
    inputs = torch.randn(4, 8, requires_grad=True)
    if part == "loading" and hk.rank(model) == slow:
        time.sleep(0.2)
    loss = model(Sleeps.apply(inputs)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def trace(directory: Path, parts: list[tuple[int, int, int, int]], **run: Any) -> Path:
    """A trace in which each rank takes so many ms for loading, forward, backward and the optimizer; the network takes 5 ms."""
    world = len(parts)
    clocks = {} if run.pop("one_clock", True) else {"clocks": list(range(world))}
    info = {"version": 1, "world": world, "hosts": [f"node{rank}" for rank in range(world)], **clocks, **run}
    (directory / "run.json").write_text(json.dumps(info))
    records: list[list[bytes]] = [[] for _ in parts]
    began = [10**9] * world
    for step in range(STEPS):
        ended = [at + sum(part[:3]) * MS for at, part in zip(began, parts, strict=True)]
        met = max(ended) + 5 * MS
        for rank, (loading, forward, _, optimizer) in enumerate(parts):
            start = began[rank] + loading * MS
            marks = [start, start + forward * MS, ended[rank], met, met + optimizer * MS]
            for kind, (first, last) in zip(
                (FORWARD, BACKWARD, WAIT, OPTIMIZER), itertools.pairwise(marks), strict=True
            ):
                records[rank].append(_record(kind, step, first, last))
            records[rank].append(_record(STEP, step, marks[0], marks[-1]))
            began[rank] = marks[-1]
    for rank, own in enumerate(records):
        (directory / f"rank-{rank}.hktrace").write_bytes(header(rank=rank, world=world) + b"".join(own))
    return directory


def _record(kind: int, step: int, start: int, end: int) -> bytes:
    return RECORD.pack(start, start, end, 0, 0, step, 0, NO_PEER, kind, 0, 0, 0)


def breakdown(directory: Path) -> tuple[dict[int, dict[str, float]], dict[str, Any] | None]:
    found = json.loads(json.dumps(numbers(directory)["breakdown"], default=_plain))
    return {row["rank"]: row for row in found["ranks"]}, found["last"]


def _plain(value: Any) -> Any:
    return {name: getattr(value, name) for name in value.__struct_fields__}


@pytest.mark.parametrize(
    ("slow", "part"),
    [
        ((30, 2, 4, 1), "loading"),
        ((0, 32, 4, 1), "forward"),
        ((0, 2, 34, 1), "backward"),
        ((0, 2, 4, 31), "optimizer"),
    ],
)
def test_a_slow_part_is_named_with_its_rank(
    slow: tuple[int, int, int, int], part: str, tmp_path: Path
) -> None:
    """Broken: a user would look for the fault in the network."""
    ranks, last = breakdown(trace(tmp_path, [(0, 2, 4, 1), (0, 2, 4, 1), slow]))
    assert last is not None
    assert (last["rank"], last["host"], last["part"], last["share"]) == (2, "node2", part, 1.0)
    # The first step begins at one time on all ranks: the optimizer's delay comes from the second on.
    assert last["by_s"] == pytest.approx(0.030)
    assert ranks[0]["for_ranks_s"] == pytest.approx(0.030)
    assert ranks[0]["for_network_s"] == pytest.approx(0.005)
    assert ranks[2]["for_ranks_s"] == 0
    assert ranks[2]["for_network_s"] == pytest.approx(0.005)
    for row in ranks.values():
        assert row["step_s"] == pytest.approx(0.042)
        names = ("loading", "forward", "backward", "for_ranks", "for_network", "optimizer")
        assert sum(row[f"{name}_s"] for name in names) == pytest.approx(row["step_s"])


def test_equal_ranks_blame_nobody(tmp_path: Path) -> None:
    """Broken: chance would be called a fault."""
    ranks, last = breakdown(trace(tmp_path, [(3, 2, 4, 1)] * 3))
    assert last is None
    assert all(row["for_ranks_s"] == 0 for row in ranks.values())


def test_a_little_later_is_no_fault(tmp_path: Path) -> None:
    """Broken: each report would name a rank."""
    _, last = breakdown(trace(tmp_path, [(0, 50, 50, 1), (0, 50, 50, 1), (0, 50, 53, 1)]))
    assert last is None


def test_unknown_clocks_split_no_wait(tmp_path: Path) -> None:
    """Broken: differences of clocks would be told as waits."""
    ranks, last = breakdown(trace(tmp_path, [(0, 2, 4, 1), (0, 2, 34, 1)], one_clock=False))
    assert last is None
    assert all(row["for_ranks_s"] is None and row["wait_s"] > 0 for row in ranks.values())


def test_one_rank_waits_for_none(tmp_path: Path) -> None:
    """Broken: a job of one rank would wait for others."""
    ranks, last = breakdown(trace(tmp_path, [(1, 2, 4, 1)]))
    assert last is None
    assert ranks[0]["for_ranks_s"] is None
    assert ranks[0]["loading_s"] == pytest.approx(0.001)


@pytest.mark.parametrize("part", ["loading", "backward"])
def test_a_job_blames_the_rank_that_sleeps(part: str, tmp_path: Path) -> None:
    """Broken: what is marked in training would not be what the report reads."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    ran = alone(warm.hocket("run", "-n", "3", "--trace", "t", "train.py", "1", part), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    _, last = breakdown(tmp_path / "t")
    assert last is not None
    assert (last["rank"], last["part"]) == (1, part)
    assert last["by_s"] > 0.1


def test_shares_are_suggested_to_ranks_that_compute_longer(tmp_path: Path) -> None:
    """Broken: nobody would hear that a slow host can have smaller batches, or do so where its data loader is slow."""
    for name, slow, expected in (("computes", (0, 20, 40, 1), [1, 1, 0.5]), ("loads", (30, 10, 20, 1), None)):
        (tmp_path / name).mkdir()
        directory = trace(tmp_path / name, [(0, 10, 20, 1), (0, 10, 20, 1), slow])
        shares = json.loads(json.dumps(numbers(directory)["breakdown"], default=_plain))["shares"]
        assert (shares and shares["shares"]) == expected
        assert ("shares=[1, 1, 0.5]" in build(directory).read_text()) == (expected is not None)
